// The threads that the ops share their work with.
//
// A step is some hundreds of short pieces of work, tens of microseconds apart, on a machine whose cores have others to
// serve too. So help is welcome, never needed: whoever calls does all the work that nobody else takes, and waits for no
// thread but those that hold a part of it at that moment. A helper that sleeps, or whose core is busy with another
// process, costs nothing. (OpenMP's regions end only when all threads have come, however late.)
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

namespace headway {

// A piece of work in words of plain C: `work(context, worker)`.
struct SharedWork {
  void (*work)(const void* context, int64_t worker);
  const void* context;
};

// Calls the work as worker 0 here, which must do whatever is left, and as workers 1 to num_workers - 1, once at most each,
// on helpers that are there in time. Afterwards nobody works on it any more. The helpers serve one caller at a time: who
// comes meanwhile, from another thread or from inside such work, does its own alone.
void share_work(int64_t num_workers, const SharedWork& work);

namespace {

// The threads of a call as torch counts them, but no more than share the work well.
template <class Work>
void share(int64_t num_workers, const Work& work) {
  if (num_workers <= 1) return work(0);
  share_work(num_workers, {[](const void* context, int64_t worker) { (*static_cast<const Work*>(context))(worker); }, &work});
}

// `count` tasks, each once: work(task).
template <class Work>
void share_tasks(int64_t num_workers, int64_t count, const Work& work) {
  std::atomic<int64_t> next{0};
  share(std::min(num_workers, count), [&](int64_t) {
    for (int64_t task; (task = next.fetch_add(1, std::memory_order_relaxed)) < count;) work(task);
  });
}

// The range from 0 to `count`, in pieces of `grain` or less: work(begin, end).
template <class Work>
void share_range(int64_t num_workers, int64_t count, int64_t grain, const Work& work) {
  share_tasks(num_workers, (count + grain - 1) / grain, [&](int64_t piece) {
    work(piece * grain, std::min(count, (piece + 1) * grain));
  });
}

}  // namespace
}  // namespace headway
