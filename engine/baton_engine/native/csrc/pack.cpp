// Weights into the order that the kernels read. Runs once, at load.
#include "pack.h"

#include <algorithm>
#include <cmath>
#include <thread>

namespace baton {
namespace {

float to_float(uint16_t bits) {
    const uint32_t wide = static_cast<uint32_t>(bits) << 16;
    float x;
    __builtin_memcpy(&x, &wide, 4);
    return x;
}

// The row of the plain weight behind a packed column, or -1. Gated: 16 of gate, 16 of up, and so on.
int source_row(int column, int num_rows, bool gated) {
    if (!gated) return column < num_rows ? column : -1;
    const int group = column / kGroupColumns, place = column % kGroupColumns, half = num_rows / 2;
    const int row = group * 16 + place % 16;
    return row >= half ? -1 : (place < 16 ? row : half + row);
}

void pack_group(Matrix& out, const Weight& weight, int group, bool gated, bool as_int8) {
    const size_t base = group * out.group_size();
    for (int place = 0; place < kGroupColumns; ++place) {
        const int column = group * kGroupColumns + place;
        const int row = source_row(column, weight.num_rows, gated);
        if (row < 0) continue;
        const uint16_t* from = weight.bf16 + static_cast<size_t>(row) * weight.num_columns;
        float inverse = 0;
        if (as_int8) {
            float most = 0;
            for (int k = 0; k < weight.num_columns; ++k) most = std::max(most, std::fabs(to_float(from[k])));
            out.scales[column] = most / 127.f;
            inverse = most > 0 ? 127.f / most : 0.f;
        }
        for (int k = 0; k < weight.num_columns; ++k) {
            const size_t at = base + static_cast<size_t>(k / 2) * 2 * kGroupColumns + place * 2 + k % 2;
            if (as_int8)
                out.int8.data()[at] = static_cast<int8_t>(std::lrint(to_float(from[k]) * inverse));
            else
                out.bf16.data()[at] = from[k];
        }
        if (weight.bias) out.bias[column] = weight.bias[row];
    }
}

}  // namespace

void pack(Matrix& out, const Weight& weight, bool gated, bool as_int8, int num_threads) {
    out = Matrix();
    out.num_columns = gated ? round_up(weight.num_rows / 2, 16) * 2 : round_up(weight.num_rows, kGroupColumns);
    out.num_pairs = (weight.num_columns + 1) / 2;
    const size_t count = static_cast<size_t>(out.num_groups()) * out.group_size();
    if (as_int8) {
        out.int8.grow(count);
        out.scales.assign(out.num_columns, 0.f);
    } else {
        out.bf16.grow(count);
    }
    if (weight.bias) out.bias.assign(out.num_columns, 0.f);
    std::vector<std::thread> threads;
    for (int thread = 0; thread < num_threads; ++thread)
        threads.emplace_back([&, thread] {
            for (int group = thread; group < out.num_groups(); group += num_threads)
                pack_group(out, weight, group, gated, as_int8);
        });
    for (auto& thread : threads) thread.join();
}

}  // namespace baton
