// The helpers of threads.h: how they wait, and how they join and leave a piece of work.
#include "threads.h"

#include <pthread.h>
#include <sched.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace headway {
namespace {

// How long a helper stays awake for the next piece of work: longer than what a model computes between two of them, much
// shorter than a step. Meanwhile it offers its core, every few turns, to whatever else could run there.
constexpr std::chrono::microseconds AWAKE{200};
constexpr int TURNS = 32;

inline void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

class Team {
 public:
  void share(int64_t num_workers, const SharedWork& work) {
    if (is_in_use_.exchange(true, std::memory_order_acquire)) return work.work(work.context, 0);
    while (num_helpers_ + 1 < num_workers) start_helper();
    work_ = work;
    Opened opened(*this, num_workers - 1);
    work.work(work.context, 0);
  }

 private:
  // Of the state: how many helpers may still join (the low half), and how many have and are not done (the high half).
  static constexpr uint64_t PLACE = 1, ACTIVE = uint64_t(1) << 32, PLACES = ACTIVE - 1;

  struct Opened {
    Opened(Team& team, uint64_t num_places) : team_(team) {
      team.state_.store(num_places * PLACE);
      if (team.num_asleep_.load() > 0) team.wake();
    }
    ~Opened() {
      team_.state_.fetch_and(~PLACES);
      for (int turn = 1; team_.state_.load(std::memory_order_acquire) != 0; ++turn) wait(turn);
      team_.is_in_use_.store(false, std::memory_order_release);
    }
    Team& team_;
  };

  static void wait(int turn) {
    if (turn % TURNS)
      pause();
    else
      sched_yield();
  }

  void start_helper() {
    std::thread([this] { help(); }).detach();
    ++num_helpers_;
  }

  [[noreturn]] void help() {
    for (;;) {
      if (int64_t worker = join()) {
        work_.work(work_.context, worker);
        state_.fetch_sub(ACTIVE, std::memory_order_release);
      } else if (!comes_soon()) {
        sleep();
      }
    }
  }

  // The worker that this thread is from now on, or 0.
  int64_t join() {
    uint64_t state = state_.load(std::memory_order_acquire);
    while (state & PLACES)
      if (state_.compare_exchange_weak(state, state + ACTIVE - PLACE, std::memory_order_acq_rel)) return state & PLACES;
    return 0;
  }

  bool has_place() const { return state_.load() & PLACES; }

  bool comes_soon() const {
    auto end = std::chrono::steady_clock::now() + AWAKE;
    for (int turn = 1; turn % TURNS || std::chrono::steady_clock::now() < end; ++turn) {
      if (has_place()) return true;
      wait(turn);
    }
    return false;
  }

  // Either this thread sees the place, or whoever opens it sees this thread asleep.
  void sleep() {
    std::unique_lock<std::mutex> lock(sleeping_);
    num_asleep_.fetch_add(1);
    while (!has_place()) awake_.wait(lock);
    num_asleep_.fetch_sub(1);
  }

  void wake() {
    { std::lock_guard<std::mutex> lock(sleeping_); }
    awake_.notify_all();
  }

  std::atomic<bool> is_in_use_{false};
  int64_t num_helpers_ = 0;
  SharedWork work_{};
  std::mutex sleeping_;
  std::condition_variable awake_;
  std::atomic<int64_t> num_asleep_{0};
  alignas(64) std::atomic<uint64_t> state_{0};
};

// Never destroyed: helpers wait in it until the process ends. A forked child has no helpers, so it starts its own.
Team* team = [] {
  pthread_atfork(nullptr, nullptr, [] { team = new Team; });
  return new Team;
}();

}  // namespace

void share_work(int64_t num_workers, const SharedWork& work) { team->share(num_workers, work); }

}  // namespace headway
