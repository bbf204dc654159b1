// A linear layer, a block of output columns at a time.
//
// The weights were packed for this loop (engine/native_linear.py, engine/int8_linear.py): for each word of inputs, the
// words of weights of 32 output columns, side by side. So a step reads 128 bytes that follow the last 128, multiplies
// them with one word of each row, and sums:
//
//   block  [num_words, 32 columns]  one stream from memory
//   input  [rows, num_words]        one word per row and step, given to all lanes
//   sums   [rows, 32 columns]       in registers until the end, then bias, rounding and the only write
//
// With few rows the memory sets the pace, with many the multipliers: the tile has as many rows as the registers hold
// sums for. Rows beyond one tile find the block in the second-level cache; meanwhile the next block is fetched.
#pragma once

#include <type_traits>
#include <utility>

#include "linear_words.h"
#include "plain_math.h"

namespace headway {
namespace {

// A tile's rows of inputs may take so much of the first-level cache (32 KiB or more); but with fewer rows than these,
// weights would be read again more often than the arithmetic takes.
constexpr int64_t LINEAR_CACHED_BYTES = 28 << 10;
constexpr int64_t LINEAR_LEAST_HEIGHT = 8;

constexpr int64_t LINEAR_VECTORS = LINEAR_BLOCK / lanes<float>;

template <class Words>
class LinearTile {
 public:
  LinearTile(const LinearProblem& problem, const LinearTask& task) : problem_(problem), task_(task) {}

  // All rows, as full tiles and one for the rest, which takes some from its neighbour before it is low.
  void run() {
    int64_t height = tile_height(), left = task_.num_rows;
    int64_t num_tiles = (left + height - 1) / height;
    fetch_step_ = LINEAR_BLOCK * sizeof(uint32_t) / num_tiles;
    for (int64_t tile = 0; tile < num_tiles; ++tile) {
      int64_t rows = minimum(height, tile + 1 < num_tiles ? left - LOW_ROWS - 1 : left);
      fetch_ = reinterpret_cast<const char*>(block(task_.next_block)) + tile * fetch_step_ * problem_.num_words();
      run_rows(task_.first_row + task_.num_rows - left, rows, std::make_index_sequence<Words::ROWS>());
      left -= rows;
    }
  }

 private:
  using Sum = typename Words::Sum;

  // Up to so many rows, the memory sets the pace and the CPU's own read-ahead does best; with more, fetching the next
  // block early hides the reading behind the arithmetic.
  static constexpr int64_t LOW_ROWS = Words::ROWS / 3;

  // As many rows as the registers hold, but no more than stay in the first-level cache from one block to the next.
  int64_t tile_height() const {
    int64_t cached = LINEAR_CACHED_BYTES / problem_.row_bytes;
    return minimum(Words::ROWS, cached > LINEAR_LEAST_HEIGHT ? cached : LINEAR_LEAST_HEIGHT);
  }

  template <size_t... SMALLER>
  void run_rows(int64_t first_row, int64_t num_rows, std::index_sequence<SMALLER...>) {
    using Rows = void (LinearTile::*)(int64_t);
    static constexpr Rows BY_ROWS[] = {&LinearTile::multiply<int(SMALLER) + 1>...};
    (this->*BY_ROWS[num_rows - 1])(first_row);
  }

  const uint32_t* block(int64_t index) const { return problem_.weight + index * problem_.num_words() * LINEAR_BLOCK; }

  template <int ROWS>
  void multiply(int64_t first_row) {
    Vector<float> totals[ROWS][LINEAR_VECTORS] = {};
    int64_t whole = problem_.row_bytes / 4;
    for (int64_t word = 0, group = 0; word < whole; word += Words::GROUP, ++group)
      sum_words<ROWS>(first_row, group, word, minimum(whole, word + Words::GROUP), totals);
    if (problem_.row_bytes % 4) sum_last<ROWS>(first_row, whole, totals);
    for (int row = 0; row < ROWS; ++row) finish(first_row + row, totals[row]);
  }

