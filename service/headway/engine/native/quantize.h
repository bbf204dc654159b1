// A row of numbers as int8: in each group, the nearest multiples of a step that makes the group's largest 127. What a row
// becomes depends on nothing but the row. engine/int8_linear.py does the same in torch, to the last bit.
#pragma once

#include <cfloat>
#include <cmath>

#include "linear_problem.h"
#include "plain_math.h"

namespace headway {
namespace {

constexpr int32_t WEIGHT_SURPLUS = 128;  // stored weights are that much too large

// The largest magnitude, by the bits: there infinity is larger than all numbers, and NaN larger than infinity.
template <class Bits>
Bits largest_magnitude(const Bits* row, int64_t count) {
  constexpr Bits WITHOUT_SIGN = Bits(~Bits(0)) >> 1;
  Bits largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    Bits magnitude = row[i] & WITHOUT_SIGN;
    largest = magnitude > largest ? magnitude : largest;
  }
  return largest;
}

template <class Number, class Bits>
Int8Group quantize_group(const Bits* group, int64_t count, int8_t* to) {
  Bits bits = largest_magnitude(group, count);
  Number stored;
  std::memcpy(&stored, &bits, sizeof(stored));
  float largest = float(stored);
  if (!std::isfinite(largest)) {
    std::memset(to, 0, count);
    return {NAN, 0};
  }
  float step = largest / 127 > FLT_MIN ? largest / 127 : FLT_MIN;  // whose inverse is a number, too
  float inverse = 1 / step;
  const Number* numbers = reinterpret_cast<const Number*>(group);
  int32_t sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    int32_t quantized = int32_t(__builtin_rintf(float(numbers[i]) * inverse));
    to[i] = int8_t(quantized);
    sum += quantized;
  }
  return {step, sum * WEIGHT_SURPLUS};
}

template <class Number, class Bits>
void quantize_numbers(const Bits* row, int64_t count, int8_t* to, Int8Group* groups) {
  std::memset(to + count, 0, -count & 3);
  for (; count >= INT8_GROUP; count -= INT8_GROUP, row += INT8_GROUP, to += INT8_GROUP)
    *groups++ = quantize_group<Number>(row, INT8_GROUP, to);
  if (count) *groups = quantize_group<Number>(row, count, to);
}

void quantize_row(const void* row, NumberType type, int64_t count, int8_t* to, Int8Group* groups) {
  if (type == NumberType::bfloat16)
    quantize_numbers<BFloat16>(static_cast<const uint16_t*>(row), count, to, groups);
  else
    quantize_numbers<float>(static_cast<const uint32_t*>(row), count, to, groups);
}

}  // namespace
}  // namespace headway
