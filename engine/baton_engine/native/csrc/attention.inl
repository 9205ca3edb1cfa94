// Attention over pages of K and V. Included once for each instruction set.
//
// The context is cut at multiples of 256 positions. Each partition's softmax and sums are computed on their own
// and merged in order, by the same arithmetic for a decode (where other threads take other partitions) and for
// a prompt chunk: a token's result depends on nothing but its own context.
//
// Element: see store.inl. Of bytes the products are those of the bytes; K's scale then multiplies the score, V's the
// softmax weight, once each.
//
// Where a layer has a window, a row sees [num_hidden, num_visible) of a partition; what is not seen has the weight 0.
// A row that sees nothing of a partition has the total 0 there, and that partition is no part of its result.

constexpr float kLog2E = 1.44269504088896341f;

// 2^x, relative error under 2e-7; arguments outside ±126 are clamped. A NaN stays one: it is the second operand.
inline Lanes exp2(Lanes x) {
    x = min(all(126.f), max(all(-126.f), x));
    const Lanes n = round_to_integer(x);
    const Lanes r = sub(x, n);
    Lanes y = all(1.54035303933816e-4f);
    y = fma(y, r, all(1.33335581464284e-3f));
    y = fma(y, r, all(9.61812910762848e-3f));
    y = fma(y, r, all(5.55041086648216e-2f));
    y = fma(y, r, all(2.40226506959101e-1f));
    y = fma(y, r, all(6.93147180559945e-1f));
    y = fma(y, r, all(1.f));
    return times_power_of_two(y, n);
}

// One thread's work space for a block of query rows (a row: one query head of one token): Model::attention_space.
struct AttentionSpace {
    float *scores, *part, *sum, *part_max, *part_total, *max, *total;
    uint16_t *weights, *queries, *pages;
    int *num_hidden, *num_visible;

    AttentionSpace(float* at, uint16_t* wide_pages, int rows, int dim) : pages(wide_pages) {
        auto take = [&](size_t count) { return std::exchange(at, at + count); };
        scores = take(static_cast<size_t>(rows) * kPartitionTokens);
        weights = reinterpret_cast<uint16_t*>(take(static_cast<size_t>(rows) * kPartitionTokens / 2));
        part = take(static_cast<size_t>(rows) * dim);
        sum = take(static_cast<size_t>(rows) * dim);
        queries = reinterpret_cast<uint16_t*>(take(static_cast<size_t>(rows) * dim / 2));
        part_max = take(rows);
        part_total = take(rows);
        max = take(rows);
        total = take(rows);
        num_hidden = reinterpret_cast<int*>(take(rows));
        num_visible = reinterpret_cast<int*>(take(rows));
    }
};

// The scales of a partition's pages; null where K and V have none.
struct Scales {
    const float* k[kPartitionPages];
    const float* v[kPartitionPages];
};

template <class Element>
struct Pages {
    const Element* k[kPartitionPages + 4];
    const Element* v[kPartitionPages + 4];
    int count;

    // With the last page: tiles take pages by four and read what nobody will use.
    void fill_up() {
        std::fill(k + count, k + kPartitionPages + 4, k[count - 1]);
        std::fill(v + count, v + kPartitionPages + 4, v[count - 1]);
    }
};

template <class Element>
void find_pages(Model& model, int layer, const Span& span, int kv_head, int partition, int end, Pages<Element>& pages,
                Scales& scales) {
    const int first = partition * kPartitionPages;
    pages.count = std::min(kPartitionPages, (end + kPageTokens - 1) / kPageTokens - first);
    for (int i = 0; i < pages.count; ++i) {
        const Page<Element> page(model.page(layer, span, first + i, kv_head), model.page_size());
        pages.k[i] = page.k;
        pages.v[i] = page.v;
        scales.k[i] = page.k_scales;
        scales.v[i] = page.v_scales;
    }
    pages.fill_up();
}

