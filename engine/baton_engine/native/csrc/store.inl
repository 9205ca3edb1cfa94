// A step's q, k and v: heads normed where the model does so, q and k rotated, K and V put into their pages.
// Included once for each instruction set.
//
// Element: how K and V are kept. uint16_t: bfloat16. int8_t: bytes with a scale for each token of a page.

constexpr int kLargestHead = 512;  // as in support.py

template <class Element>
struct Page {
    Element *k, *v;
    float *k_scales, *v_scales;

    Page(uint8_t* at, size_t size) : k(reinterpret_cast<Element*>(at)), v(k + size) {
        k_scales = sizeof(Element) == 1 ? reinterpret_cast<float*>(v + size) : nullptr;
        v_scales = sizeof(Element) == 1 ? k_scales + kPageTokens : nullptr;
    }
};

// 1 / the root mean square of `size` values; zeros follow them up to `stride`.
inline Lanes norm_factor(const float* x, int size, int stride, float eps) {
    Lanes squares = zero();
    for (int i = 0; i < stride; i += 16) squares = fma(load(x + i), load(x + i), squares);
    return all(1.f / std::sqrt(sum(squares) / static_cast<float>(size) + eps));
}

inline void norm_head(float* head, const std::vector<float>& weight, int dim, float eps) {
    const Lanes factor = norm_factor(head, dim, dim, eps);
    for (int d = 0; d < dim; d += 16) store(head + d, mul(mul(load(head + d), factor), load(weight.data() + d)));
}

// put(d, sixteen dimensions from d on)
template <class Put>
inline void rotate(const float* head, const float* cos, const float* sin, int half, Put&& put) {
    for (int d = 0; d < half; d += 16) {
        const Lanes a = load(head + d), b = load(head + half + d), c = load(cos + d), s = load(sin + d);
        put(d, sub(mul(a, c), mul(b, s)));
        put(half + d, fma(b, c, mul(a, s)));
    }
}

// A head of one token in bytes, and their scale. A NaN or an infinity becomes the scale, so that it is not lost.
inline float put_head_bytes(const float* values, int dim, int8_t* out) {
    float most = 0.f;
    for (int d = 0; d < dim; d += 32) {
        const float next = peak(load(values + d), load(values + d + 16));
        if (most == most && !(next <= most)) most = next;
    }
    const Lanes factor = all(most > kSmallestPeak ? 127.f / most : 0.f);
    for (int d = 0; d < dim; d += 32) put_bytes(out + d, load(values + d), load(values + d + 16), factor);
    return most / 127.f;
}

template <class Element>
inline void put_key(const Element* row, int dim, int token, Element* page) {
    for (int d = 0; d < dim; d += 2) std::copy_n(row + d, 2, page + d * kPageTokens + token * 2);
}
template <class Element>
inline void put_value(const Element* row, int dim, int token, Element* page) {
    Element* pair = page + (token / 2) * 2 * dim + token % 2;
    for (int d = 0; d < dim; ++d) pair[2 * d] = row[d];
}

// One token's rotated K and V of one KV head → its place in a page.
inline void store_token(const float* key, const float* value, const float* cos, const float* sin, int dim, int token,
                        const Page<uint16_t>& page) {
    alignas(64) uint16_t row[kLargestHead];
    // What an earlier owner left behind could be a NaN, and a weight of 0 does not silence it.
    if (token == 0) std::fill_n(page.v, kPageTokens * dim, uint16_t{0});
    rotate(key, cos, sin, dim / 2, [&](int d, Lanes x) { store_bf16(row + d, x); });
    put_key(row, dim, token, page.k);
    for (int d = 0; d < dim; d += 16) store_bf16(row + d, load(value + d));
    put_value(row, dim, token, page.v);
}
inline void store_token(const float* key, const float* value, const float* cos, const float* sin, int dim, int token,
                        const Page<int8_t>& page) {
    alignas(64) float turned[kLargestHead];
    alignas(64) int8_t row[kLargestHead];
    if (token == 0) std::fill_n(page.v_scales, kPageTokens, 0.f);  // bytes are finite, a scale need not be
    rotate(key, cos, sin, dim / 2, [&](int d, Lanes x) { store(turned + d, x); });
    page.k_scales[token] = put_head_bytes(turned, dim, row);
    put_key(row, dim, token, page.k);
    page.v_scales[token] = put_head_bytes(value, dim, row);
    put_value(row, dim, token, page.v);
}

// Norms and rotates q and k of some rows of one page, and stores their k and v in it.
template <class Element>
void store_rows(Model& model, int layer, const PageRows& rows) {
    const Span& span = model.plan.spans[rows.span];
    const Layer& weights = model.layers[layer];
    const int dim = model.shape.head_dim, half = dim / 2, num_heads = model.shape.num_heads;
    for (int at = rows.first; at < rows.first + rows.count; ++at) {
        const size_t row = span.first_row + at - span.start;
        float* qkv = model.qkv.data() + row * model.qkv_stride();
        const float* cos = model.cos.data() + static_cast<size_t>(at) * half;
        const float* sin = model.sin.data() + static_cast<size_t>(at) * half;
        uint16_t* q = model.q.data() + row * model.q_size;
        if (!weights.query_norm.empty())
            for (int head = 0; head < num_heads + model.shape.num_kv_heads; ++head)
                norm_head(qkv + head * dim, head < num_heads ? weights.query_norm : weights.key_norm, dim, model.shape.norm_eps);
        for (int head = 0; head < num_heads; ++head)
            rotate(qkv + head * dim, cos, sin, half, [&](int d, Lanes x) { store_bf16(q + head * dim + d, x); });
        for (int head = 0; head < model.shape.num_kv_heads; ++head) {
            const float* key = qkv + model.q_size + head * dim;
            const Page<Element> page(model.page(layer, span, at / kPageTokens, head), model.page_size());
            store_token(key, key + model.kv_size, cos, sin, dim, at % kPageTokens, page);
        }
    }
}
