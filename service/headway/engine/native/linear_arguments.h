// What both linear ops ask of their arguments, and how they see them.
#pragma once

#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <optional>
#include <vector>

#include "linear_plan.h"
#include "linear_problem.h"

namespace headway {
namespace {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

// `elements` of the input make a word: the weight is [blocks, words, LINEAR_BLOCK, elements].
void check_shapes(
    const Tensor& input, const Tensor& weight, int64_t elements, int64_t out_features,
    const std::optional<Tensor>& bias) {
  STD_TORCH_CHECK(input.dim() >= 1, "a linear layer takes rows, not a number");
  STD_TORCH_CHECK(weight.dim() == 4 && weight.is_contiguous(), "the weight is not packed");
  STD_TORCH_CHECK(
      weight.size(2) == LINEAR_BLOCK && weight.size(3) == elements, "the weight is not packed for this kernel");
  int64_t in_features = input.size(input.dim() - 1);
  STD_TORCH_CHECK(in_features >= 1, "a linear layer takes rows of at least one element");
  STD_TORCH_CHECK(
      weight.size(1) == divide_up(in_features, elements), "rows of ", in_features,
      " elements do not fit the weight's ", weight.size(1), " words");
  STD_TORCH_CHECK(
      out_features >= 1 && weight.size(0) == divide_up(out_features, LINEAR_BLOCK), "the weight has ", weight.size(0),
      " blocks of columns, which are not those of ", out_features, " columns");
  if (bias)
    STD_TORCH_CHECK(
        bias->scalar_type() == input.scalar_type() && bias->dim() == 1 && bias->size(0) == out_features &&
            bias->is_contiguous(),
        "the bias must be ", out_features, " numbers of the input's type in one piece");
}

// [rows, in_features], each row in one piece, at one distance.
Tensor as_rows(const Tensor& input) {
  int64_t last = input.dim() - 1;
  Tensor rows = input;
  if (last == 1 && input.stride(1) == 1) return rows;
  rows = torch::stable::reshape(input, {-1, input.size(last)});
  return rows.stride(1) == 1 ? rows : torch::stable::contiguous(rows);
}

Tensor new_output(const Tensor& input, int64_t out_features) {
  std::vector<int64_t> shape;
  for (int64_t i = 0; i + 1 < input.dim(); ++i) shape.push_back(input.size(i));
  shape.push_back(out_features);
  return torch::stable::new_empty(input, shape);
}

}  // namespace
}  // namespace headway