// The same pages in bfloat16, exactly, where many rows make it worth while: each byte is then widened once.
inline void widen(const Pages<int8_t>& from, int page_size, uint16_t* room, Pages<uint16_t>& to) {
    to.count = from.count;
    for (int i = 0; i < from.count; ++i) {
        to.k[i] = std::exchange(room, room + page_size);
        to.v[i] = std::exchange(room, room + page_size);
        for (int at = 0; at < page_size; at += 32) {
            store_pairs(const_cast<uint16_t*>(to.k[i]) + at, load_pairs(from.k[i] + at));
            store_pairs(const_cast<uint16_t*>(to.v[i]) + at, load_pairs(from.v[i] + at));
        }
    }
    to.fill_up();
}

template <class Element, int Rows>
void score_tile(const uint16_t* q, int dim, const Pages<Element>& pages, float* scores) {
    constexpr int wide = panels_for(Rows);
    for (int page = 0; page < pages.count; page += wide) {
        const Element* panels[wide];
        for (int p = 0; p < wide; ++p) panels[p] = pages.k[page + p];
        const bool last = page + wide >= pages.count;
        Tile<Rows, wide> tile;
        tile.clear();
        tile.add_dots(q, dim, panels, 2 * kPageTokens, dim / 2, last ? pages.v : pages.k + page + wide);
        tile.put(scores + page * kPageTokens, kPartitionTokens, kPageTokens);
    }
}

template <class Element, int Rows, int Panels>
void gather_tile(const uint16_t* weights, int dim, const Pages<Element>& pages, int first_dim, float* out) {
    Tile<Rows, Panels> tile;
    tile.clear();
    for (int page = 0; page < pages.count; ++page) {
        const Element* panels[Panels];
        const Element* ahead[Panels];
        for (int p = 0; p < Panels; ++p) {
            panels[p] = pages.v[page] + (first_dim + 16 * p) * 2;
            ahead[p] = pages.v[page + 4] + (first_dim + 16 * p) * 2;
        }
        tile.add_dots(weights + page * kPageTokens, kPartitionTokens, panels, 2 * dim, kPageTokens / 2, ahead);
    }
    tile.put(out + first_dim, dim, 16);
}

template <class Element, int Rows>
void gather_tiles_of(const uint16_t* weights, int dim, const Pages<Element>& pages, float* out) {
    constexpr int wide = panels_for(Rows);
    int at = 0;
    for (; at + 16 * wide <= dim; at += 16 * wide) gather_tile<Element, Rows, wide>(weights, dim, pages, at, out);
    for (; at < dim; at += 32) gather_tile<Element, Rows, 2>(weights, dim, pages, at, out);
}

template <class Element>
using AttentionTile = void (*)(const uint16_t*, int, const Pages<Element>&, float*);

template <class Element, int... Rows>
constexpr std::array<AttentionTile<Element>, sizeof...(Rows)> score_tiles(std::integer_sequence<int, Rows...>) {
    return {score_tile<Element, Rows + 1>...};
}
template <class Element, int... Rows>
constexpr std::array<AttentionTile<Element>, sizeof...(Rows)> gather_tiles(std::integer_sequence<int, Rows...>) {
    return {gather_tiles_of<Element, Rows + 1>...};
}
template <class Element>
constexpr auto kScoreTiles = score_tiles<Element>(std::make_integer_sequence<int, kTileRows>());
template <class Element>
constexpr auto kGatherTiles = gather_tiles<Element>(std::make_integer_sequence<int, kTileRows>());

// scores (those from num_hidden to num_visible count) → weights in bfloat16, zero for the others; their maximum and
// their sum. Never inlined: two copies might round differently, and decodes and prompts must not.
template <bool scaled>
[[gnu::noinline]] void soften(float* scores, int num_hidden, int num_visible, int num_pages, const Scales& scales,
                              float scale, uint16_t* weights, float& max_out, float& total_out) {
    if constexpr (scaled)
        for (int page = 0; page < num_pages; ++page) {
            float* const at = scores + page * kPageTokens;
            store(at, mul(load(at), load(scales.k[page])));
        }
    constexpr float nothing = -std::numeric_limits<float>::infinity();
    const int first = num_hidden / kPageTokens, lead = num_hidden % kPageTokens;
    const int full = num_visible / kPageTokens, tail = num_visible % kPageTokens;
    auto seen = [&](int page, Lanes x, float other) {
        if (page == first && lead) x = drop_first(x, lead, other);
        return page == full ? keep_first(x, tail, other) : x;
    };
    Lanes most = all(nothing);
    for (int page = first; page * kPageTokens < num_visible; ++page)
        most = max(most, seen(page, load(scores + page * kPageTokens), nothing));
    max_out = largest(most);
    const Lanes offset = all(max_out), factor = all(scale * kLog2E);
    Lanes total = zero();
    for (int page = 0; page < num_pages; ++page) {
        Lanes weight = zero();
        if (page >= first && page * kPageTokens < num_visible) {
            weight = seen(page, exp2(mul(sub(load(scores + page * kPageTokens), offset), factor)), 0.f);
            total = add(total, weight);
            if constexpr (scaled) weight = mul(weight, load(scales.v[page]));
        }
        store_bf16(weights + page * kPageTokens, weight);
    }
    total_out = sum(total);
}

