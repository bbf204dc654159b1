// Calls of the pointwise ops in plain data: the words that pointwise_op.cpp and kernel.cpp share. Strides are in elements.
#pragma once

#include <cstddef>
#include <cstdint>

namespace headway {

// Rows of one width that need not follow each other, as a view of two dimensions: row r lies at
// r / num_inner · outer_stride + r % num_inner · inner_stride.
struct StridedRows {
  const void* data;
  int64_t num_inner, outer_stride, inner_stride;
};

struct NormProblem {
  StridedRows input;
  void* output;         // rows end to end
  const float* weight;  // [width]
  int64_t num_rows, width;
  double epsilon;
  bool rounds_first;  // to the element type before the weight is applied, not only after
};

struct GateProblem {
  StridedRows gate, up;
  void* output;  // rows end to end
  int64_t num_rows, width;
  int64_t activation;  // as in engine/pointwise.py
};

// Positions of one tensor of heads; a row is one head of one token.
struct RotaryProblem {
  StridedRows input;  // num_inner heads
  void* output;       // [num_tokens, num_heads, width], end to end
  StridedRows cosine, sine;  // a row per token
  int64_t num_rows, width;
};

struct GreedyProblem {
  StridedRows logits;
  int64_t* tokens;  // [num_rows]
  int64_t num_rows, width;
};

// What a kernel does for rows `begin` to `end`.
template <class Problem>
using PointwiseKernel = void (*)(const Problem&, int64_t begin, int64_t end);

struct PointwiseKernels {
  PointwiseKernel<NormProblem> norm;
  PointwiseKernel<GateProblem> gate;
  PointwiseKernel<RotaryProblem> rotary;
  PointwiseKernel<GreedyProblem> greedy;
};

}  // namespace headway
