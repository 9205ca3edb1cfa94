// Rows of activations in signed bytes times packed int8 or int4 weights. Included once for each instruction set.
//
// Blocks of 32 along k: the byte products of a block are summed in int32, which is exact; the sum is scaled by the
// activations' and the weights' scale and added to the output, block after block. So a row's result does not
// depend on its batch, and both instruction sets give the same bits.

// A block whose largest value is under this counts as zeros: its reciprocal would not be finite.
constexpr float kSmallestPeak = 1e-30f;

// values(k): sixteen neighbours. A NaN or an infinity in a block becomes its scale, so that it is not lost.
template <class Values>
inline void quantise_row(Values&& values, int num_blocks, Kind kind, uint8_t* out) {
    int8_t* bytes = reinterpret_cast<int8_t*>(out);
    Note* notes = reinterpret_cast<Note*>(out + num_blocks * kBlockDepth);
    for (int block = 0; block < num_blocks; ++block) {
        const int k = block * kBlockDepth;
        const Lanes low = values(k), high = values(k + 16);
        const float most = peak(low, high);
        const float factor = most > kSmallestPeak ? 127.f / most : 0.f;
        const int sum = put_bytes(bytes + k, low, high, all(factor));
        notes[block].scale = most * (1.f / 127.f);
        if (kind == Kind::kInt8)
            notes[block].start = static_cast<int32_t>(-128u * static_cast<uint32_t>(sum));
        else
            notes[block].sum = notes[block].scale * static_cast<float>(sum);
    }
}

template <int Rows, Kind kind>
struct BlockTile {
    Ints dots[Rows][2];

    [[gnu::always_inline]] inline void add_quad(const uint8_t* x, size_t x_stride, Ints left, Ints right) {
#pragma GCC unroll 8
        for (int r = 0; r < Rows; ++r) {
            const Ints quad = all_quads(x + r * x_stride);
            dots[r][0] = dot_bytes<kind == Kind::kInt4>(dots[r][0], left, quad);
            dots[r][1] = dot_bytes<kind == Kind::kInt4>(dots[r][1], right, quad);
        }
    }

    [[gnu::always_inline]] inline void add_block(const uint8_t* x, size_t x_stride, const uint8_t* codes) {
        if constexpr (kind == Kind::kInt8) {
#pragma GCC unroll 8
            for (int quad = 0; quad < 8; ++quad, codes += 128)
                add_quad(x + 4 * quad, x_stride, load_ints(codes), load_ints(codes + 64));
        } else {
#pragma GCC unroll 4
            for (int quad = 0; quad < 4; ++quad, codes += 128) {
                const Ints left = load_ints(codes), right = load_ints(codes + 64);
                add_quad(x + 4 * quad, x_stride, low_nibbles(left), low_nibbles(right));
                add_quad(x + 4 * quad + 16, x_stride, high_nibbles(left), high_nibbles(right));
            }
        }
    }
};

constexpr int kPrefetchBytes = 3 << 10;

template <int Rows, Kind kind>
void multiply_blocks(const uint8_t* x, size_t x_stride, const uint8_t* block, int num_blocks, float* out) {
    constexpr int code_bytes = kBlockDepth * kGroupColumns / (kind == Kind::kInt4 ? 2 : 1);
    constexpr int block_bytes = code_bytes + (kind == Kind::kInt4 ? 4 : 2) * kGroupColumns;
    const Note* notes = reinterpret_cast<const Note*>(x + num_blocks * kBlockDepth);
    const size_t note_stride = x_stride / sizeof(Note);
    Lanes sums[Rows][2];
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) sums[r][0] = sums[r][1] = zero();
    for (int index = 0; index < num_blocks; ++index, block += block_bytes, x += kBlockDepth, ++notes) {
#pragma GCC unroll 17
        for (int at = 0; at < block_bytes; at += 64) __builtin_prefetch(block + kPrefetchBytes + at);
        BlockTile<Rows, kind> tile;
#pragma GCC unroll 8
        for (int r = 0; r < Rows; ++r)
            tile.dots[r][0] = tile.dots[r][1] = all_ints(kind == Kind::kInt8 ? notes[r * note_stride].start : 0);
        tile.add_block(x, x_stride, block);
        const uint16_t* scales = reinterpret_cast<const uint16_t*>(block + code_bytes);
        const Lanes left = load_halves(scales), right = load_halves(scales + 16);
#pragma GCC unroll 8
        for (int r = 0; r < Rows; ++r) {
            const Lanes scale = all(notes[r * note_stride].scale);
            sums[r][0] = fma(to_floats(tile.dots[r][0]), mul(left, scale), sums[r][0]);
            sums[r][1] = fma(to_floats(tile.dots[r][1]), mul(right, scale), sums[r][1]);
        }
        if constexpr (kind == Kind::kInt4) {
            const Lanes left_minimum = load_halves(scales + 32), right_minimum = load_halves(scales + 48);
#pragma GCC unroll 8
            for (int r = 0; r < Rows; ++r) {
                const Lanes sum = all(notes[r * note_stride].sum);
                sums[r][0] = fma(left_minimum, sum, sums[r][0]);
                sums[r][1] = fma(right_minimum, sum, sums[r][1]);
            }
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) {
        store(out + r * kGroupColumns, sums[r][0]);
        store(out + r * kGroupColumns + 16, sums[r][1]);
    }
}

using MultiplyBlocks = void (*)(const uint8_t*, size_t, const uint8_t*, int, float*);

template <Kind kind, int... Rows>
constexpr std::array<MultiplyBlocks, sizeof...(Rows)> multiply_blocks_of(std::integer_sequence<int, Rows...>) {
    return {multiply_blocks<Rows + 1, kind>...};
}
constexpr auto kMultiplyInt8 = multiply_blocks_of<Kind::kInt8>(std::make_integer_sequence<int, kBlockTileRows>());
constexpr auto kMultiplyInt4 = multiply_blocks_of<Kind::kInt4>(std::make_integer_sequence<int, kBlockTileRows>());
