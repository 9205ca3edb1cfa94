// What crosses the border to Python, and what a loaded model holds. Owns no arithmetic.
// The structs of the border are mirrored by ctypes in library.py: same fields, same order.
#pragma once

#include <algorithm>
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
constexpr int kBlockDepth = 32;       // neighbours in k that share a scale
constexpr int kPartitionTokens = 256;  // attention sums each such run of tokens on its own, then merges in order
constexpr int kPartitionPages = kPartitionTokens / kPageTokens;

struct Shape {
    int32_t vocab_size, hidden_size, inner_size, num_layers, num_heads, num_kv_heads, head_dim, max_positions;
    int32_t block_tokens, num_blocks, num_threads, isa, kv_int8;
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

// How one row's token is chosen: sampler.py's rules 3 to 8.
struct Draw {
    float temperature, min_p;
    int32_t top_k, greedy;
    double top_p, point;  // point: where in [0, 1) on the cumulative distribution
};

// One thread's work space for a choice.
struct ChoiceSpace {
    std::vector<float> distances, weights;
    std::vector<double> sums;
    std::vector<uint64_t> ranks;
};

inline int round_up(int value, int unit) { return (value + unit - 1) / unit * unit; }

enum class Kind : int32_t { kBf16 = 0, kInt8 = 1, kInt4 = 2 };

// A weight (n × k) in groups of 32 columns.
// bfloat16: [group][k / 2][32 columns][2], the two of a pair neighbours in k.
// int8, int4: [group][k / 32] blocks, each what 32 columns × 32 k need, in the order in which it is read:
//   int8: [8 quads of k][32 columns][4] bytes, code + 128; then 32 scales.    weight = scale × (byte − 128)
//   int4: [4][32 columns][4] bytes, quad j low and quad j + 4 high; then 32 scales, 32 minima.
//                                                                            weight = scale × code + minimum
// Scales and minima are float16.
struct Matrix {
    Kind kind = Kind::kBf16;
    int num_columns = 0;  // a multiple of 32; columns beyond the real ones are zero
    int num_pairs = 0;    // half of k, rounded up
    HugeArray<uint16_t> bf16;
    HugeArray<uint8_t> blocks;
    std::vector<float> bias;  // empty: none

    int num_groups() const { return num_columns / kGroupColumns; }
    int num_blocks() const { return (2 * num_pairs + kBlockDepth - 1) / kBlockDepth; }
    size_t code_bytes() const { return kBlockDepth * kGroupColumns / (kind == Kind::kInt4 ? 2 : 1); }
    size_t block_bytes() const { return code_bytes() + (kind == Kind::kInt4 ? 4 : 2) * kGroupColumns; }
    size_t group_bytes() const {
        if (kind == Kind::kBf16) return static_cast<size_t>(num_pairs) * 4 * kGroupColumns;
        return num_blocks() * block_bytes();
    }
    bool quantised() const { return kind != Kind::kBf16; }
    // One row of activations as this matrix wants it: bfloat16, or bytes and then a Note for each block.
    size_t row_bytes() const {
        return quantised() ? round_up(num_blocks() * (kBlockDepth + 8), 64) : round_up(4 * num_pairs, 64);
    }
};

// What a block of 32 quantised activations carries beside its bytes. int8 weights take `start`, where their
// sums begin (−128 × the sum of the bytes undoes the offset of the weights); int4 weights take `sum`.
struct Note {
    float scale;
    union {
        int32_t start;
        float sum;
    };
};

struct Layer {
    std::vector<float> input_norm, mlp_norm;
    std::vector<float> query_norm, key_norm;  // of each head; empty: none
    int window = 0;                           // a token sees itself and the window - 1 before it; 0: all
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
    Matrix own_embedding;           // unused when tied: a row of the embedding is a column of the head
    bool tied = false;
    std::vector<float> cos, sin;  // max_positions × head_dim / 2
    HugeArray<uint8_t> kv;        // [layer][page][kv head][K page | V page | int8: their scales]
    Team team;

    // Work space of a step: grown when a step is larger than all before.
    HugeArray<float> hidden, qkv, partials;
    HugeArray<uint16_t> q, attended, inner;
    HugeArray<uint8_t> rows;  // what the next matrix multiplies, when that is not one of the above
    std::vector<std::atomic<int>> partials_done;
    std::vector<HugeArray<uint8_t>> thread_rows;
    std::vector<HugeArray<float>> thread_attention;
    std::vector<HugeArray<uint16_t>> thread_pages;  // int8: a partition's pages, widened
    std::vector<ChoiceSpace> thread_choice;
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

    const Matrix& embedding() const { return tied ? head : own_embedding; }
    // More than Matrix::row_bytes of any input.
    size_t widest_row_bytes() const {
        return 2 * std::max({hidden_stride, inner_stride, round_up(q_size, kGroupColumns)}) + 64;
    }
    int group() const { return shape.num_heads / shape.num_kv_heads; }
    int query_rows() const { return query_block * group(); }
    // Floats that a thread's AttentionSpace takes.
    size_t attention_space() const {
        return static_cast<size_t>(query_rows()) * (kPartitionTokens * 3 / 2 + shape.head_dim * 5 / 2 + 6);
    }
    size_t qkv_stride() const { return q_size + 2 * kv_size; }
    size_t page_size() const { return static_cast<size_t>(kPageTokens) * shape.head_dim; }

    size_t page_bytes() const {
        return shape.kv_int8 ? 2 * (page_size() + kPageTokens * sizeof(float)) : 2 * page_size() * sizeof(uint16_t);
    }

    // K page: [head_dim / 2][16 tokens][2]; V page: [16 tokens / 2][head_dim][2]; int8: 16 scales of K, 16 of V.
    uint8_t* page(int layer, const Span& span, int index, int kv_head) {
        const int pages_per_block = shape.block_tokens / kPageTokens;
        const int64_t at = static_cast<int64_t>(span.blocks[index / pages_per_block]) * pages_per_block +
                           index % pages_per_block;
        const int64_t pages = static_cast<int64_t>(shape.num_blocks) * pages_per_block;
        return kv.data() + ((layer * pages + at) * shape.num_kv_heads + kv_head) * page_bytes();
    }
};

// One set of kernels for each instruction set. `run` computes a whole step; `multiply_rows` one matrix in the calling
// thread, from num_rows rows of `size` floats to rows of num_columns.
namespace avx512 {
void run(Model& model);
void multiply_rows(const Matrix& matrix, const float* x, int num_rows, int size, float* out);
void choose(Model& model, const float* logits, int64_t row_stride, int num_rows, int size, const Draw* draws, int64_t* ids);
}  // namespace avx512
namespace avx2 {
void run(Model& model);
void multiply_rows(const Matrix& matrix, const float* x, int num_rows, int size, float* out);
void choose(Model& model, const float* logits, int64_t row_stride, int num_rows, int size, const Draw* draws, int64_t* ids);
}  // namespace avx2

}  // namespace baton
