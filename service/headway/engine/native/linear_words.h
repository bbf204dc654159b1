// The two kinds of words that a linear layer multiplies (linear_tile.h has the loop): how products are summed, and what a
// sum stands for.
#pragma once

#if defined(__AVX512F__) || defined(__AVX2__)
#include <immintrin.h>
#endif

#include "linear_problem.h"
#include "vector.h"

namespace headway {
namespace {

// Rows of a tile: twice as many vectors of sums, and what else the registers must hold.
#if defined(__AVX512F__)
constexpr int64_t FAST_LINEAR_ROWS = 14, PLAIN_LINEAR_ROWS = 11;
#else
constexpr int64_t FAST_LINEAR_ROWS = 2, PLAIN_LINEAR_ROWS = 2;
#endif

// Two bfloat16, summed in floats.
struct BFloat16Words {
  using Sum = Vector<float>;
  static constexpr int64_t GROUP = INT64_MAX / 2;
#if defined(__AVX512BF16__)
  static constexpr int64_t ROWS = FAST_LINEAR_ROWS;
#else
  static constexpr int64_t ROWS = PLAIN_LINEAR_ROWS;
#endif

  // sum + both products of each lane's pair with one pair.
  static Sum add_products(Sum sum, Vector<uint32_t> weights, uint32_t inputs) {
#if defined(__AVX512BF16__)
    return (Sum)_mm512_dpbf16_ps((__m512)sum, (__m512bh)weights, (__m512bh)_mm512_set1_epi32(int(inputs)));
#else
    sum += (Vector<float>)(weights << 16) * as_float(inputs << 16);
    return sum + (Vector<float>)(weights & 0xFFFF0000u) * as_float(inputs & 0xFFFF0000u);
#endif
  }

  static Sum begin_group(const LinearProblem&, int64_t, int64_t, Vector<float> total) { return total; }
  static Vector<float> end_group(const LinearProblem&, int64_t, int64_t, Vector<float>, Sum sum) { return sum; }
  static Vector<float> value(const LinearProblem&, int64_t, int64_t, Vector<float> total) { return total; }

 private:
  static float as_float(uint32_t bits) {
    float number;
    std::memcpy(&number, &bits, sizeof(number));
    return number;
  }
};

// Four int8, summed exactly within a group, and the groups in floats, one after the other. VPDPBUSD takes one of its two
// operands without a sign: the weights, which are therefore 128 too large; what a group's sums get too much for that is
// the same in all columns.
struct Int8Words {
  using Sum = Vector<int32_t>;
  static constexpr int64_t GROUP = INT8_GROUP / 4;
#if defined(__AVX512VNNI__)
  static constexpr int64_t ROWS = FAST_LINEAR_ROWS;

  static Sum add_products(Sum sum, Vector<uint32_t> weights, uint32_t inputs) {
    return (Sum)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)weights, _mm512_set1_epi32(int(inputs)));
  }
#else
  static constexpr int64_t ROWS = PLAIN_LINEAR_ROWS;

  // As 16-bit numbers: the bytes with even indices and those with odd ones.
  static Sum add_products(Sum sum, Vector<uint32_t> weights, uint32_t inputs) {
    Vector<int16_t> all = (Vector<int16_t>)(Vector<uint32_t>{} + inputs);
    sum += pair_products((Vector<int16_t>)(weights & 0x00FF00FFu), all << 8 >> 8);
    return sum + pair_products((Vector<int16_t>)(weights >> 8 & 0x00FF00FFu), all >> 8);
  }

 private:
  static Sum pair_products(Vector<int16_t> left, Vector<int16_t> right) {
#if defined(__AVX512BW__)
    return (Sum)_mm512_madd_epi16((__m512i)left, (__m512i)right);
#elif defined(__AVX2__)
    __m256i l[2], r[2], products[2];
    std::memcpy(l, &left, sizeof(l));
    std::memcpy(r, &right, sizeof(r));
    for (int i = 0; i < 2; ++i) products[i] = _mm256_madd_epi16(l[i], r[i]);
    Sum sum;
    std::memcpy(&sum, products, sizeof(sum));
    return sum;
#else
    Sum l = (Sum)left, r = (Sum)right;
    return (l << 16 >> 16) * (r << 16 >> 16) + (l >> 16) * (r >> 16);
#endif
  }

 public:
#endif

  static Sum begin_group(const LinearProblem& problem, int64_t row, int64_t group, Vector<float>) {
    return Sum{} - problem.groups[row * problem.num_groups() + group].surplus;
  }
  static Vector<float> end_group(
      const LinearProblem& problem, int64_t row, int64_t group, Vector<float> total, Sum sum) {
    float step = problem.groups[row * problem.num_groups() + group].step;
    return total + __builtin_convertvector(sum, Vector<float>) * step;
  }
  static Vector<float> value(const LinearProblem& problem, int64_t column, int64_t count, Vector<float> total) {
    Vector<float> steps{};
    if (count == lanes<float>)
      steps = load(problem.weight_steps + column);
    else
      std::memcpy(&steps, problem.weight_steps + column, count * sizeof(float));
    return total * steps;
  }
};

}  // namespace
}  // namespace headway
