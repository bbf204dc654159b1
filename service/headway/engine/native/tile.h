// Paged attention for one tile: some query tokens of one sequence against a stretch of its keys and values.
//
// One pass over the context in blocks of 64 positions, with the online softmax of FlashAttention (Dao et al. 2022,
// algorithm 1): per query row the largest score so far, the sum of weights below it, and the weighted sum of values.
//
//   keys  (in their pages) ──pack──▶ [key_dim, 64]        scores  = queries · keys      [rows, 64]
//   values (in their pages) ─pack──▶ [64, value_dim]      outputs = keep · outputs + weights · values
//
// A row is one query head of one token; the rows of a tile share every key and value that is read: a decode has the
// query heads of one group, a chunk that of many tokens. Packing happens in the first-level cache and makes both products
// the same one, `multiply`, with all numbers of a vector independent. What differs between element types is `Math`:
//
//   Stored   how elements lie in memory
//   Packed   what a vector of operands consists of: a number, or a pair of bfloat16 along the summed dimension
//   Number   what is summed: float, or double for double
//
// A block's new tokens (those of this call) are read from where the caller has them, older ones from the pages. So no
// task waits for another one to write the pages: each writes its own tokens' rows.
#pragma once

#include "multiply.h"
#include "problem.h"
#include "softmax.h"

namespace headway {
namespace {

int64_t maximum(int64_t a, int64_t b) { return a > b ? a : b; }
int64_t round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

template <class Math>
class TileRun {
  using Stored = typename Math::Stored;
  using Packed = typename Math::Packed;
  using Number = typename Math::Number;

 public:
  TileRun(const Problem& problem, const Tile& tile, void* scratch)
      : problem_(problem), tile_(tile), rule_(problem), num_rows_(tile.num_tokens * problem.group_size()),
        width_(round_up(problem.value_dim, 16)), depth_(Math::packed(problem.key_dim)) {
    char* free = static_cast<char*>(scratch);
    lay_out([&](auto*& array, int64_t count) {
      array = reinterpret_cast<std::remove_reference_t<decltype(array)>>(free);
      free += round_up(count * sizeof(*array), 64);
    });
  }

  static size_t scratch_bytes(const Problem& problem, const Tile& tile) {
    TileRun run(problem, tile, nullptr);
    int64_t bytes = 0;
    run.lay_out([&](auto*& array, int64_t count) { bytes += round_up(count * sizeof(*array), 64); });
    return bytes;
  }

  // Of one split: its rows' outputs [heads · rows, width], then largest and sum [heads · rows].
  static size_t partial_bytes(const Problem& problem, const Tile& tile) {
    int64_t rows = tile.num_heads * tile.num_tokens * problem.group_size();
    return round_up(rows * (round_up(problem.value_dim, 16) + 2) * sizeof(Number), 64);
  }

  void attend(int64_t split) {
    int64_t begin = tile_.split_begin(split), end = tile_.split_begin(split + 1);
    if (split == tile_.num_splits - 1) write_pages();
    if (tile_.partials) use_partial(split);
    start();
    attend_blocks(begin, end);
    if (!tile_.partials) finish();
  }

  void merge() {
    use_partial(0);
    Number *outputs = outputs_, *largest = largest_, *sum = sum_;
    int64_t rows = tile_.num_heads * num_rows_;
    for (int64_t split = 1; split < tile_.num_splits; ++split) {
      use_partial(split);
      for (int64_t row = 0; row < rows; ++row) {
        Number peak = largest[row] > largest_[row] ? largest[row] : largest_[row];
        Number ours = scalar_power_of_two(largest[row] - peak), theirs = scalar_power_of_two(largest_[row] - peak);
        for (int64_t i = row * width_; i < (row + 1) * width_; ++i)
          outputs[i] = outputs[i] * ours + outputs_[i] * theirs;
        sum[row] = sum[row] * ours + sum_[row] * theirs;
        largest[row] = peak;
      }
    }
    use_partial(0);
    finish();
  }

