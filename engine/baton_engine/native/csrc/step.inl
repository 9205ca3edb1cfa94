// The whole step, phase by phase. Included once for each instruction set.

namespace {

constexpr int kOwnRows = 16;       // up to here each thread prepares all rows itself: cheaper than meeting
constexpr int kRowChunk = 96;      // rows of one GEMM task when there are many
constexpr int kTaskBytes = 256 << 10;  // weights of one GEMM task when there are few rows

// values(k): sixteen neighbours of a row; out: the row as `matrix` takes it.
template <class Values>
inline void put_row(Values&& values, int stride, const Matrix& matrix, uint8_t* out) {
    if (matrix.quantised()) return quantise_row(values, matrix.num_blocks(), matrix.kind, out);
    uint16_t* to = reinterpret_cast<uint16_t*>(out);
    for (int i = 0; i < stride; i += 16) store_bf16(to + i, values(i));
}

inline Lanes silu(Lanes x) { return div(x, add(all(1.f), exp2(mul(x, all(-kLog2E))))); }

// One thread's walk through the step; the others take the same walk.
struct Walk {
    Model& model;
    const Step& step;
    const int thread;
    AttentionSpace space;

    Walk(Model& m, int t)
        : model(m),
          step(*m.plan.step),
          thread(t),
          space(m.thread_attention[t].data(), m.thread_pages[t].data(), m.query_rows(), m.shape.head_dim) {}

    template <class Task>
    void phase(int num_tasks, Task&& task) { model.team.phase(thread, num_tasks, task); }

    // `prepare` gives the rows, and is called by each thread that has work, once.
    template <class Prepare, class Put>
    void gemm(int num_rows, const Matrix& matrix, Prepare&& prepare, Put&& put) {
        const int groups = matrix.num_groups();
        const bool many = num_rows > kRowChunk;
        const int by_size = kTaskBytes / matrix.group_bytes();
        const int by_share = groups / (4 * model.team.size());
        const int per_task = std::max(1, many ? std::min(4, by_share) : std::min(by_size, by_share));
        const int row_chunks = (num_rows + kRowChunk - 1) / kRowChunk;
        const int height = (num_rows + row_chunks - 1) / row_chunks;
        Rows rows{nullptr, 0};
        phase(row_chunks * ((groups + per_task - 1) / per_task), [&](int task) {
            if (!rows.at) rows = prepare();
            const int group = task / row_chunks * per_task, row = task % row_chunks * height;
            multiply(rows, row, std::min(num_rows, row + height), matrix, group, std::min(groups, group + per_task), put);
        });
    }

    // `fill` writes one row as the matrix takes it.
    template <class Fill, class Put>
    void filled_gemm(int num_rows, const Matrix& matrix, Fill&& fill, Put&& put) {
        const size_t stride = matrix.row_bytes();
        if (num_rows <= kOwnRows) {
            uint8_t* own = model.thread_rows[thread].data();
            gemm(num_rows, matrix, [&] {
                for (int row = 0; row < num_rows; ++row) fill(row, own + row * stride);
                return Rows{own, stride};
            }, put);
            return;
        }
        phase((num_rows + 7) / 8, [&](int task) {
            for (int row = task * 8; row < std::min(num_rows, task * 8 + 8); ++row) fill(row, model.rows.data() + row * stride);
        });
        gemm(num_rows, matrix, [&] { return Rows{model.rows.data(), stride}; }, put);
    }

    // Of rows that lie in bfloat16, `size` of them used, a multiple of 32.
    template <class Put>
    void plain_gemm(const HugeArray<uint16_t>& source, int size, const Matrix& matrix, Put&& put) {
        const size_t stride = size;
        if (!matrix.quantised()) {
            const Rows rows{reinterpret_cast<const uint8_t*>(source.data()), 2 * stride};
            return gemm(step.num_tokens, matrix, [&] { return rows; }, put);
        }
        filled_gemm(step.num_tokens, matrix, [&](int row, uint8_t* out) {
            const uint16_t* from = source.data() + row * stride;
            put_row([&](int k) { return load_bf16(from + k); }, size, matrix, out);
        }, put);
    }

    template <class Put>
    void norm_gemm(const int64_t* source_rows, int num_rows, const std::vector<float>& weight, const Matrix& matrix, Put&& put) {
        const int size = model.shape.hidden_size, stride = model.hidden_stride;
        filled_gemm(num_rows, matrix, [&](int row, uint8_t* out) {
            const float* x = model.hidden.data() + (source_rows ? source_rows[row] : row) * static_cast<size_t>(stride);
            const Lanes factor = norm_factor(x, size, stride, model.shape.norm_eps);
            put_row([&](int k) { return mul(mul(load(x + k), factor), load(weight.data() + k)); }, stride, matrix, out);
        }, put);
    }

