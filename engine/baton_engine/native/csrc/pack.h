#pragma once

#include "model.h"

namespace baton {

// A weight as Python has it, row after row. bfloat16: `values`, num_columns of them a row. int8: a byte each
// (code + 128), padded to whole blocks; int4: 16 bytes a block, byte j holding k = j low and k = j + 16 high;
// both with a float16 scale a block, int4 with a minimum.
struct Weight {
    Kind kind;
    const void* values;
    const uint16_t* scales;
    const uint16_t* minima;
    const float* bias;  // one a row, or null
    int num_rows, num_columns;
};

// gated: the rows are gate's and then up's, and shall meet in one group. Throws std::bad_alloc.
void pack(Matrix& out, const Weight& weight, bool gated, Team& team);

// One weight row (a column of the matrix) in float32: `size` values.
void unpack_column(const Matrix& matrix, int column, int size, float* out);

}  // namespace baton
