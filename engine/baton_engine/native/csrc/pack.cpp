// Weights into the order that the kernels read, and single rows out of it again.
#include "pack.h"

#include <immintrin.h>

#include <algorithm>
#include <cstring>

namespace baton {
namespace {

float wide(uint16_t bf16) {
    const uint32_t bits = static_cast<uint32_t>(bf16) << 16;
    float x;
    std::memcpy(&x, &bits, 4);
    return x;
}

[[gnu::target("f16c")]] float from_half(uint16_t half) { return _cvtsh_ss(half); }

// The row of the plain weight behind a packed column, or -1. Gated: 16 of gate, 16 of up, and so on.
int source_row(int column, int num_rows, bool gated) {
    if (!gated) return column < num_rows ? column : -1;
    const int group = column / kGroupColumns, place = column % kGroupColumns, half = num_rows / 2;
    const int row = group * 16 + place % 16;
    return row >= half ? -1 : (place < 16 ? row : half + row);
}

uint16_t* bf16_of(Matrix& matrix, int group) { return matrix.bf16.data() + group * matrix.group_bytes() / 2; }

void pack_bf16(Matrix& out, const Weight& weight, int group, int place, size_t row) {
    const uint16_t* from = static_cast<const uint16_t*>(weight.values) + row * weight.num_columns;
    uint16_t* to = bf16_of(out, group) + place * 2;
    for (int k = 0; k < weight.num_columns; ++k) to[static_cast<size_t>(k / 2) * 2 * kGroupColumns + k % 2] = from[k];
}

void pack_quantised(Matrix& out, const Weight& weight, int group, int place, size_t row) {
    const int blocks = out.num_blocks();
    const size_t row_bytes = out.code_bytes() / kGroupColumns;  // of one block
    const uint8_t* from = static_cast<const uint8_t*>(weight.values) + row * blocks * row_bytes;
    uint8_t* block = out.blocks.data() + group * out.group_bytes();
    for (int index = 0; index < blocks; ++index, block += out.block_bytes(), from += row_bytes) {
        for (size_t quad = 0; quad < row_bytes / 4; ++quad)
            std::memcpy(block + (quad * kGroupColumns + place) * 4, from + quad * 4, 4);
        uint8_t* scale = block + out.code_bytes() + place * 2;
        std::memcpy(scale, weight.scales + row * blocks + index, 2);
        if (out.kind == Kind::kInt4) std::memcpy(scale + 2 * kGroupColumns, weight.minima + row * blocks + index, 2);
    }
}

void pack_group(Matrix& out, const Weight& weight, int group, bool gated) {
    for (int place = 0; place < kGroupColumns; ++place) {
        const int column = group * kGroupColumns + place;
        const int row = source_row(column, weight.num_rows, gated);
        if (row < 0) continue;
        out.quantised() ? pack_quantised(out, weight, group, place, row) : pack_bf16(out, weight, group, place, row);
        if (weight.bias) out.bias[column] = weight.bias[row];
    }
}

float code_at(const Matrix& matrix, const uint8_t* block, int place, int k) {
    if (matrix.kind == Kind::kInt8) return static_cast<float>(block[(k / 4 * kGroupColumns + place) * 4 + k % 4] - 128);
    const uint8_t both = block[(k % 16 / 4 * kGroupColumns + place) * 4 + k % 4];
    return static_cast<float>(k < 16 ? both & 15 : both >> 4);
}

}  // namespace

void pack(Matrix& out, const Weight& weight, bool gated, Team& team) {
    out = Matrix();
    out.kind = weight.kind;
    out.num_columns = gated ? round_up(weight.num_rows / 2, 16) * 2 : round_up(weight.num_rows, kGroupColumns);
    out.num_pairs = (weight.num_columns + 1) / 2;
    const size_t bytes = out.num_groups() * out.group_bytes();
    out.quantised() ? out.blocks.grow(bytes) : out.bf16.grow(bytes / 2);
    if (weight.bias) out.bias.assign(out.num_columns, 0.f);
    team.run(1, [&](int thread) {
        team.phase(thread, out.num_groups(), [&](int group) { pack_group(out, weight, group, gated); });
    });
}

void unpack_column(const Matrix& matrix, int column, int size, float* out) {
    const int group = column / kGroupColumns, place = column % kGroupColumns;
    if (!matrix.quantised()) {
        const uint16_t* from = matrix.bf16.data() + group * matrix.group_bytes() / 2 + place * 2;
        for (int k = 0; k < size; ++k) out[k] = wide(from[static_cast<size_t>(k / 2) * 2 * kGroupColumns + k % 2]);
        return;
    }
    const uint8_t* block = matrix.blocks.data() + group * matrix.group_bytes();
    for (int start = 0; start < size; start += kBlockDepth, block += matrix.block_bytes()) {
        uint16_t halves[2] = {0, 0};
        const uint8_t* scale = block + matrix.code_bytes() + place * 2;
        std::memcpy(halves, scale, 2);
        if (matrix.kind == Kind::kInt4) std::memcpy(halves + 1, scale + 2 * kGroupColumns, 2);
        const float factor = from_half(halves[0]), minimum = from_half(halves[1]);
        for (int k = 0; k < std::min(kBlockDepth, size - start); ++k)
            out[start + k] = factor * code_at(matrix, block, place, k) + minimum;
    }
}

}  // namespace baton
