#pragma once

#include "model.h"

namespace baton {

// A plain weight, row after row, as the checkpoint has it.
struct Weight {
    const uint16_t* bf16;
    const float* bias;  // one a row, or null
    int num_rows, num_columns;
};

// gated: the rows are gate's and then up's, and shall meet in one group. Throws std::bad_alloc.
void pack(Matrix& out, const Weight& weight, bool gated, bool as_int8, int num_threads);

}  // namespace baton