// Attention of `rows` query rows to one partition; part, part_max and part_total of the work space get it.
template <bool scaled, class Element>
void attend_partition(const uint16_t* q, int rows, int dim, float scale, const Pages<Element>& pages, const Scales& scales,
                      AttentionSpace& space) {
    const int height = strip_rows(rows);
    for (int row = 0; row < rows; row += height) {
        const int count = std::min(height, rows - row);
        kScoreTiles<Element>[count - 1](q + static_cast<size_t>(row) * dim, dim, pages, space.scores + row * kPartitionTokens);
        for (int r = row; r < row + count; ++r)
            soften<scaled>(space.scores + r * kPartitionTokens, space.num_hidden[r], space.num_visible[r], pages.count, scales,
                           scale, space.weights + r * kPartitionTokens, space.part_max[r], space.part_total[r]);
        kGatherTiles<Element>[count - 1](space.weights + row * kPartitionTokens, dim, pages, space.part + static_cast<size_t>(row) * dim);
    }
}

// The running result of a row takes in its next partition. Both totals are at least 1 where anything was seen: the
// largest score weighs 1.
inline void merge(float* sum, float& max, float& total, const float* part, float part_max, float part_total, int dim,
                  float scale) {
    if (part_total == 0) return;
    if (total == 0) {
        std::copy_n(part, dim, sum);
        max = part_max;
        total = part_total;
        return;
    }
    const float both = part_max > max ? part_max : max;
    alignas(64) float factors[16] = {(max - both) * scale * kLog2E, (part_max - both) * scale * kLog2E};
    store(factors, exp2(load(factors)));
    const Lanes old_factor = all(factors[0]), new_factor = all(factors[1]);
    for (int d = 0; d < dim; d += 16) store(sum + d, fma(load(part + d), new_factor, mul(load(sum + d), old_factor)));
    total = total * factors[0] + part_total * factors[1];
    max = both;
}

inline void put_attended(Model& model, int row, int head, const float* sum, float total) {
    const int dim = model.shape.head_dim;
    uint16_t* out = model.attended.data() + static_cast<size_t>(row) * model.q_size + head * dim;
    const Lanes divisor = all(total);
    for (int d = 0; d < dim; d += 16) store_bf16(out + d, div(load(sum + d), divisor));
}

inline int num_partitions(const Span& span) { return (span.end() + kPartitionTokens - 1) / kPartitionTokens; }

// The first position that the token at `at` sees.
inline int first_seen(const Layer& layer, int at) { return layer.window ? std::max(0, at + 1 - layer.window) : 0; }

