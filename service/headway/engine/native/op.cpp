// The op as torch calls it: checks, the division of the work into tasks, and the threads that take them.
//
//   sequence ──▶ tiles ──▶ splits of the context          a task is one split of one tile
//
// A decode is one tile for all key/value heads, so that its pages are read from end to end. A chunk is cut into tiles of
// at most MAX_ROWS query rows for one key/value head each: enough rows that reading and packing cost little beside the
// arithmetic. A tile that would keep one thread busy for longer than its share is split along the context; whichever
// task ends last merges the splits, in their order, so the result does not depend on the threads. Threads take tasks
// from one counter, so a thread that the system holds up holds up nothing but its own task.
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <atomic>
#include <memory>
#include <optional>
#include <vector>

#include "levels.h"
#include "threads.h"

namespace headway {

namespace {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

constexpr int64_t MAX_ROWS = 48;
constexpr int64_t TASKS_PER_THREAD = 4;
constexpr int64_t MIN_SPLIT = 64;          // positions
constexpr int64_t MIN_THREAD_WORK = 1024;  // rows or heads times positions: below it, waking a thread costs more

class Plan {
 public:
  Plan(const Problem& problem, const AttentionKernel& kernel, int64_t num_sequences, int64_t num_threads)
      : problem_(problem), kernel_(kernel) {
    for (int64_t sequence = 0; sequence < num_sequences; ++sequence) add_tiles(sequence);
    int64_t work = 0;
    for (const Tile& tile : tiles_) work += work_of(tile);
    num_threads_ = std::max<int64_t>(1, std::min(num_threads, work / MIN_THREAD_WORK));
    if (num_threads_ > 1) split_tiles(work / (num_threads_ * TASKS_PER_THREAD));
    list_tasks();
  }

  void run() {
    share_tasks(num_threads_, tasks_.size(), [&](int64_t task) {
      run_task(tasks_[task], scratch_of_thread(scratch_bytes_));
    });
  }

 private:
  struct Task {
    int64_t tile, split;
  };

  void add_tiles(int64_t sequence) {
    int64_t num_new = problem_.num_new(sequence), num_old = problem_.num_old(sequence);
    bool is_decode = num_new == 1;
    int64_t tokens = is_decode ? 1 : std::max<int64_t>(1, MAX_ROWS / problem_.group_size());
    int64_t heads = is_decode ? problem_.num_kv_heads : 1;
    for (int64_t first = 0; first < num_new; first += tokens)
      for (int64_t head = 0; head < problem_.num_kv_heads; head += heads) {
        int64_t count = std::min(tokens, num_new - first);
        int64_t begin = problem_.first_visible(num_old + first), end = num_old + first + count;
        tiles_.push_back({sequence, first, count, head, heads, begin, end, 1, nullptr});
      }
  }

  // Reading and packing cost about as much as the arithmetic of 4 rows.
  int64_t work_of(const Tile& tile) const {
    int64_t rows = tile.num_tokens * problem_.group_size();
    return (tile.end - tile.begin) * tile.num_heads * (rows + 4) / 4;
  }

  void split_tiles(int64_t share) {
    int64_t bytes = 0;
    for (Tile& tile : tiles_) {
      int64_t most = std::max<int64_t>(1, (tile.end - tile.begin) / MIN_SPLIT);
      tile.num_splits = std::min(most, (work_of(tile) + share - 1) / std::max<int64_t>(share, 1));
      if (tile.num_splits > 1) bytes += tile.num_splits * kernel_.partial_bytes(problem_, tile);
    }
    if (!bytes) return;
    partials_ = std::make_unique<char[]>(bytes + 64);
    char* free = aligned(partials_.get());
    for (Tile& tile : tiles_)
      if (tile.num_splits > 1) {
        tile.partials = free;
        free += tile.num_splits * kernel_.partial_bytes(problem_, tile);
      }
  }

  void list_tasks() {
    for (int64_t tile = 0; tile < int64_t(tiles_.size()); ++tile) {
      scratch_bytes_ = std::max(scratch_bytes_, kernel_.scratch_bytes(problem_, tiles_[tile]));
      for (int64_t split = 0; split < tiles_[tile].num_splits; ++split) tasks_.push_back({tile, split});
    }
    num_done_ = std::vector<std::atomic<int64_t>>(tiles_.size());
  }

  void run_task(const Task& task, void* scratch) {
    const Tile& tile = tiles_[task.tile];
    kernel_.attend(problem_, tile, task.split, scratch);
    if (tile.partials && num_done_[task.tile].fetch_add(1, std::memory_order_acq_rel) + 1 == tile.num_splits)
      kernel_.merge(problem_, tile);
  }

