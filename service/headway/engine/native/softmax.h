// The online softmax of one row over one block of scores. Everything is in powers of two: `Rule` has log2(e) in it.
#pragma once

#include "problem.h"
#include "vector.h"

namespace headway {
namespace {

constexpr int64_t BLOCK = 64;

// What becomes of a product before the softmax: scaled, and capped if the layer says so.
template <class Number>
struct Rule {
  Number scale, softcap_in, softcap_out;
  explicit Rule(const Problem& problem)
      : scale(Number(problem.scale * LOG2_E)),
        softcap_in(problem.softcap ? Number(problem.scale / problem.softcap) : 0),
        softcap_out(Number(problem.softcap * LOG2_E)) {}
  Vector<Number> score(Vector<Number> product) const {
    return softcap_in ? softcap_out * hyperbolic_tangent(product * softcap_in) : product * scale;
  }
};

// Scores become weights; those outside [begin, end) become 0. Returns by how much what was summed before is multiplied.
template <class Number, bool IS_WHOLE>
Number softmax_scores(
    Number* scores, int64_t begin, int64_t end, const Rule<Number>& rule, Number& largest, Number& sum) {
  constexpr int64_t LANES = lanes<Number>;
  constexpr int64_t COUNT = BLOCK / LANES;
  const Vector<Number> nothing = Vector<Number>{} + lowest<Number>;
  Vector<Number> score[COUNT], peak = nothing, total{};
  for (int64_t i = 0; i < COUNT; ++i) {
    score[i] = rule.score(load(scores + i * LANES));
    if (!IS_WHOLE) score[i] = lanes_between<Number>(begin - i * LANES, end - i * LANES) ? score[i] : nothing;
    peak = score[i] > peak ? score[i] : peak;
  }
  Number block_largest = reduce_lanes<Number>(peak, [](auto a, auto b) { return a > b ? a : b; });
  Number new_largest = block_largest > largest ? block_largest : largest;
  for (int64_t i = 0; i < COUNT; ++i) {
    auto weight = power_of_two(score[i] - new_largest);
    if (!IS_WHOLE) weight = lanes_between<Number>(begin - i * LANES, end - i * LANES) ? weight : Vector<Number>{};
    total += weight;
    store(scores + i * LANES, weight);
  }
  Number keep = largest == new_largest ? 1 : scalar_power_of_two(largest - new_largest);
  largest = new_largest;
  sum = sum * keep + reduce_lanes<Number>(total, [](auto a, auto b) { return a + b; });
  return keep;
}

template <class Number>
Number softmax_block(
    Number* scores, int64_t begin, int64_t end, const Rule<Number>& rule, Number& largest, Number& sum) {
  if (begin <= 0 && end >= BLOCK) return softmax_scores<Number, true>(scores, begin, end, rule, largest, sum);
  if (begin < end) return softmax_scores<Number, false>(scores, begin, end, rule, largest, sum);
  for (int64_t i = 0; i < BLOCK; ++i) scores[i] = 0;
  return 1;
}

}  // namespace
}  // namespace headway
