// Rows of bfloat16 activations times packed weights. Included once for each instruction set.
//
// Every output is one chain of dot products in the order of k, whatever rows and columns are computed beside
// it: a row's result does not depend on its batch.

template <int Rows, int Panels>
struct Tile {
    Lanes sums[Rows][Panels];

    [[gnu::always_inline]] inline void clear() {
#pragma GCC unroll 16
        for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 4
            for (int p = 0; p < Panels; ++p) sums[r][p] = zero();
    }

    // a: Rows rows of pairs. A panel: num_pairs vectors of 16 pairs, bfloat16 or bytes, panel_step elements apart.
    // `ahead`: what will be read next, fetched meanwhile, or null.
    template <class Element>
    [[gnu::always_inline]] inline void add_dots(const uint16_t* a, size_t a_stride, const Element* const (&panels)[Panels],
                                                size_t panel_step, int num_pairs, const Element* const* ahead) {
        for (int k = 0; k < num_pairs; ++k) {
            Pairs weights[Panels];
#pragma GCC unroll 4
            for (int p = 0; p < Panels; ++p) {
                weights[p] = load_pairs(panels[p] + k * panel_step);
                if (ahead) __builtin_prefetch(ahead[p] + k * panel_step);
            }
#pragma GCC unroll 16
            for (int r = 0; r < Rows; ++r) {
                const Pairs x = all_pairs(a + r * a_stride + 2 * k);
#pragma GCC unroll 4
                for (int p = 0; p < Panels; ++p) sums[r][p] = dot(sums[r][p], x, weights[p]);
            }
        }
    }

    [[gnu::always_inline]] inline void put(float* out, size_t row_stride, size_t panel_stride) const {
#pragma GCC unroll 16
        for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 4
            for (int p = 0; p < Panels; ++p) store(out + r * row_stride + p * panel_stride, sums[r][p]);
    }
};

// With few rows, four panels at a time keep as many chains going as many rows with two.
constexpr int panels_for(int rows) { return rows * 4 <= kTileRows * 2 ? 4 : 2; }

constexpr int kPrefetchPairs = 24;  // × 128 bytes ahead in the stream of weights

template <int Rows>
void multiply_tile(const uint16_t* x, size_t x_stride, const uint16_t* weights, int num_pairs, float* out) {
    constexpr int step = 2 * kGroupColumns;
    const uint16_t* const panels[2] = {weights, weights + kGroupColumns};
    const uint16_t* const ahead[2] = {panels[0] + kPrefetchPairs * step, panels[1] + kPrefetchPairs * step};
    Tile<Rows, 2> tile;
    tile.clear();
    tile.add_dots(x, x_stride, panels, step, num_pairs, ahead);
    tile.put(out, kGroupColumns, 16);
}

using MultiplyTile = void (*)(const uint16_t*, size_t, const uint16_t*, int, float*);

template <int... Rows>
constexpr std::array<MultiplyTile, sizeof...(Rows)> multiply_tiles(std::integer_sequence<int, Rows...>) {
    return {multiply_tile<Rows + 1>...};
}
constexpr auto kMultiplyTiles = multiply_tiles(std::make_integer_sequence<int, kTileRows>());

// Cuts `count` rows into strips of nearly equal height: 13 rows are 7 + 6, not 12 + 1.
inline int strip_rows(int count, int most = kTileRows) {
    const int strips = (count + most - 1) / most;
    return (count + strips - 1) / strips;
}

// Rows of activations, as Matrix::row_bytes describes them.
struct Rows {
    const uint8_t* at;
    size_t stride;
};

inline void multiply_strip(const uint8_t* x, size_t stride, int rows, const Matrix& matrix, int group, float* out) {
    if (matrix.quantised()) {
        const auto& tiles = matrix.kind == Kind::kInt8 ? kMultiplyInt8 : kMultiplyInt4;
        tiles[rows - 1](x, stride, matrix.blocks.data() + group * matrix.group_bytes(), matrix.num_blocks(), out);
        return;
    }
    const uint16_t* weights = matrix.bf16.data() + group * matrix.group_bytes() / 2;
    kMultiplyTiles[rows - 1](reinterpret_cast<const uint16_t*>(x), stride / 2, weights, matrix.num_pairs, out);
}

// put(row, group, first 16 columns, last 16 columns) gets each result with its bias.
template <class Put>
void multiply(const Rows& x, int first_row, int end_row, const Matrix& matrix, int first_group, int end_group, Put&& put) {
    const int height = strip_rows(end_row - first_row, matrix.quantised() ? kBlockTileRows : kTileRows);
    alignas(64) float out[kTileRows * kGroupColumns];
    for (int group = first_group; group < end_group; ++group) {
        const float* bias = matrix.bias.empty() ? nullptr : matrix.bias.data() + group * kGroupColumns;
        for (int row = first_row; row < end_row; row += height) {
            const int rows = std::min(height, end_row - row);
            multiply_strip(x.at + row * x.stride, x.stride, rows, matrix, group, out);
            for (int r = 0; r < rows; ++r) {
                Lanes low = load(out + r * kGroupColumns), high = load(out + r * kGroupColumns + 16);
                if (bias) low = add(low, load(bias)), high = add(high, load(bias + 16));
                put(row + r, group, low, high);
            }
        }
    }
}
