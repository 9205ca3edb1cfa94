// What crosses the border to Python, and what a loaded model holds. Owns no arithmetic.
// The two structs of the border are mirrored by ctypes in library.py: same fields, same order.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "memory.h"
#include "team.h"

namespace baton {

constexpr int kPageTokens = 16;        // tokens in a page of K or V: one vector of float lanes
constexpr int kGroupColumns = 32;      // output columns that a packed weight keeps together: two panels of 16
constexpr int kPartitionTokens = 256;  // attention sums each such run of tokens on its own, then merges in order
constexpr int kPartitionPages = kPartitionTokens / kPageTokens;

struct Shape {
    int32_t vocab_size, hidden_size, inner_size, num_layers, num_heads, num_kv_heads, head_dim, max_positions;
    int32_t block_tokens, num_blocks, num_threads, isa;
    float norm_eps;
};

struct Step {
    int32_t num_tokens, num_spans, num_samples;
    const int64_t* token_ids;     // num_tokens
    const int32_t* span_starts;   // num_spans: position of the span's first token
    const int32_t* span_lengths;  // num_spans
    const int32_t* table_starts;  // num_spans + 1: where in `blocks` a span's block ids begin
    const int32_t* blocks;
    const int64_t* sample_rows;   // num_samples
    float* logits;                // num_samples × padded vocabulary
};

inline int round_up(int value, int unit) { return (value + unit - 1) / unit * unit; }

// A weight (n × k) in groups of 32 columns: [group][k / 2][32 columns][2], the two of a pair neighbours in k.
// int8 weights keep the same order, one scale a column; they become bfloat16 (exactly) just before use.
struct Matrix {
    int num_columns = 0;  // a multiple of 32; columns beyond the real ones are zero
    int num_pairs = 0;    // half of k, rounded up
    HugeArray<uint16_t> bf16;
    HugeArray<int8_t> int8;
    std::vector<float> scales;
    std::vector<float> bias;  // empty: none

    int num_groups() const { return num_columns / kGroupColumns; }
    size_t group_size() const { return static_cast<size_t>(num_pairs) * 2 * kGroupColumns; }
};

struct Layer {
    std::vector<float> input_norm, mlp_norm;
    Matrix qkv, output, gate_up, down;
};

struct Span {
    int first_row, start, length;
    const int32_t* blocks;
    int end() const { return start + length; }
};

// One unit of attention: one KV head of one span, for one partition of the context (a decode) or for one
// block of query tokens (a prompt chunk).
struct AttentionTask {
    int span, kv_head, part, cost;
};

// Rows of one page of one span: written by one thread, since the first token of a page clears it.
struct PageRows {
    int span, first, count;
};

struct Plan {
    const Step* step = nullptr;
    std::vector<Span> spans;
    std::vector<PageRows> page_rows;
    std::vector<AttentionTask> tasks;
    std::vector<int> partial_starts;  // per span: its first slot among the partial results
    int num_partials = 0;
};

struct Model {
    Shape shape;
    int hidden_stride, inner_stride, q_size, kv_size, query_block;
    std::vector<Layer> layers;
    std::vector<float> norm;
    Matrix head;
    HugeArray<uint16_t> embedding;
    std::vector<float> cos, sin;  // max_positions × head_dim / 2
    HugeArray<uint16_t> kv;       // [layer][page][kv head][K page | V page]
    Team team;

    // Work space of a step: grown when a step is larger than all before.
    HugeArray<float> hidden, qkv, partials;
    HugeArray<uint16_t> normed, q, attended, inner;
    std::vector<std::atomic<int>> partials_done;
    std::vector<HugeArray<uint16_t>> thread_normed, thread_weights;
    std::vector<HugeArray<float>> thread_attention;
    Plan plan;

    explicit Model(const Shape& s)
        : shape(s),
          hidden_stride(round_up(s.hidden_size, kGroupColumns)),
          inner_stride(round_up(s.inner_size, kGroupColumns)),
          q_size(s.num_heads * s.head_dim),
          kv_size(s.num_kv_heads * s.head_dim),
          query_block(s.num_heads / s.num_kv_heads >= 3 ? 16 : 32),
          layers(s.num_layers),
          team(s.num_threads) {}

    int group() const { return shape.num_heads / shape.num_kv_heads; }
    size_t qkv_stride() const { return q_size + 2 * kv_size; }
    size_t page_size() const { return static_cast<size_t>(kPageTokens) * shape.head_dim; }

    // K page: [head_dim / 2][16 tokens][2]; V page: [16 tokens / 2][head_dim][2].
    uint16_t* k_page(int layer, const Span& span, int page, int kv_head) {
        const int pages_per_block = shape.block_tokens / kPageTokens;
        const int64_t at = static_cast<int64_t>(span.blocks[page / pages_per_block]) * pages_per_block +
                           page % pages_per_block;
        const int64_t pages = static_cast<int64_t>(shape.num_blocks) * pages_per_block;
        return kv.data() + ((layer * pages + at) * shape.num_kv_heads + kv_head) * 2 * page_size();
    }
};

// One set of kernels for each instruction set; `run` computes a whole step.
namespace avx512 { void run(Model& model); }
namespace avx2 { void run(Model& model); }

}  // namespace baton