  static char* aligned(char* memory) {
    return reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(memory) + 63) / 64 * 64);
  }

  static void* scratch_of_thread(size_t bytes) {
    thread_local std::vector<char> memory;
    if (memory.size() < bytes + 64) memory.resize(bytes + 64);
    return aligned(memory.data());
  }

  const Problem& problem_;
  const AttentionKernel& kernel_;
  int64_t num_threads_ = 1;
  std::vector<Tile> tiles_;
  std::vector<Task> tasks_;
  std::vector<std::atomic<int64_t>> num_done_;
  std::unique_ptr<char[]> partials_;
  size_t scratch_bytes_ = 0;
};

const AttentionKernel& kernel_for(ScalarType type) {
  switch (type) {
    case ScalarType::BFloat16: return kernels_in_use().bfloat16;
    case ScalarType::Half: return kernels_in_use().float16;
    case ScalarType::Float: return kernels_in_use().float32;
    case ScalarType::Double: return kernels_in_use().float64;
    default: STD_TORCH_CHECK(false, "paged_attention takes bfloat16, float16, float32 and float64");
  }
}

// [tokens, heads, width] with each token's heads in one piece.
Tensor with_dense_heads(const Tensor& tensor) {
  bool is_dense = tensor.stride(2) == 1 && tensor.stride(1) == tensor.size(2);
  return is_dense ? tensor : torch::stable::contiguous(tensor);
}

Rows rows_of(const Tensor& tensor) { return {tensor.data_ptr(), tensor.stride(0)}; }

void check(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& key_pages,
           const Tensor& value_pages) {
  ScalarType type = query.scalar_type();
  for (const Tensor* tensor : {&key, &value, &key_pages, &value_pages})
    STD_TORCH_CHECK(tensor->scalar_type() == type, "queries, keys, values and pages must be of one type");
  STD_TORCH_CHECK(key_pages.is_contiguous() && value_pages.is_contiguous(), "pages must be contiguous");
  STD_TORCH_CHECK(key_pages.size(2) == key.size(1) && key_pages.size(3) == key.size(2), "keys do not fit the pages");
  STD_TORCH_CHECK(
      value_pages.size(2) == key.size(1) && value_pages.size(3) == value.size(2), "values do not fit the pages");
  STD_TORCH_CHECK(query.size(1) % key.size(1) == 0, "every key head must serve as many query heads");
}

void check_index(const Tensor& tensor, ScalarType type, const char* name) {
  STD_TORCH_CHECK(tensor.scalar_type() == type && tensor.is_contiguous(), name, " must be contiguous, of its own type");
}

Tensor paged_attention(
    const Tensor& query_in, const Tensor& key_in, const Tensor& value_in, const Tensor& key_pages,
    const Tensor& value_pages, const Tensor& slot_mapping, const Tensor& page_table, const Tensor& query_start,
    const Tensor& context_lens, double scale, int64_t sliding_window, double softcap,
    const std::optional<Tensor>& sinks_in) {
  check(query_in, key_in, value_in, key_pages, value_pages);
  check_index(slot_mapping, ScalarType::Long, "slot_mapping");
  check_index(page_table, ScalarType::Int, "page_table");
  check_index(query_start, ScalarType::Int, "query_start");
  check_index(context_lens, ScalarType::Int, "context_lens");
  Tensor query = with_dense_heads(query_in), key = with_dense_heads(key_in), value = with_dense_heads(value_in);
  Tensor output = torch::stable::new_empty(query, {query.size(0), query.size(1), value.size(2)});
  std::optional<Tensor> sinks;
  if (sinks_in) sinks = torch::stable::contiguous(torch::stable::to(*sinks_in, ScalarType::Double));
  Problem problem{
      rows_of(query), rows_of(key), rows_of(value), rows_of(output), key_pages.data_ptr(), value_pages.data_ptr(),
      static_cast<const int64_t*>(slot_mapping.data_ptr()), static_cast<const int32_t*>(page_table.data_ptr()),
      page_table.stride(0), static_cast<const int32_t*>(query_start.data_ptr()),
      static_cast<const int32_t*>(context_lens.data_ptr()),
      sinks ? static_cast<const double*>(sinks->data_ptr()) : nullptr,
      query.size(1), key.size(1), query.size(2), value.size(2), key_pages.size(1), scale, softcap, sliding_window};
  Plan(problem, kernel_for(query.scalar_type()), context_lens.size(0), torch::stable::get_num_threads()).run();
  return output;
}

}  // namespace
}  // namespace headway

STABLE_TORCH_LIBRARY_IMPL(headway, CPU, library) {
  library.impl("paged_attention", TORCH_BOX(&headway::paged_attention));
}
