// The division of a linear op's work into tasks, and the threads that take them.
//
// A task is one block of output columns for some rows: all rows, unless they are more than the second-level cache should
// hold beside the block, or the blocks alone are too few for the threads. Each thread has a range of tasks of its own,
// which follow each other in memory; one that has done its own takes from the others', so that a thread that the system
// holds up holds up nothing but its own task.
#pragma once

#include <algorithm>
#include <atomic>
#include <vector>

#include "linear_problem.h"
#include "threads.h"

namespace headway {
namespace {

constexpr int64_t MAX_INPUT_BYTES = 256 << 10;   // of a task's rows
constexpr int64_t MIN_ROWS = 16;                 // of a task, where rows are divided for the sake of the threads
constexpr int64_t TASKS_PER_THREAD = 2;
constexpr int64_t MIN_THREAD_WORK = 1 << 15;     // words times columns: below it, waking a thread costs more

int64_t divide_up(int64_t number, int64_t unit) { return (number + unit - 1) / unit; }

class LinearPlan {
 public:
  LinearPlan(const LinearProblem& problem, LinearKernel kernel, int64_t num_threads)
      : problem_(problem), kernel_(kernel) {
    int64_t work = problem.num_words() * problem.out_features * divide_up(problem.num_rows, 8);
    num_threads_ = std::max<int64_t>(1, std::min(num_threads, work / MIN_THREAD_WORK));
    rows_per_task_ = choose_rows();
    num_tasks_ = divide_up(problem.num_rows, rows_per_task_) * problem.num_blocks();
    num_threads_ = std::min(num_threads_, num_tasks_);
  }

  void run() {
    if (num_threads_ <= 1) {
      for (int64_t task = 0; task < num_tasks_; ++task) run_task(task);
      return;
    }
    std::vector<Range> ranges(num_threads_);
    for (int64_t i = 0; i < num_threads_; ++i) ranges[i].next = num_tasks_ * i / num_threads_;
    share(num_threads_, [&](int64_t worker) {
      for (int64_t i = 0; i < num_threads_; ++i) take_tasks(ranges, (worker + i) % num_threads_);
    });
  }

 private:
  struct alignas(64) Range {
    std::atomic<int64_t> next{0};
  };

  int64_t choose_rows() const {
    int64_t bytes = problem_.num_rows * problem_.row_bytes;
    int64_t for_cache = divide_up(bytes, MAX_INPUT_BYTES);
    int64_t for_threads = divide_up(num_threads_ * TASKS_PER_THREAD, problem_.num_blocks());
    if (num_threads_ == 1) for_threads = 1;
    int64_t num_parts = std::max(for_cache, std::min(for_threads, divide_up(problem_.num_rows, MIN_ROWS)));
    return divide_up(problem_.num_rows, num_parts);
  }

  void take_tasks(std::vector<Range>& ranges, int64_t range) {
    int64_t end = num_tasks_ * (range + 1) / num_threads_;
    for (int64_t task; (task = ranges[range].next.fetch_add(1, std::memory_order_relaxed)) < end;) run_task(task);
  }

  void run_task(int64_t index) {
    int64_t num_blocks = problem_.num_blocks(), block = index % num_blocks;
    int64_t first_row = index / num_blocks * rows_per_task_;
    int64_t num_rows = std::min(rows_per_task_, problem_.num_rows - first_row);
    kernel_(problem_, {first_row, num_rows, block, (block + 1) % num_blocks});
  }

  const LinearProblem& problem_;
  LinearKernel kernel_;
  int64_t num_threads_, rows_per_task_, num_tasks_;
};

}  // namespace
}  // namespace headway
