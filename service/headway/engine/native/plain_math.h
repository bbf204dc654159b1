// The arithmetic for any element type on any CPU: elements become float (double stays double) when they are packed.
#pragma once

#include "vector.h"

namespace headway {
namespace {

struct BFloat16 {
  uint16_t bits;
  operator float() const {
    uint32_t wide = uint32_t(bits) << 16;
    float number;
    std::memcpy(&number, &wide, sizeof(number));
    return number;
  }
};

template <class T>
inline T rounded(float number) {
  return T(number);
}
template <class T>
inline T rounded(double number) {
  return T(number);
}
// To nearest, ties to even; NaN stays NaN.
template <>
inline BFloat16 rounded<BFloat16>(float number) {
  uint32_t bits;
  std::memcpy(&bits, &number, sizeof(bits));
  if (number != number) return {uint16_t(bits >> 16 | 64)};
  return {uint16_t((bits + 0x7FFF + (bits >> 16 & 1)) >> 16)};
}

// Sixteen floats as bfloat16 into the low halves of the lanes: to nearest, ties to even; NaN stays NaN.
inline Vector<uint32_t> rounded_lanes(Vector<float> number) {
  Vector<uint32_t> bits = (Vector<uint32_t>)number;
  Vector<uint32_t> near = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
  return number == number ? near : (bits >> 16 | 64);
}

template <class T, class N>
struct PlainMath {
  using Stored = T;
  using Packed = N;
  using Number = N;

  static int64_t packed(int64_t count) { return count; }
  static Stored round(Number number) { return rounded<Stored>(number); }
  static Vector<Number> multiply_add(Vector<Number> sum, Number left, Vector<Number> right) {
    return sum + left * right;
  }

  static void pack_row(Packed* to, const Stored* from, int64_t dim) {
    for (int64_t i = 0; i < dim; ++i) to[i] = Number(from[i]);
  }
  static void pack_weights(Packed* to, const Number* weights) {
    for (int64_t i = 0; i < 64; ++i) to[i] = weights[i];
  }

  // to [dim, stride]: column i is row i.
  static void pack_keys(Packed* to, int64_t stride, const Source<Stored>& keys, int64_t dim) {
    constexpr int64_t STEP = lanes<Stored>;
    for (int64_t first = 0; first < keys.count; first += 16)
      for (int64_t k = 0; k < dim; k += STEP)
        for (int64_t i = first; i < first + 16; ++i) {
          const Stored* from = keys.read(i, k);
          for (int64_t j = 0; j < STEP && k + j < dim; ++j) to[(k + j) * stride + i] = Number(from[j]);
        }
  }

  // to [count, stride]: row i is row i; columns beyond dim are 0.
  static void pack_values(Packed* to, int64_t stride, const Source<Stored>& values, int64_t dim) {
    constexpr int64_t STEP = lanes<Stored>;
    for (int64_t i = 0; i < values.count; ++i) {
      for (int64_t k = 0; k < dim; k += STEP) {
        const Stored* from = values.read(i, k);
        for (int64_t j = 0; j < STEP && k + j < dim; ++j) to[i * stride + k + j] = Number(from[j]);
      }
      for (int64_t k = dim; k < stride; ++k) to[i * stride + k] = 0;
    }
  }
};

}  // namespace
}  // namespace headway
