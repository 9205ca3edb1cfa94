#include "team.h"

namespace baton {

Team::Team(int num_threads) : size_(num_threads < 1 ? 1 : num_threads), seats_(size_) {
    try {
        for (int thread = 1; thread < size_; ++thread) threads_.emplace_back([this, thread] { serve(thread); });
    } catch (...) {
        close();
        throw;
    }
}

Team::~Team() { close(); }

void Team::close() {
    closing_.store(true);
    epoch_.fetch_add(1);
    epoch_.notify_all();
    for (auto& thread : threads_) thread.join();
}

void Team::run(int num_phases, const std::function<void(int)>& work) {
    if (num_phases > num_phases_) {
        phases_ = std::make_unique<Phase[]>(num_phases);
        num_phases_ = num_phases;
    }
    for (int index = 0; index < num_phases; ++index) {
        phases_[index].taken.store(0, std::memory_order_relaxed);
        phases_[index].done.store(0, std::memory_order_relaxed);
    }
    work_ = &work;
    seats_[0].next_phase = 0;
    open_.store(true);
    epoch_.fetch_add(1);
    epoch_.notify_all();
    work(0);
    // A thread still asleep finds the door closed; one inside must leave before the counters are used again.
    open_.store(false);
    for (int spins = 0; inside_.load() > 0; ++spins) relax(spins);
}

void Team::serve(int thread) {
    uint32_t seen = 0;
    for (;;) {
        for (int spins = 0; spins < 1000 && epoch_.load(std::memory_order_acquire) == seen; ++spins) _mm_pause();
        epoch_.wait(seen, std::memory_order_acquire);
        seen = epoch_.load(std::memory_order_acquire);
        if (closing_.load()) return;
        inside_.fetch_add(1);  // before the look at open_: `run` closes first and counts afterwards
        if (open_.load()) {
            seats_[thread].next_phase = 0;
            (*work_)(thread);
        }
        inside_.fetch_sub(1);
    }
}

}  // namespace baton
