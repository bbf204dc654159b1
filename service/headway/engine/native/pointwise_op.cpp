// The pointwise ops as torch calls them: checks, views as rows, and threads where there is work for them.
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <algorithm>
#include <tuple>
#include <vector>

#include "levels.h"
#include "threads.h"

namespace headway {
namespace {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

constexpr int64_t MIN_THREAD_ELEMENTS = 1 << 15;  // below it, waking a thread costs more

const PointwiseKernels& kernels_for(const Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case ScalarType::BFloat16: return kernels_in_use().pointwise_bfloat16;
    case ScalarType::Float: return kernels_in_use().pointwise_float32;
    default: STD_TORCH_CHECK(false, "the pointwise ops take bfloat16 and float32");
  }
}

template <class Problem>
void run(PointwiseKernel<Problem> kernel, const std::common_type_t<Problem>& problem) {
  int64_t num_threads = torch::stable::get_num_threads();
  int64_t rows_per_thread = std::max(
      (problem.num_rows + num_threads - 1) / num_threads,
      (MIN_THREAD_ELEMENTS + problem.width - 1) / std::max<int64_t>(problem.width, 1));
  if (rows_per_thread >= problem.num_rows) return kernel(problem, 0, problem.num_rows);
  share_range(num_threads, problem.num_rows, rows_per_thread, [&](int64_t begin, int64_t end) {
    kernel(problem, begin, end);
  });
}

// The same elements where `rows_of` can describe them: a row's side by side, and at most two dimensions of rows, or all of
// them end to end.
Tensor as_rows(const Tensor& tensor) {
  int64_t last = tensor.dim() - 1;
  STD_TORCH_CHECK(last >= 0, "the pointwise ops take rows, not a number");
  bool is_described = tensor.stride(last) == 1;
  for (int64_t i = 0; i + 2 < last; ++i) is_described &= tensor.size(i) == 1;
  return is_described ? tensor : torch::stable::contiguous(tensor);
}

StridedRows rows_of(const Tensor& tensor) {
  int64_t last = tensor.dim() - 1;
  StridedRows rows{tensor.data_ptr(), 1, 0, 0};
  if (last >= 1) rows.num_inner = std::max<int64_t>(tensor.size(last - 1), 1), rows.inner_stride = tensor.stride(last - 1);
  if (last >= 2) rows.outer_stride = tensor.stride(last - 2);
  return rows;
}

std::vector<int64_t> shape_of(const Tensor& tensor) {
  std::vector<int64_t> shape;
  for (int64_t i = 0; i < tensor.dim(); ++i) shape.push_back(tensor.size(i));
  return shape;
}

void check_same(const Tensor& one, const Tensor& other, const char* message) {
  STD_TORCH_CHECK(one.scalar_type() == other.scalar_type() && shape_of(one) == shape_of(other), message);
}

Tensor rms_norm(const Tensor& input, const Tensor& weight, double epsilon, bool rounds_first) {
  const PointwiseKernels& kernels = kernels_for(input);
  Tensor rows = as_rows(input), output = torch::stable::new_empty(input, shape_of(input));
  int64_t width = input.size(input.dim() - 1);
  STD_TORCH_CHECK(
      weight.scalar_type() == ScalarType::Float && weight.dim() == 1 && weight.size(0) == width && weight.is_contiguous(),
      "the weight must be ", width, " float32 in one piece");
  if (output.numel() == 0) return output;
  run(kernels.norm, {rows_of(rows), output.data_ptr(), static_cast<const float*>(weight.data_ptr()),
                     output.numel() / width, width, epsilon, rounds_first});
  return output;
}

Tensor gated(const Tensor& gate_in, const Tensor& up_in, int64_t activation) {
  const PointwiseKernels& kernels = kernels_for(gate_in);
  check_same(gate_in, up_in, "the gate and what it lets through must be of one shape and type");
  STD_TORCH_CHECK(activation == 0 || activation == 1, "there is no activation ", activation);
  Tensor gate = as_rows(gate_in), up = as_rows(up_in);
  Tensor output = torch::stable::new_empty(gate_in, shape_of(gate_in));
  int64_t width = gate.size(gate.dim() - 1);
  if (output.numel() == 0) return output;
  run(kernels.gate, {rows_of(gate), rows_of(up), output.data_ptr(), output.numel() / width, width, activation});
  return output;
}

// Heads [1, heads, tokens, width] to [1, tokens, heads, width].
Tensor rotate_one(const PointwiseKernels& kernels, const Tensor& heads_in, const Tensor& cosine, const Tensor& sine) {
  STD_TORCH_CHECK(heads_in.dim() == 4 && heads_in.size(0) == 1, "heads must be [1, heads, tokens, width]");
  STD_TORCH_CHECK(
      heads_in.size(2) == cosine.size(1) && heads_in.size(3) == cosine.size(2) && heads_in.size(3) % 2 == 0,
      "positions must be [1, tokens, width] for heads of the same even width");
  STD_TORCH_CHECK(heads_in.scalar_type() == cosine.scalar_type(), "heads and positions must be of one type");
  Tensor heads = heads_in.stride(3) == 1 ? heads_in : torch::stable::contiguous(heads_in);
  int64_t num_heads = heads.size(1), num_tokens = heads.size(2), width = heads.size(3);
  Tensor output = torch::stable::new_empty(heads, {1, num_tokens, num_heads, width});
  if (output.numel() == 0) return output;
  StridedRows input{heads.data_ptr(), num_heads, heads.stride(2), heads.stride(1)};
  StridedRows cosines{cosine.data_ptr(), 1, cosine.stride(1), 0}, sines{sine.data_ptr(), 1, sine.stride(1), 0};
  run(kernels.rotary, {input, output.data_ptr(), cosines, sines, num_tokens * num_heads, width});
  return output;
}

std::tuple<Tensor, Tensor> rotary(
    const Tensor& query, const Tensor& key, const Tensor& cosine_in, const Tensor& sine_in) {
  const PointwiseKernels& kernels = kernels_for(query);
  STD_TORCH_CHECK(cosine_in.dim() == 3 && cosine_in.size(0) == 1, "positions must be [1, tokens, width]");
  check_same(cosine_in, sine_in, "cosines and sines must be of one shape and type");
  Tensor cosine = as_rows(cosine_in), sine = as_rows(sine_in);
  return {rotate_one(kernels, query, cosine, sine), rotate_one(kernels, key, cosine, sine)};
}

Tensor greedy(const Tensor& logits_in) {
  STD_TORCH_CHECK(logits_in.dim() == 2, "logits must be [rows, vocabulary]");
  const PointwiseKernels& kernels = kernels_for(logits_in);
  Tensor logits = as_rows(logits_in);
  int64_t num_rows = logits.size(0), width = logits.size(1);
  Tensor tokens = torch::stable::new_empty(logits, {num_rows}, ScalarType::Long);
  if (num_rows > 0) run(kernels.greedy, {rows_of(logits), static_cast<int64_t*>(tokens.data_ptr()), num_rows, width});
  return tokens;
}

}  // namespace
}  // namespace headway

STABLE_TORCH_LIBRARY_IMPL(headway, CPU, library) {
  library.impl("rms_norm", TORCH_BOX(&headway::rms_norm));
  library.impl("gated", TORCH_BOX(&headway::gated));
  library.impl("greedy", TORCH_BOX(&headway::greedy));
  library.impl("rotary", TORCH_BOX(&headway::rotary));
}
