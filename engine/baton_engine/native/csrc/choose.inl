// One token from a row of logits, by the rules of sampler.py (3 to 8). Included once for each instruction set.
//
// Tokens are seen by their distance to the row's best, (best - logit) / temperature ≥ 0: the most likely have the
// smallest. The cuts need no sorted vocabulary: tokens within reach of the best are collected, in order of their
// ids, and reach grows until it covers what can be kept. Sums are in double, so no share is rounded off.

namespace {

constexpr int kRun = 64;  // tokens whose weights are summed in float32 lanes
constexpr float kNoWeight = 87.f;  // e^-87 is float32's end: beyond it a weight is 0
constexpr float kFirstReach = 8.f;
constexpr int kRowsAlone = 2;  // up to here one thread is done before another is awake

// Calls use(first token, 16 values) over the row; what is beyond its end is -inf.
template <class Use>
void over_row(const float* row, int size, Use&& use) {
    const int whole = size / 16 * 16;
    for (int at = 0; at < whole; at += 16) use(at, load(row + at));
    if (whole == size) return;
    alignas(64) float rest[16];
    std::fill_n(rest, 16, -std::numeric_limits<float>::infinity());
    std::copy_n(row + whole, size - whole, rest);
    use(whole, load(rest));
}

// The row's maximum; NaN if it holds one.
inline float best_of(const float* row, int size) {
    Lanes best = all(-std::numeric_limits<float>::infinity());
    bool nan = false;
    over_row(row, size, [&](int, Lanes x) {
        best = max(best, x);
        nan |= has_nan(x);
    });
    return nan ? std::numeric_limits<float>::quiet_NaN() : largest(best);
}

inline int first_equal(const float* row, int size, float value) {
    int at = 0;
    for (; at + kRun <= size; at += kRun) {
        const Lanes low = max(load(row + at), load(row + at + 16)), high = max(load(row + at + 32), load(row + at + 48));
        if (largest(max(low, high)) == value) break;
    }
    while (row[at] != value) ++at;
    return at;
}

inline uint64_t rank_of(float distance, int id) {
    uint32_t bits;
    std::memcpy(&bits, &distance, 4);  // distances are not negative: their bits are in their order
    return static_cast<uint64_t>(bits) << 32 | static_cast<uint32_t>(id);
}

// One row's choice. `space` holds the row's distances and weights, its runs' sums and the tokens within reach.
struct Choice {
    const Draw& draw;
    const int size;
    ChoiceSpace& space;
    double total = 0;

    void weigh(const float* row, float best) {
        const float temperature = std::max(draw.temperature, 1e-30f);
        const Lanes top = all(best), divisor = all(temperature), tiny = all(std::ldexp(1.f, -126));
        const int padded = round_up(size, kRun);
        space.distances.resize(padded);
        space.weights.resize(padded);
        space.sums.resize(padded / kRun);
        for (int at = round_up(size, 16); at < padded; at += 16) {
            store(space.distances.data() + at, all(std::numeric_limits<float>::infinity()));
            store(space.weights.data() + at, zero());
        }
        over_row(row, size, [&](int at, Lanes x) {
            const Lanes distance = div(add(sub(top, x), zero()), divisor);  // + 0: no -0 among the ranks
            store(space.distances.data() + at, distance);
            // exp2 ends at 2^-126; what is there must weigh nothing, and 2^-126 less changes nothing else.
            const Lanes power = exp2(mul(min(distance, all(kNoWeight + 1)), all(-kLog2E)));
            store(space.weights.data() + at, max(zero(), sub(power, tiny)));
        });
        for (int run = 0; run < padded / kRun; ++run) {
            const float* w = space.weights.data() + run * kRun;
            space.sums[run] = sum(add(add(load(w), load(w + 16)), add(load(w + 32), load(w + 48))));
            total += space.sums[run];
        }
    }

    double weight(uint64_t rank) const { return space.weights[static_cast<uint32_t>(rank)]; }

    double weight_of(size_t first, size_t end) const {
        double found = 0;
        for (size_t at = first; at < end; ++at) found += weight(space.ranks[at]);
        return found;
    }

    void collect(float reach) {
        space.ranks.clear();
        for (int run = 0; run < round_up(size, kRun); run += kRun) {
            const float* d = space.distances.data() + run;
            const Lanes least = min(min(load(d), load(d + 16)), min(load(d + 32), load(d + 48)));
            if (largest(sub(zero(), least)) < -reach) continue;
            for (int at = run; at < std::min(size, run + kRun); ++at)
                if (space.distances[at] <= reach) space.ranks.push_back(rank_of(space.distances[at], at));
        }
    }

