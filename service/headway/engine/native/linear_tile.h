// A linear layer in bfloat16, a block of output columns at a time.
//
// The weights were packed for this loop (engine/native_linear.py): for each pair of inputs, the pairs of weights of 32
// output columns, side by side. So a step reads 128 bytes that follow the last 128, multiplies them with one pair of
// each row, and sums in floats:
//
//   block  [num_pairs, 32 columns]  one stream from memory
//   input  [rows, num_pairs]        one pair per row and step, given to all lanes
//   sums   [rows, 32 columns]       in registers until the end, then bias, rounding and the only write
//
// With few rows the memory sets the pace, with many the multipliers: the tile has as many rows as the registers hold
// sums for. Rows beyond one tile find the block in the second-level cache; meanwhile the next block is fetched.
#pragma once

#if defined(__AVX512BF16__)
#include <immintrin.h>
#endif

#include <utility>

#include "linear_problem.h"
#include "plain_math.h"

namespace headway {
namespace {

// Rows of a tile: twice as many vectors of sums, and what else the registers must hold.
#if defined(__AVX512BF16__)
constexpr int64_t LINEAR_ROWS = 14;
#elif defined(__AVX512F__)
constexpr int64_t LINEAR_ROWS = 11;
#else
constexpr int64_t LINEAR_ROWS = 2;
#endif

// Up to so many, the memory sets the pace and the CPU's own read-ahead does best; with more, fetching the next block
// early hides the reading behind the arithmetic.
constexpr int64_t LINEAR_LOW_ROWS = LINEAR_ROWS / 3;

// A tile's rows of inputs may take so much of the first-level cache (32 KiB or more); but with fewer rows than these,
// weights would be read again more often than the arithmetic takes.
constexpr int64_t LINEAR_CACHED_BYTES = 28 << 10;
constexpr int64_t LINEAR_LEAST_HEIGHT = 8;

constexpr int64_t LINEAR_VECTORS = LINEAR_BLOCK / lanes<float>;

// sum + both products of each lane's pair with one pair.
inline Vector<float> add_products(Vector<float> sum, Vector<uint32_t> weights, uint32_t inputs) {
#if defined(__AVX512BF16__)
  return (Vector<float>)_mm512_dpbf16_ps((__m512)sum, (__m512bh)weights, (__m512bh)_mm512_set1_epi32(int(inputs)));
#else
  BFloat16 low{uint16_t(inputs)}, high{uint16_t(inputs >> 16)};
  sum += (Vector<float>)(weights << 16) * float(low);
  return sum + (Vector<float>)(weights & 0xFFFF0000u) * float(high);
#endif
}

class LinearTile {
 public:
  LinearTile(const LinearProblem& problem, const LinearTask& task) : problem_(problem), task_(task) {}

  // All rows, as full tiles and one for the rest, which takes some from its neighbour before it is low.
  void run() {
    int64_t height = tile_height(), left = task_.num_rows;
    int64_t num_tiles = (left + height - 1) / height;
    fetch_step_ = LINEAR_BLOCK * sizeof(uint32_t) / num_tiles;
    for (int64_t tile = 0; tile < num_tiles; ++tile) {
      int64_t rows = minimum(height, tile + 1 < num_tiles ? left - LINEAR_LOW_ROWS - 1 : left);
      fetch_ = reinterpret_cast<const char*>(block(task_.next_block)) + tile * fetch_step_ * problem_.num_pairs();
      run_rows(task_.first_row + task_.num_rows - left, rows, std::make_index_sequence<LINEAR_ROWS>());
      left -= rows;
    }
  }

 private:
  // As many rows as the registers hold, but no more than stay in the first-level cache from one block to the next.
  int64_t tile_height() const {
    int64_t cached = LINEAR_CACHED_BYTES / (problem_.in_features * int64_t(sizeof(uint16_t)));
    return minimum(LINEAR_ROWS, cached > LINEAR_LEAST_HEIGHT ? cached : LINEAR_LEAST_HEIGHT);
  }

  template <size_t... SMALLER>
  void run_rows(int64_t first_row, int64_t num_rows, std::index_sequence<SMALLER...>) {
    using Rows = void (LinearTile::*)(int64_t);
    static constexpr Rows BY_ROWS[] = {&LinearTile::multiply<int(SMALLER) + 1>...};
    (this->*BY_ROWS[num_rows - 1])(first_row);
  }

  const uint32_t* block(int64_t index) const { return problem_.weight + index * problem_.num_pairs() * LINEAR_BLOCK; }

  template <int ROWS>
  void multiply(int64_t first_row) {
    Vector<float> sums[ROWS][LINEAR_VECTORS] = {};
    const uint16_t* input = problem_.input + first_row * problem_.input_stride;
    const uint32_t* weights = block(task_.block);
    int64_t whole = problem_.in_features / 2, stride = problem_.input_stride;
    const char* fetch = fetch_;
    for (int64_t pair = 0; pair < whole; ++pair, weights += LINEAR_BLOCK, fetch += fetch_step_) {
      if (ROWS > LINEAR_LOW_ROWS) {
        __builtin_prefetch(fetch, 0, 2);
        __builtin_prefetch(fetch + fetch_step_ / 2, 0, 2);
      }
      step<ROWS>(sums, weights, [&](int row) {
        uint32_t inputs;
        std::memcpy(&inputs, input + row * stride + 2 * pair, sizeof(inputs));
        return inputs;
      });
    }
    if (problem_.in_features % 2)  // what lies behind a row's last element is not ours
      step<ROWS>(sums, weights, [&](int row) { return uint32_t(input[row * stride + 2 * whole]); });
    for (int row = 0; row < ROWS; ++row) finish(first_row + row, sums[row]);
  }

  template <int ROWS, class Read>
  static void step(Vector<float> (&sums)[ROWS][LINEAR_VECTORS], const uint32_t* weights, Read read) {
    Vector<uint32_t> right[LINEAR_VECTORS];
    for (int i = 0; i < LINEAR_VECTORS; ++i) right[i] = load(weights + i * lanes<float>);
    for (int row = 0; row < ROWS; ++row) {
      uint32_t inputs = read(row);
      for (int i = 0; i < LINEAR_VECTORS; ++i) sums[row][i] = add_products(sums[row][i], right[i], inputs);
    }
  }

  void finish(int64_t row, const Vector<float>* sums) const {
    int64_t column = task_.block * LINEAR_BLOCK;
    uint16_t* output = problem_.output + row * problem_.out_features;
    for (int i = 0; i < LINEAR_VECTORS && column < problem_.out_features; ++i, column += lanes<float>) {
      int64_t count = problem_.out_features - column;
      count = count < lanes<float> ? count : lanes<float>;
      Vector<uint32_t> bits = rounded_lanes(problem_.bias ? sums[i] + bias(column, count) : sums[i]);
      auto narrow = __builtin_convertvector(bits, HalfVector);
      if (count == lanes<float>)
        std::memcpy(output + column, &narrow, sizeof(narrow));
      else
        std::memcpy(output + column, &narrow, count * sizeof(uint16_t));
    }
  }

  Vector<float> bias(int64_t column, int64_t count) const {
    Vector<uint32_t> bits{};
    for (int64_t i = 0; i < count; ++i) bits[i] = uint32_t(problem_.bias[column + i]) << 16;
    return (Vector<float>)bits;
  }

  typedef uint16_t HalfVector __attribute__((vector_size(32)));

  const LinearProblem& problem_;
  const LinearTask& task_;
  const char* fetch_;    // where the next block's part for this tile begins
  int64_t fetch_step_;   // bytes of it per step
};

}  // namespace
}  // namespace headway