    void embed() {
        phase((step.num_tokens + 15) / 16, [&](int task) {
            for (int row = task * 16; row < std::min(step.num_tokens, task * 16 + 16); ++row) {
                float* out = model.hidden.data() + static_cast<size_t>(row) * model.hidden_stride;
                unpack_column(model.embedding(), step.token_ids[row], model.shape.hidden_size, out);
                std::fill(out + model.shape.hidden_size, out + model.hidden_stride, 0.f);
            }
        });
    }

    void add_to_hidden(int row, int group, Lanes low, Lanes high) {
        float* at = model.hidden.data() + static_cast<size_t>(row) * model.hidden_stride + group * kGroupColumns;
        store(at, add(load(at), low));
        store(at + 16, add(load(at + 16), high));
    }

    void attention(int index, const Layer& layer) {
        model.shape.kv_int8 ? attention_over<int8_t>(index, layer) : attention_over<uint16_t>(index, layer);
    }

    template <class Element>
    void attention_over(int index, const Layer& layer) {
        const Plan& plan = model.plan;
        norm_gemm(nullptr, step.num_tokens, layer.input_norm, layer.qkv, [&](int row, int group, Lanes low, Lanes high) {
            float* at = model.qkv.data() + row * model.qkv_stride() + group * kGroupColumns;
            store(at, low);
            store(at + 16, high);
        });
        phase(plan.page_rows.size(), [&](int task) { store_rows<Element>(model, index, plan.page_rows[task]); });
        phase(plan.tasks.size(), [&](int task) {
            const AttentionTask& one = plan.tasks[task];
            if (plan.spans[one.span].length == 1)
                attend_decode<Element>(model, index, one, space);
            else
                attend_prompt<Element>(model, index, one, space);
        });
        plain_gemm(model.attended, model.q_size, layer.output,
                   [&](int row, int group, Lanes low, Lanes high) { add_to_hidden(row, group, low, high); });
    }

    void mlp(const Layer& layer) {
        norm_gemm(nullptr, step.num_tokens, layer.mlp_norm, layer.gate_up, [&](int row, int group, Lanes gate, Lanes up) {
            uint16_t* at = model.inner.data() + static_cast<size_t>(row) * model.inner_stride + group * 16;
            store_bf16(at, mul(silu(gate), up));
        });
        plain_gemm(model.inner, model.inner_stride, layer.down,
                   [&](int row, int group, Lanes low, Lanes high) { add_to_hidden(row, group, low, high); });
    }

    void head() {
        norm_gemm(step.sample_rows, step.num_samples, model.norm, model.head, [&](int row, int group, Lanes low, Lanes high) {
            float* at = step.logits + static_cast<size_t>(row) * model.head.num_columns + group * kGroupColumns;
            store(at, low);
            store(at + 16, high);
        });
    }

    void all() {
        embed();
        for (int index = 0; index < model.shape.num_layers; ++index) {
            attention(index, model.layers[index]);
            mlp(model.layers[index]);
        }
        if (step.num_samples > 0) head();
    }
};

}  // namespace

void run(Model& model) {
    const int phases_per_layer = 10, phases_outside = 4;
    model.team.run(model.shape.num_layers * phases_per_layer + phases_outside,
                   [&model](int thread) { Walk(model, thread).all(); });
}

void multiply_rows(const Matrix& matrix, const float* x, int num_rows, int size, float* out) {
    const size_t stride = matrix.row_bytes();
    const int padded = round_up(size, kGroupColumns);
    HugeArray<uint8_t> rows(num_rows * stride);
    std::vector<float> values(padded, 0.f);
    for (int row = 0; row < num_rows; ++row) {
        std::copy_n(x + static_cast<size_t>(row) * size, size, values.begin());
        put_row([&](int k) { return load(values.data() + k); }, padded, matrix, rows.data() + row * stride);
    }
    multiply({rows.data(), stride}, 0, num_rows, matrix, 0, matrix.num_groups(), [&](int row, int group, Lanes low, Lanes high) {
        float* at = out + static_cast<size_t>(row) * matrix.num_columns + group * kGroupColumns;
        store(at, low);
        store(at + 16, high);
    });
}
