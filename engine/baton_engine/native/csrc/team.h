// A fixed team of threads that runs a step together, phase by phase. Knows nothing of models.
//
// Inside a phase threads take tasks from a counter; a phase is over when its last task is done, not when the
// last thread arrives. A thread that lost its core holds nobody up unless it holds a task.
#pragma once

#include <immintrin.h>

#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

namespace baton {

class Team {
  public:
    explicit Team(int num_threads);  // throws std::system_error where there are no more threads
    ~Team();
    Team(const Team&) = delete;
    Team& operator=(const Team&) = delete;

    int size() const { return size_; }

    // Runs work(thread) in the caller (thread 0) and in each other thread that comes in time; returns when all
    // who came have left. `work` must go through the same phases, at most num_phases, in every thread.
    void run(int num_phases, const std::function<void(int)>& work);

    // To be called inside `work`: tasks 0 … num_tasks - 1 of the thread's next phase.
    template <class Task>
    void phase(int thread, int num_tasks, Task&& task) {
        Phase& phase = phases_[seats_[thread].next_phase++];
        for (;;) {
            const int index = phase.taken.fetch_add(1, std::memory_order_relaxed);
            if (index >= num_tasks) break;
            task(index);
            phase.done.fetch_add(1, std::memory_order_release);
        }
        for (int spins = 0; phase.done.load(std::memory_order_acquire) < num_tasks; ++spins) relax(spins);
    }

  private:
    struct alignas(64) Phase {
        std::atomic<int> taken{0};
        alignas(64) std::atomic<int> done{0};
    };
    struct alignas(64) Seat {
        int next_phase = 0;
    };

    // A short spin bridges the gap between two threads that both have a core; then others may have ours.
    static void relax(int spins) {
        if (spins < 4000)
            _mm_pause();
        else
            std::this_thread::yield();
    }
    void serve(int thread);
    void close();

    int size_;
    std::vector<Seat> seats_;
    std::unique_ptr<Phase[]> phases_;
    int num_phases_ = 0;
    const std::function<void(int)>* work_ = nullptr;
    alignas(64) std::atomic<uint32_t> epoch_{0};
    alignas(64) std::atomic<int> inside_{0};
    std::atomic<bool> open_{false}, closing_{false};
    std::vector<std::thread> threads_;
};

}  // namespace baton
