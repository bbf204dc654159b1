// The linear op with weights in int8 as torch calls it: checks, the rows in int8, and the description of the problem.
#include <torch/csrc/stable/library.h>

#include <memory>

#include "levels.h"
#include "linear_arguments.h"

namespace headway {
namespace {

constexpr int64_t MIN_QUANTIZED = 1 << 15;       // elements: below it, waking a thread costs more

void check_quantized(const Tensor& input, const Tensor& weight, const Tensor& scales, int64_t out_features) {
  STD_TORCH_CHECK(
      input.scalar_type() == ScalarType::BFloat16 || input.scalar_type() == ScalarType::Float,
      "headway::linear_int8 takes bfloat16 or float32");
  STD_TORCH_CHECK(weight.scalar_type() == ScalarType::Byte, "headway::linear_int8 takes weights in bytes");
  STD_TORCH_CHECK(
      scales.scalar_type() == ScalarType::Float && scales.dim() == 1 && scales.size(0) == out_features &&
          scales.is_contiguous(),
      "the scales must be ", out_features, " float32 in one piece");
}

// All rows of a call in int8, each in whole words.
class QuantizedRows {
 public:
  QuantizedRows(const Tensor& rows, NumberType type)
      : row_bytes_(divide_up(rows.size(1), 4) * 4),
        numbers_(new int8_t[rows.size(0) * row_bytes_]),
        groups_(new Int8Group[rows.size(0) * num_groups()]) {
    int64_t num_rows = rows.size(0), stride = rows.stride(0) * (type == NumberType::bfloat16 ? 2 : 4);
    const char* first = static_cast<const char*>(rows.data_ptr());
    QuantizeKernel quantize_row = kernels_in_use().quantize_row;
    auto quantize = [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row)
        quantize_row(
            first + row * stride, type, rows.size(1), numbers_.get() + row * row_bytes_,
            groups_.get() + row * num_groups());
    };
    if (num_rows * row_bytes_ < MIN_QUANTIZED)
      quantize(0, num_rows);
    else
      share_range(torch::stable::get_num_threads(), num_rows, divide_up(MIN_QUANTIZED / 2, row_bytes_), quantize);
  }

  int64_t row_bytes() const { return row_bytes_; }
  const char* numbers() const { return reinterpret_cast<const char*>(numbers_.get()); }
  const Int8Group* groups() const { return groups_.get(); }

 private:
  int64_t num_groups() const { return divide_up(row_bytes_, INT8_GROUP); }

  int64_t row_bytes_;
  std::unique_ptr<int8_t[]> numbers_;
  std::unique_ptr<Int8Group[]> groups_;
};

Tensor linear_int8(
    const Tensor& input, const Tensor& weight, const Tensor& scales, int64_t out_features,
    const std::optional<Tensor>& bias) {
  check_shapes(input, weight, 4, out_features, bias);
  check_quantized(input, weight, scales, out_features);
  Tensor output = new_output(input, out_features);
  if (output.numel() == 0) return output;
  NumberType type = input.scalar_type() == ScalarType::BFloat16 ? NumberType::bfloat16 : NumberType::float32;
  Tensor rows = as_rows(input);
  QuantizedRows quantized(rows, type);
  LinearProblem problem{
      quantized.numbers(), quantized.row_bytes(), quantized.row_bytes(),
      static_cast<const uint32_t*>(weight.data_ptr()), bias ? bias->data_ptr() : nullptr, output.data_ptr(), type,
      rows.size(0), out_features, quantized.groups(), static_cast<const float*>(scales.data_ptr())};
  LinearPlan(problem, kernels_in_use().linear_int8, torch::stable::get_num_threads()).run();
  return output;
}

}  // namespace
}  // namespace headway

STABLE_TORCH_LIBRARY_IMPL(headway, CPU, library) { library.impl("linear_int8", TORCH_BOX(&headway::linear_int8)); }
