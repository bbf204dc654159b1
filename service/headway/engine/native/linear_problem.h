// What one call of the linear op is, in plain data: the words that linear_op.cpp and kernel.cpp share.
#pragma once

#include <cstddef>
#include <cstdint>

namespace headway {

// Output columns per block of weights: two vectors of 16 floats.
constexpr int64_t LINEAR_BLOCK = 32;

struct LinearProblem {
  const uint16_t* input;  // num_rows rows of in_features bfloat16
  int64_t input_stride;   // between rows, in elements
  const uint32_t* weight;  // [num_blocks, num_pairs, LINEAR_BLOCK], each a pair of bfloat16; padded with zeros
  const uint16_t* bias;   // [out_features], or null
  uint16_t* output;       // [num_rows, out_features]
  int64_t num_rows, in_features, out_features;

  int64_t num_pairs() const { return (in_features + 1) / 2; }
  int64_t num_blocks() const { return (out_features + LINEAR_BLOCK - 1) / LINEAR_BLOCK; }
};

// The outputs of one block of columns for some rows. `next` is the block that the caller will most likely want then.
struct LinearTask {
  int64_t first_row, num_rows, block, next_block;
};

using LinearKernel = void (*)(const LinearProblem&, const LinearTask&);

}  // namespace headway
