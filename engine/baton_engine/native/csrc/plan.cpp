// From a step's spans to tasks and work space. Owns no arithmetic on activations.
#include "plan.h"

#include <algorithm>

namespace baton {
namespace {

void read_spans(Model& model, const Step& step) {
    Plan& plan = model.plan;
    plan.spans.clear();
    int row = 0;
    for (int i = 0; i < step.num_spans; ++i) {
        plan.spans.push_back({row, step.span_starts[i], step.span_lengths[i], step.blocks + step.table_starts[i]});
        row += step.span_lengths[i];
    }
}

void plan_stores(Plan& plan) {
    plan.page_rows.clear();
    for (int index = 0; index < static_cast<int>(plan.spans.size()); ++index) {
        const Span& span = plan.spans[index];
        for (int at = span.start; at < span.end();) {
            const int count = std::min(span.end(), (at / kPageTokens + 1) * kPageTokens) - at;
            plan.page_rows.push_back({index, at, count});
            at += count;
        }
    }
}

// Longest first: the last tasks of the phase are then the short ones, and the threads end together.
void plan_attention(const Model& model, Plan& plan) {
    const int kv_heads = model.shape.num_kv_heads;
    plan.tasks.clear();
    plan.partial_starts.clear();
    plan.num_partials = 0;
    for (int index = 0; index < static_cast<int>(plan.spans.size()); ++index) {
        const Span& span = plan.spans[index];
        const bool decode = span.length == 1;
        const int unit = decode ? kPartitionTokens : model.query_block;
        const int first = decode ? 0 : span.start / unit, end = (span.end() + unit - 1) / unit;
        for (int part = first; part < end; ++part)
            for (int head = 0; head < kv_heads; ++head) {
                const int tokens = std::min(span.end() - part * unit, unit);
                plan.tasks.push_back({index, head, part, decode ? tokens : tokens * (part + 1) * unit});
            }
        plan.partial_starts.push_back(plan.num_partials);
        if (decode) plan.num_partials += end * kv_heads;
    }
    std::stable_sort(plan.tasks.begin(), plan.tasks.end(),
                     [](const AttentionTask& a, const AttentionTask& b) { return a.cost > b.cost; });
}

void make_room(Model& model, const Step& step) {
    const size_t tokens = step.num_tokens;
    model.hidden.grow(tokens * model.hidden_stride);
    model.qkv.grow(tokens * model.qkv_stride());
    model.rows.grow(std::max(tokens, static_cast<size_t>(step.num_samples)) * model.widest_row_bytes());
    model.q.grow(tokens * model.q_size);
    model.attended.grow(tokens * model.q_size);
    model.inner.grow(tokens * model.inner_stride);
    model.partials.grow(static_cast<size_t>(model.plan.num_partials) * model.group() * (model.shape.head_dim + 16));
    const size_t counters = static_cast<size_t>(step.num_spans) * model.shape.num_kv_heads;
    if (model.partials_done.size() < counters) model.partials_done = std::vector<std::atomic<int>>(2 * counters);
}

}  // namespace

void plan_step(Model& model, const Step& step) {
    model.plan.step = &step;
    read_spans(model, step);
    plan_stores(model.plan);
    plan_attention(model, model.plan);
    make_room(model, step);
}

}  // namespace baton
