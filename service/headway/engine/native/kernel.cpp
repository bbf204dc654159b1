// The arithmetic of all ops, compiled once per instruction set into a table of its own (HEADWAY_KERNELS is its
// name). levels.cpp chooses a table by what the CPU has when it runs.
#include "levels.h"
#include "linear_tile.h"
#include "plain_math.h"
#include "pointwise.h"
#include "tile.h"
#if defined(__AVX512BF16__) && defined(__AVX512BW__)
#include "bfloat16_math.h"
#endif

namespace headway {
namespace {

template <class Math>
void attend(const Problem& problem, const Tile& tile, int64_t split, void* scratch) {
  TileRun<Math>(problem, tile, scratch).attend(split);
}

template <class Math>
void merge(const Problem& problem, const Tile& tile) {
  TileRun<Math>(problem, tile, nullptr).merge();
}

template <class Math>
constexpr AttentionKernel attention = {attend<Math>, merge<Math>, TileRun<Math>::scratch_bytes, TileRun<Math>::partial_bytes};

// Where AMX tiles multiply, a Math of its own belongs here: the operands are packed as its tiles want them already.
#if defined(__AVX512BF16__) && defined(__AVX512BW__)
using FastBFloat16 = BFloat16Math;
#else
using FastBFloat16 = PlainMath<BFloat16, float>;
#endif

void run_linear(const LinearProblem& problem, const LinearTask& task) { LinearTile(problem, task).run(); }

}  // namespace

extern const Kernels HEADWAY_KERNELS;
const Kernels HEADWAY_KERNELS = {
    attention<FastBFloat16>, attention<PlainMath<_Float16, float>>, attention<PlainMath<float, float>>,
    attention<PlainMath<double, double>>, run_linear,
    pointwise<BFloat16>, pointwise<float>};

}  // namespace headway
