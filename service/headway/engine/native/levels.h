// The instruction sets that the arithmetic was compiled for, and the one in use.
#pragma once

#include "linear_problem.h"
#include "pointwise_problem.h"
#include "problem.h"

namespace headway {

// What kernel.cpp makes for one instruction set.
struct Kernels {
  AttentionKernel bfloat16, float16, float32, float64;
  LinearKernel linear;
  PointwiseKernels pointwise_bfloat16, pointwise_float32;
};

struct Level {
  const char* name;
  const Kernels* kernels;
  bool (*is_supported)();
};

// The best that this CPU has, unless a test chose another.
const Kernels& kernels_in_use();

}  // namespace headway
