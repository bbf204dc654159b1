// The one product that attention is made of, as register blocks: each operand that is loaded serves a whole block.
#pragma once

#include "vector.h"

namespace headway {
namespace {

// c [ROWS, COLUMNS vectors] = keep · c + a [ROWS, depth] · b [depth, COLUMNS vectors]; keep null: 0.
template <class Math, int ROWS, int COLUMNS>
inline void multiply_block(
    const typename Math::Packed* a, int64_t a_stride, const typename Math::Packed* b, int64_t b_stride, int64_t depth,
    typename Math::Number* c, int64_t c_stride, const typename Math::Number* keep) {
  using Number = Vector<typename Math::Number>;
  constexpr int64_t LANES = lanes<typename Math::Number>;
  Number sums[ROWS][COLUMNS];
  for (int row = 0; row < ROWS; ++row)
    for (int column = 0; column < COLUMNS; ++column)
      sums[row][column] = keep ? load(c + row * c_stride + column * LANES) * keep[row] : Number{};
  for (int64_t k = 0; k < depth; ++k) {
    Vector<typename Math::Packed> right[COLUMNS];
    for (int column = 0; column < COLUMNS; ++column) right[column] = load(b + k * b_stride + column * LANES);
    for (int row = 0; row < ROWS; ++row)
      for (int column = 0; column < COLUMNS; ++column)
        sums[row][column] = Math::multiply_add(sums[row][column], a[row * a_stride + k], right[column]);
  }
  for (int row = 0; row < ROWS; ++row)
    for (int column = 0; column < COLUMNS; ++column) store(c + row * c_stride + column * LANES, sums[row][column]);
}

// One row block of a product, over all `width` columns (a multiple of 16).
template <class Math, int ROWS>
void multiply_rows(
    const typename Math::Packed* a, int64_t a_stride, const typename Math::Packed* b, int64_t b_stride, int64_t depth,
    typename Math::Number* c, int64_t c_stride, int64_t width, const typename Math::Number* keep) {
  constexpr int64_t LANES = lanes<typename Math::Number>;
  int64_t column = 0;
  for (; column + TILE_COLUMNS * LANES <= width; column += TILE_COLUMNS * LANES)
    multiply_block<Math, ROWS, TILE_COLUMNS>(a, a_stride, b + column, b_stride, depth, c + column, c_stride, keep);
  for (; column < width; column += LANES)
    multiply_block<Math, ROWS, 1>(a, a_stride, b + column, b_stride, depth, c + column, c_stride, keep);
}

template <class Math, int ROWS = TILE_ROWS>
void multiply(
    const typename Math::Packed* a, int64_t a_stride, int64_t num_rows, const typename Math::Packed* b,
    int64_t b_stride, int64_t depth, typename Math::Number* c, int64_t c_stride, int64_t width,
    const typename Math::Number* keep) {
  for (; num_rows >= ROWS; num_rows -= ROWS) {
    multiply_rows<Math, ROWS>(a, a_stride, b, b_stride, depth, c, c_stride, width, keep);
    a += ROWS * a_stride;
    c += ROWS * c_stride;
    if (keep) keep += ROWS;
  }
  if constexpr (ROWS > 1) {
    if (num_rows) multiply<Math, ROWS - 1>(a, a_stride, num_rows, b, b_stride, depth, c, c_stride, width, keep);
  }
}

}  // namespace
}  // namespace headway
