// The linear op in bfloat16 as torch calls it: checks, and the description of the problem.
#include <torch/csrc/stable/library.h>

#include "levels.h"
#include "linear_arguments.h"

namespace headway {
namespace {

Tensor linear(const Tensor& input, const Tensor& weight, int64_t out_features, const std::optional<Tensor>& bias) {
  STD_TORCH_CHECK(
      input.scalar_type() == ScalarType::BFloat16 && weight.scalar_type() == ScalarType::BFloat16,
      "headway::linear takes bfloat16");
  check_shapes(input, weight, 2, out_features, bias);
  Tensor output = new_output(input, out_features);
  if (output.numel() == 0) return output;
  Tensor rows = as_rows(input);
  LinearProblem problem{
      static_cast<const char*>(rows.data_ptr()), 2 * rows.stride(0), 2 * rows.size(1),
      static_cast<const uint32_t*>(weight.data_ptr()), bias ? bias->data_ptr() : nullptr, output.data_ptr(),
      NumberType::bfloat16, rows.size(0), out_features, nullptr, nullptr};
  LinearPlan(problem, kernels_in_use().linear, torch::stable::get_num_threads()).run();
  return output;
}

}  // namespace
}  // namespace headway

STABLE_TORCH_LIBRARY_IMPL(headway, CPU, library) { library.impl("linear", TORCH_BOX(&headway::linear)); }