 private:
  template <class Place>
  void lay_out(Place place) {
    int64_t rows = tile_.num_heads * num_rows_;
    place(queries_, rows * depth_);
    place(keys_, depth_ * BLOCK);
    place(values_, Math::packed(BLOCK) * width_);
    place(scores_, num_rows_ * BLOCK);
    place(weights_, num_rows_ * Math::packed(BLOCK));
    place(keep_, num_rows_);
    place(outputs_, rows * width_);
    place(largest_, rows);
    place(sum_, rows);
  }

  void use_partial(int64_t split) {
    outputs_ = reinterpret_cast<Number*>(
        static_cast<char*>(tile_.partials) + split * int64_t(partial_bytes(problem_, tile_)));
    largest_ = outputs_ + tile_.num_heads * num_rows_ * width_;
    sum_ = largest_ + tile_.num_heads * num_rows_;
  }

  int64_t token(int64_t row) const {  // among the tokens of the call
    return problem_.query_start[tile_.sequence] + tile_.first_token + row / problem_.group_size();
  }
  int64_t query_head(int64_t head, int64_t row) const {
    return (tile_.first_head + head) * problem_.group_size() + row % problem_.group_size();
  }

  void start() {
    for (int64_t head = 0; head < tile_.num_heads; ++head)
      for (int64_t row = 0; row < num_rows_; ++row) {
        const Stored* query = static_cast<const Stored*>(problem_.query.data) +
                              token(row) * problem_.query.token_stride + query_head(head, row) * problem_.key_dim;
        Math::pack_row(queries_ + (head * num_rows_ + row) * depth_, query, problem_.key_dim);
      }
    int64_t rows = tile_.num_heads * num_rows_;
    for (int64_t i = 0; i < rows * width_; ++i) outputs_[i] = 0;
    for (int64_t row = 0; row < rows; ++row) largest_[row] = lowest<Number>, sum_[row] = 0;
  }

  // The new keys and values of this tile's tokens and heads, into their slots.
  void write_pages() {
    for (int64_t i = 0; i < tile_.num_tokens; ++i) {
      int64_t token = problem_.query_start[tile_.sequence] + tile_.first_token + i;
      write_row(problem_.key_pages, problem_.key, token, problem_.key_dim);
      write_row(problem_.value_pages, problem_.value, token, problem_.value_dim);
    }
  }

  void write_row(void* pages, const Rows& rows, int64_t token, int64_t dim) {
    int64_t slot = problem_.slot_mapping[token];
    const Stored* from = static_cast<const Stored*>(rows.data) + token * rows.token_stride + tile_.first_head * dim;
    Stored* to = static_cast<Stored*>(pages) + (slot * problem_.num_kv_heads + tile_.first_head) * dim;
    for (int64_t i = 0; i < tile_.num_heads * dim; ++i) to[i] = from[i];
  }

  // Where the keys (or values) of the block's positions lie, of the tile's first head.
  void find_rows(const Stored** found, void* pages, const Rows& rows, int64_t dim, int64_t block, int64_t count) const {
    const int32_t* table = problem_.page_table + tile_.sequence * problem_.page_table_stride;
    int64_t num_old = problem_.num_old(tile_.sequence), offset = tile_.first_head * dim;
    int64_t page = block / problem_.page_size, in_page = block % problem_.page_size;
    int64_t i = 0;
    for (; i < count && block + i < num_old; ++i) {
      int64_t slot = int64_t(table[page]) * problem_.page_size + in_page;
      found[i] = static_cast<const Stored*>(pages) + slot * problem_.num_kv_heads * dim + offset;
      if (++in_page == problem_.page_size) ++page, in_page = 0;
    }
    int64_t first_new = problem_.query_start[tile_.sequence] - num_old;
    for (; i < count; ++i)
      found[i] = static_cast<const Stored*>(rows.data) + (first_new + block + i) * rows.token_stride + offset;
    for (; i < BLOCK; ++i) found[i] = found[count - 1];
  }

  struct Block {
    int64_t begin, count;
    const Stored *keys[BLOCK], *values[BLOCK];
  };

  void find_block(Block& block, int64_t begin, int64_t end) const {
    block.begin = begin;
    block.count = minimum(BLOCK, end - begin);
    find_rows(block.keys, problem_.key_pages, problem_.key, problem_.key_dim, begin, block.count);
    find_rows(block.values, problem_.value_pages, problem_.value, problem_.value_dim, begin, block.count);
  }

