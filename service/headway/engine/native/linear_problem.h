// What one call of a linear op is, in plain data: the words that the ops and kernel.cpp share.
//
// A word is the 32 bits that a lane multiplies in one step: two bfloat16, or four int8.
#pragma once

#include <cstddef>
#include <cstdint>

namespace headway {

// Output columns per block of weights: two vectors of 16 sums.
constexpr int64_t LINEAR_BLOCK = 32;

// Inputs of a row in int8 that share a step: outliers, which some inputs of language models always are, make the steps
// of their own group long and of no other. engine/int8_linear.py knows the same number.
constexpr int64_t INT8_GROUP = 64;

// A group: its step, and what the sums of its products have too much.
struct Int8Group {
  float step;
  int32_t surplus;
};

enum class NumberType { bfloat16, float32 };

struct LinearProblem {
  const char* input;       // num_rows rows of row_bytes
  int64_t row_stride;      // bytes from row to row
  int64_t row_bytes;       // whole words, but for a last single bfloat16
  const uint32_t* weight;  // [num_blocks, num_words, LINEAR_BLOCK] words; what is missing in the last ones counts as 0
  const void* bias;        // [out_features] of output_type, or null
  void* output;            // [num_rows, out_features] of output_type
  NumberType output_type;
  int64_t num_rows, out_features;
  const Int8Group* groups;     // [num_rows, num_groups]; of int8 only
  const float* weight_steps;   // [out_features]; of int8 only

  int64_t num_words() const { return (row_bytes + 3) / 4; }
  int64_t num_groups() const { return (row_bytes + INT8_GROUP - 1) / INT8_GROUP; }
  int64_t num_blocks() const { return (out_features + LINEAR_BLOCK - 1) / LINEAR_BLOCK; }
};

// The outputs of one block of columns for some rows. `next` is the block that the caller will most likely want then.
struct LinearTask {
  int64_t first_row, num_rows, block, next_block;
};

using LinearKernel = void (*)(const LinearProblem&, const LinearTask&);

// One row of `count` numbers in int8 into `to`, which has room for whole words.
using QuantizeKernel = void (*)(const void* row, NumberType type, int64_t count, int8_t* to, Int8Group* groups);

}  // namespace headway