    // All tokens that the cuts could keep, in order of their ids.
    void collect_enough(bool by_k, bool by_p) {
        const float infinity = std::numeric_limits<float>::infinity();
        const float limit = draw.min_p > 0 ? -std::log(draw.min_p) : infinity;
        for (float reach = draw.min_p > 0 ? limit : kFirstReach;; reach = reach < kNoWeight ? reach * 2 : infinity) {
            collect(reach);
            if (reach >= limit) return;
            if (by_k ? space.ranks.size() >= static_cast<size_t>(draw.top_k)
                     : by_p && weight_of(0, space.ranks.size()) >= draw.top_p * total)
                return;
        }
    }

    // How many of space.ranks, put so that the kept ones are its first.
    size_t cut(bool by_k, bool by_p) {
        auto& ranks = space.ranks;
        const auto begin = ranks.begin();
        size_t kept = ranks.size();
        if (by_k && static_cast<size_t>(draw.top_k) < kept) {
            kept = draw.top_k;
            std::nth_element(begin, begin + kept, ranks.end());
        }
        if (!by_p) return kept;
        const double whole = by_k || draw.min_p > 0 ? weight_of(0, kept) : total;
        const double goal = draw.top_p * whole;
        size_t low = 0, high = kept;  // the run ends in (low, high]
        double before = 0;            // the weight of the `low` most likely
        while (high - low > 1) {
            const size_t middle = (low + high) / 2;
            std::nth_element(begin + low, begin + middle, begin + high);
            const double more = weight_of(low, middle);
            if (before + more >= goal) {
                high = middle;
            } else {
                before += more;
                low = middle;
            }
        }
        return high;
    }

    int among_kept() {
        const bool by_k = draw.top_k > 0 && draw.top_k < size, by_p = draw.top_p < 1;
        collect_enough(by_k, by_p);
        const size_t kept = cut(by_k, by_p);
        auto& ranks = space.ranks;
        std::sort(ranks.begin(), ranks.begin() + kept,
                  [](uint64_t a, uint64_t b) { return static_cast<uint32_t>(a) < static_cast<uint32_t>(b); });
        const double target = draw.point * weight_of(0, kept);
        double reached = 0;
        int last = static_cast<int>(static_cast<uint32_t>(ranks[0]));
        for (size_t at = 0; at < kept; ++at) {
            if (weight(ranks[at]) == 0) continue;
            last = static_cast<int>(static_cast<uint32_t>(ranks[at]));
            reached += weight(ranks[at]);
            if (reached > target) break;
        }
        return last;
    }

    int among_all() {
        const double target = draw.point * total;
        double reached = 0;
        int last = 0;
        for (size_t run = 0; run < space.sums.size(); ++run) {
            if (reached + space.sums[run] <= target && run + 1 < space.sums.size()) {
                reached += space.sums[run];
                continue;
            }
            double inside = reached;
            for (int at = static_cast<int>(run) * kRun; at < std::min<int>(size, (run + 1) * kRun); ++at) {
                if (space.weights[at] == 0) continue;
                last = at;
                inside += space.weights[at];
                if (inside > target) return at;
            }
            reached += space.sums[run];  // rounding put the point behind the run's last token
        }
        return last;
    }
};

// -1: the row holds no number to choose by.
inline int64_t choose_one(const float* row, int size, const Draw& draw, ChoiceSpace& space) {
    const float best = best_of(row, size);
    if (!std::isfinite(best)) return -1;
    if (draw.greedy) return first_equal(row, size, best);
    Choice choice{draw, size, space};
    choice.weigh(row, best);
    const bool cuts = draw.min_p > 0 || draw.top_p < 1 || (draw.top_k > 0 && draw.top_k < size);
    return cuts ? choice.among_kept() : choice.among_all();
}

}  // namespace

void choose(Model& model, const float* logits, int64_t row_stride, int num_rows, int size, const Draw* draws, int64_t* ids) {
    auto one = [&](int thread, int row) {
        ids[row] = choose_one(logits + row * row_stride, size, draws[row], model.thread_choice[thread]);
    };
    if (num_rows <= kRowsAlone) {
        for (int row = 0; row < num_rows; ++row) one(0, row);
        return;
    }
    model.team.run(1, [&](int thread) { model.team.phase(thread, num_rows, [&](int row) { one(thread, row); }); });
}