  void attend_blocks(int64_t begin, int64_t end) {
    Block blocks[2];
    find_block(blocks[0], begin, end);
    for (int64_t i = 0; i < blocks[0].count; ++i) {
      prefetch(blocks[0].keys[i], problem_.key_dim);
      prefetch(blocks[0].values[i], problem_.value_dim);
    }
    for (int64_t i = 0; blocks[i % 2].count > 0; ++i) {
      Block &block = blocks[i % 2], &next = blocks[(i + 1) % 2];
      if (block.begin + block.count < end)
        find_block(next, block.begin + block.count, end);
      else
        next.count = 0;
      for (int64_t head = 0; head < tile_.num_heads; ++head) attend_head(block, next, head);
    }
  }

  void attend_head(const Block& block, const Block& next_block, int64_t head) {
    int64_t first_row = head * num_rows_, count = block.count;
    bool is_last = head + 1 == tile_.num_heads;
    const Block& next = is_last && next_block.count ? next_block : block;
    int64_t next_head = is_last ? 0 : head + 1;
    int64_t key_dim = problem_.key_dim, value_dim = problem_.value_dim;
    Source<Stored> keys{block.keys, head * key_dim, next.keys, next_head * key_dim, count};
    Source<Stored> values{block.values, head * value_dim, next.values, next_head * value_dim, count};
    Math::pack_keys(keys_, BLOCK, keys, key_dim);
    multiply<Math>(
        queries_ + first_row * depth_, depth_, num_rows_, keys_, BLOCK, depth_, scores_, BLOCK, round_up(count, 16),
        nullptr);
    for (int64_t row = 0; row < num_rows_; ++row) weigh(row, first_row, block.begin, count);
    Math::pack_values(values_, width_, values, value_dim);
    multiply<Math>(
        weights_, Math::packed(BLOCK), num_rows_, values_, width_, Math::packed(count), outputs_ + first_row * width_,
        width_, width_, keep_);
  }

  void weigh(int64_t row, int64_t first_row, int64_t block, int64_t count) {
    int64_t position = problem_.num_old(tile_.sequence) + tile_.first_token + row / problem_.group_size();
    int64_t begin = maximum(problem_.first_visible(position) - block, 0), end = minimum(position + 1 - block, count);
    Number* scores = scores_ + row * BLOCK;
    keep_[row] = softmax_block(scores, begin, end, rule_, largest_[first_row + row], sum_[first_row + row]);
    Math::pack_weights(weights_ + row * Math::packed(BLOCK), scores);
  }

  // The outputs of all rows, with each head's sink in its sum if there is one.
  void finish() {
    for (int64_t head = 0; head < tile_.num_heads; ++head)
      for (int64_t row = 0; row < num_rows_; ++row) {
        int64_t index = head * num_rows_ + row, query_head = this->query_head(head, row);
        Number factor = 1 / sum_[index];
        if (problem_.sinks) factor = factor_with_sink(Number(problem_.sinks[query_head] * LOG2_E), index);
        Stored* output = static_cast<Stored*>(problem_.output.data) + token(row) * problem_.output.token_stride +
                         query_head * problem_.value_dim;
        for (int64_t i = 0; i < problem_.value_dim; ++i) output[i] = Math::round(outputs_[index * width_ + i] * factor);
      }
  }

  Number factor_with_sink(Number sink, int64_t index) const {
    Number peak = sink > largest_[index] ? sink : largest_[index];
    Number ours = scalar_power_of_two(largest_[index] - peak);
    return ours / (sum_[index] * ours + scalar_power_of_two(sink - peak));
  }

  const Problem& problem_;
  const Tile& tile_;
  Rule<Number> rule_;
  int64_t num_rows_;  // of one key/value head
  int64_t width_;     // value_dim, padded
  int64_t depth_;     // key_dim, packed
  Packed *queries_, *keys_, *values_, *weights_;
  Number *scores_, *keep_, *outputs_, *largest_, *sum_;
};

}  // namespace
}  // namespace headway