// A decode: one partition is this task's; whoever finishes the last one of a head merges them all.
template <class Element>
void attend_decode(Model& model, int layer, const AttentionTask& task, AttentionSpace& space) {
    const Span& span = model.plan.spans[task.span];
    const int dim = model.shape.head_dim, group = model.group(), count = num_partitions(span);
    const float scale = 1.f / std::sqrt(static_cast<float>(dim));
    const int visible = std::min(kPartitionTokens, span.end() - task.part * kPartitionTokens);
    const int hidden = std::max(0, first_seen(model.layers[layer], span.start) - task.part * kPartitionTokens);
    if (hidden < visible) {
        Pages<Element> pages;
        Scales scales;
        find_pages(model, layer, span, task.kv_head, task.part, span.end(), pages, scales);
        std::fill_n(space.num_hidden, group, hidden);
        std::fill_n(space.num_visible, group, visible);
        const uint16_t* q = model.q.data() + static_cast<size_t>(span.first_row) * model.q_size + task.kv_head * group * dim;
        attend_partition<sizeof(Element) == 1>(q, group, dim, scale, pages, scales, space);
    } else {
        std::fill_n(space.part_total, group, 0.f);
    }
    if (count == 1) {
        for (int g = 0; g < group; ++g)
            put_attended(model, span.first_row, task.kv_head * group + g, space.part + g * dim, space.part_total[g]);
        return;
    }
    const size_t record = dim + 16;
    float* partials = model.partials.data() + (model.plan.partial_starts[task.span] + task.kv_head * count) * group * record;
    for (int g = 0; g < group; ++g) {
        float* mine = partials + (task.part * group + g) * record;
        std::copy_n(space.part + g * dim, dim, mine);
        mine[dim] = space.part_max[g];
        mine[dim + 1] = space.part_total[g];
    }
    std::atomic<int>& done = model.partials_done[task.span * model.shape.num_kv_heads + task.kv_head];
    if (done.fetch_add(1, std::memory_order_acq_rel) + 1 < count) return;
    done.store(0, std::memory_order_relaxed);  // for the next layer
    for (int g = 0; g < group; ++g) {
        space.total[0] = 0;
        for (int part = 0; part < count; ++part) {
            const float* one = partials + (part * group + g) * record;
            merge(space.sum, space.max[0], space.total[0], one, one[dim], one[dim + 1], dim, scale);
        }
        put_attended(model, span.first_row, task.kv_head * group + g, space.sum, space.total[0]);
    }
}

template <class Element>
void find_wide_pages(Model& model, int layer, const Span& span, int kv_head, int partition, int end, AttentionSpace& space,
                     Pages<uint16_t>& pages, Scales& scales) {
    if constexpr (sizeof(Element) == 1) {
        Pages<int8_t> kept;
        find_pages(model, layer, span, kv_head, partition, end, kept, scales);
        widen(kept, static_cast<int>(model.page_size()), space.pages, pages);
    } else {
        find_pages(model, layer, span, kv_head, partition, end, pages, scales);
    }
}

// A block of a prompt chunk's query tokens, all query heads of one KV head, over all their partitions.
template <class Element>
void attend_prompt(Model& model, int layer, const AttentionTask& task, AttentionSpace& space) {
    const Span& span = model.plan.spans[task.span];
    const int dim = model.shape.head_dim, group = model.group();
    const float scale = 1.f / std::sqrt(static_cast<float>(dim));
    const int first = std::max(span.start, task.part * model.query_block);
    const int end = std::min(span.end(), (task.part + 1) * model.query_block);
    const int rows = (end - first) * group;
    const int first_row = span.first_row + first - span.start;
    for (int at = first; at < end; ++at) {
        const uint16_t* q = model.q.data() + static_cast<size_t>(first_row + at - first) * model.q_size;
        std::copy_n(q + task.kv_head * group * dim, group * dim, space.queries + static_cast<size_t>(at - first) * group * dim);
    }
    std::fill_n(space.total, rows, 0.f);
    const Layer& weights = model.layers[layer];
    for (int partition = first_seen(weights, first) / kPartitionTokens; partition * kPartitionTokens < end; ++partition) {
        Pages<uint16_t> pages;
        Scales scales;
        find_wide_pages<Element>(model, layer, span, task.kv_head, partition, end, space, pages, scales);
        for (int row = 0; row < rows; ++row) {
            const int at = first + row / group, start = partition * kPartitionTokens;
            space.num_hidden[row] = std::clamp(first_seen(weights, at) - start, 0, kPartitionTokens);
            space.num_visible[row] = std::min(kPartitionTokens, at + 1 - start);
        }
        attend_partition<sizeof(Element) == 1>(space.queries, rows, dim, scale, pages, scales, space);
        for (int row = 0; row < rows; ++row)
            merge(space.sum + static_cast<size_t>(row) * dim, space.max[row], space.total[row],
                  space.part + static_cast<size_t>(row) * dim, space.part_max[row], space.part_total[row], dim, scale);
    }
    for (int row = 0; row < rows; ++row)
        put_attended(model, first_row + row / group, task.kv_head * group + row % group,
                     space.sum + static_cast<size_t>(row) * dim, space.total[row]);
}
