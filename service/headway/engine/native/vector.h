// 64 bytes of numbers as one value, by the vector extensions of GCC and clang: the compiler makes of them whatever the
// instruction set that it compiles for has, from one AVX-512 register down to four of SSE or NEON.
//
// Everything is in an anonymous namespace: these files are compiled once per instruction set, and the linker must never
// take one's function for another's.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace headway {
namespace {

// How many rows and columns of a product are summed at once: what the registers hold.
#if defined(__AVX512F__)
constexpr int TILE_ROWS = 6, TILE_COLUMNS = 4;
#elif defined(__AVX2__)
constexpr int TILE_ROWS = 3, TILE_COLUMNS = 2;
#else
constexpr int TILE_ROWS = 2, TILE_COLUMNS = 1;
#endif

inline int64_t minimum(int64_t a, int64_t b) { return a < b ? a : b; }

constexpr double LOG2_E = 1.44269504088896340736;

template <class T>
constexpr int64_t lanes = 64 / sizeof(T);
template <class T>
constexpr T lowest = sizeof(T) == 4 ? T(-3.0e38) : T(-1.0e308);  // finite: no difference of two is NaN

template <class T>
struct VectorOf {
  typedef T type __attribute__((vector_size(64)));
};
template <class T>
using Vector = typename VectorOf<T>::type;

template <class T>
inline Vector<T> load(const T* from) {
  Vector<T> vector;
  std::memcpy(&vector, from, sizeof(vector));
  return vector;
}
template <class T>
inline void store(T* to, Vector<T> vector) {
  std::memcpy(to, &vector, sizeof(vector));
}

// All lanes as one: as halves that are combined, as long as a half is a vector, then lane by lane.
template <class T, int SIZE = 64, class Combine>
inline T reduce(const T* lanes, Combine combine) {
  if constexpr (SIZE > 16) {
    typedef T Half __attribute__((vector_size(SIZE / 2)));
    Half low, high;
    std::memcpy(&low, lanes, sizeof(low));
    std::memcpy(&high, lanes + SIZE / 2 / sizeof(T), sizeof(high));
    Half both = combine(low, high);
    T next[SIZE / 2 / sizeof(T)];
    std::memcpy(next, &both, sizeof(both));
    return reduce<T, SIZE / 2>(next, combine);
  } else {
    T all = lanes[0];
    for (unsigned i = 1; i < SIZE / sizeof(T); ++i) all = combine(all, lanes[i]);
    return all;
  }
}
template <class T, class Combine>
inline T reduce_lanes(Vector<T> vector, Combine combine) {
  T lanes_of_vector[lanes<T>];
  store(lanes_of_vector, vector);
  return reduce<T>(lanes_of_vector, combine);
}

template <class T>
inline void prefetch(const T* row, int64_t dim) {
  for (int64_t k = 0; k < dim; k += lanes<T>) __builtin_prefetch(row + k, 0, 2);
}

// Rows to pack, at an offset each, and those that will be packed after them: while a part of one is read, the same part
// of the next is fetched, so that the arithmetic does not wait for the memory. Rows of pages lie too far apart for the
// CPU to guess them. All pointers of a block are valid; those beyond `count` repeat a row.
template <class T>
struct Source {
  const T* const* rows;
  int64_t offset;
  const T* const* next_rows;
  int64_t next_offset;
  int64_t count;

  const T* read(int64_t row, int64_t k) const {
    __builtin_prefetch(next_rows[row] + next_offset + k, 0, 2);
    return rows[row] + offset + k;
  }
};

// For each lane whether begin <= lane < end.
template <class T>
inline auto lanes_between(int64_t begin, int64_t end) {
  using Integer = std::conditional_t<sizeof(T) == 4, int32_t, int64_t>;
  Vector<Integer> index;
  for (int64_t i = 0; i < lanes<T>; ++i) index[i] = Integer(i);
  return (index >= Integer(begin)) & (index < Integer(end));
}

// 2 to the x, for x <= 0: 2^round(x) by the exponent's bits, 2^rest by its Taylor series (error below 1e-7).
inline Vector<float> power_of_two(Vector<float> x) {
  x = x < -126.0f ? Vector<float>{} - 126.0f : x;  // in this order NaN stays NaN
  Vector<float> shifted = x + 12582912.0f;  // 1.5 · 2^23: the sum has no fraction, its low bits are round(x)
  Vector<float> rest = (x - (shifted - 12582912.0f)) * 0.69314718f;
  Vector<float> series = 1.0f / 720 * rest + 1.0f / 120;
  series = series * rest + 1.0f / 24;
  series = series * rest + 1.0f / 6;
  series = series * rest + 0.5f;
  series = series * rest + 1.0f;
  series = series * rest + 1.0f;
  Vector<int32_t> exponent = ((Vector<int32_t>)shifted - 0x4B400000) << 23;
  return (Vector<float>)((Vector<int32_t>)series + exponent);
}
inline Vector<double> power_of_two(Vector<double> x) {
  for (int64_t i = 0; i < lanes<double>; ++i) x[i] = std::exp2(x[i]);
  return x;
}
template <class Number>
inline Number scalar_power_of_two(Number x) {
  return power_of_two(Vector<Number>{} + x)[0];
}

inline Vector<float> hyperbolic_tangent(Vector<float> x) {
  Vector<float> size = x < 0 ? -x : x;
  Vector<float> small = power_of_two(size * float(-2 * LOG2_E));  // e^(-2|x|)
  Vector<float> tangent = (1 - small) / (1 + small);
  return x < 0 ? -tangent : tangent;
}
inline Vector<double> hyperbolic_tangent(Vector<double> x) {
  for (int64_t i = 0; i < lanes<double>; ++i) x[i] = std::tanh(x[i]);
  return x;
}

}  // namespace
}  // namespace headway