  template <int ROWS>
  inline __attribute__((always_inline)) void sum_words(
      int64_t first_row, int64_t group, int64_t begin, int64_t end, Vector<float> (&totals)[ROWS][LINEAR_VECTORS]) {
    Sum sums[ROWS][LINEAR_VECTORS];
    for (int row = 0; row < ROWS; ++row)
      for (int i = 0; i < LINEAR_VECTORS; ++i)
        sums[row][i] = Words::begin_group(problem_, first_row + row, group, totals[row][i]);
    const char* input = problem_.input + first_row * problem_.row_stride;
    const uint32_t* weights = block(task_.block) + begin * LINEAR_BLOCK;
    const char* fetch = fetch_ + begin * fetch_step_;
    int64_t stride = problem_.row_stride;
    for (int64_t word = begin; word < end; ++word, weights += LINEAR_BLOCK, fetch += fetch_step_) {
      if (ROWS > LOW_ROWS) {
        __builtin_prefetch(fetch, 0, 2);
        __builtin_prefetch(fetch + fetch_step_ / 2, 0, 2);
      }
      step<ROWS>(sums, weights, [&](int row) {
        uint32_t inputs;
        std::memcpy(&inputs, input + row * stride + 4 * word, sizeof(inputs));
        return inputs;
      });
    }
    for (int row = 0; row < ROWS; ++row)
      for (int i = 0; i < LINEAR_VECTORS; ++i)
        totals[row][i] = Words::end_group(problem_, first_row + row, group, totals[row][i], sums[row][i]);
  }

  // Half a word, of bfloat16: what lies behind a row's last element is not ours.
  template <int ROWS>
  void sum_last(int64_t first_row, int64_t word, Vector<float> (&totals)[ROWS][LINEAR_VECTORS]) {
    if constexpr (std::is_same_v<Sum, Vector<float>>) {
      const char* input = problem_.input + first_row * problem_.row_stride + 4 * word;
      step<ROWS>(totals, block(task_.block) + word * LINEAR_BLOCK, [&](int row) {
        uint16_t last;
        std::memcpy(&last, input + row * problem_.row_stride, sizeof(last));
        return uint32_t(last);
      });
    }
  }

  template <int ROWS, class Read>
  static void step(Sum (&sums)[ROWS][LINEAR_VECTORS], const uint32_t* weights, Read read) {
    Vector<uint32_t> right[LINEAR_VECTORS];
    for (int i = 0; i < LINEAR_VECTORS; ++i) right[i] = load(weights + i * lanes<float>);
    for (int row = 0; row < ROWS; ++row) {
      uint32_t inputs = read(row);
      for (int i = 0; i < LINEAR_VECTORS; ++i) sums[row][i] = Words::add_products(sums[row][i], right[i], inputs);
    }
  }

  void finish(int64_t row, const Vector<float>* totals) const {
    int64_t column = task_.block * LINEAR_BLOCK;
    for (int i = 0; i < LINEAR_VECTORS && column < problem_.out_features; ++i, column += lanes<float>) {
      int64_t count = minimum(problem_.out_features - column, lanes<float>);
      Vector<float> numbers = Words::value(problem_, column, count, totals[i]);
      if (problem_.output_type == NumberType::bfloat16)
        write<uint16_t>(row, column, count, numbers);
      else
        write<float>(row, column, count, numbers);
    }
  }

  template <class Stored>
  void write(int64_t row, int64_t column, int64_t count, Vector<float> numbers) const {
    Stored* output = static_cast<Stored*>(problem_.output) + row * problem_.out_features + column;
    if (problem_.bias) numbers += widened(static_cast<const Stored*>(problem_.bias) + column, count);
    auto stored = narrowed<Stored>(numbers);
    if (count == lanes<float>)
      std::memcpy(output, &stored, sizeof(stored));
    else
      std::memcpy(output, &stored, count * sizeof(Stored));
  }

  template <class Stored>
  static auto narrowed(Vector<float> numbers) {
    if constexpr (sizeof(Stored) == 2)
      return __builtin_convertvector(rounded_lanes(numbers), HalfVector);
    else
      return numbers;
  }

  template <class Stored>
  static Vector<float> widened(const Stored* from, int64_t count) {
    Vector<float> numbers{};
    for (int64_t i = 0; i < count; ++i)
      if constexpr (sizeof(Stored) == 2)
        numbers[i] = float(BFloat16{from[i]});
      else
        numbers[i] = from[i];
    return numbers;
  }

  typedef uint16_t HalfVector __attribute__((vector_size(32)));

  const LinearProblem& problem_;
  const LinearTask& task_;
  const char* fetch_;    // where the next block's part for this tile begins
  int64_t fetch_step_;   // bytes of it per step
};

}  // namespace
}  // namespace headway
