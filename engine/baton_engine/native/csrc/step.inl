// The whole step, phase by phase. Included once for each instruction set.

namespace {

constexpr int kOwnNormRows = 16;   // up to here each thread normalises all rows itself: cheaper than meeting
constexpr int kRowChunk = 96;      // rows of one GEMM task when there are many
constexpr int kTaskBytes = 128 << 10;  // weights of one GEMM task when there are few rows

inline void norm_row(const float* x, const float* weight, int size, int stride, float eps, uint16_t* out) {
    Lanes squares = zero();
    for (int i = 0; i < stride; i += 16) squares = fma(load(x + i), load(x + i), squares);
    const Lanes factor = all(1.f / std::sqrt(sum(squares) / static_cast<float>(size) + eps));
    for (int i = 0; i < stride; i += 16) store_bf16(out + i, mul(mul(load(x + i), factor), load(weight + i)));
}

inline Lanes silu(Lanes x) { return div(x, add(all(1.f), exp2(mul(x, all(-kLog2E))))); }

// One thread's walk through the step; the others take the same walk.
struct Walk {
    Model& model;
    const Step& step;
    const int thread;
    uint16_t* const scratch;
    AttentionSpace space;

    Walk(Model& m, int t)
        : model(m), step(*m.plan.step), thread(t), scratch(m.thread_weights[t].data()),
          space(m.thread_attention[t].data(), query_rows(m), m.shape.head_dim) {}

    template <class Task>
    void phase(int num_tasks, Task&& task) { model.team.phase(thread, num_tasks, task); }

    // `prepare` gives the rows, and is called by each thread that has work, once.
    template <class Prepare, class Put>
    void gemm(int num_rows, size_t stride, const Matrix& matrix, Prepare&& prepare, Put&& put) {
        const int groups = matrix.num_groups();
        const bool many = num_rows > kRowChunk;
        const int by_size = kTaskBytes / (matrix.num_pairs * kGroupColumns * 2);
        const int by_share = groups / (4 * model.team.size());
        const int per_task = std::max(1, many ? std::min(4, by_share) : std::min(by_size, by_share));
        const int row_chunks = (num_rows + kRowChunk - 1) / kRowChunk;
        const int height = (num_rows + row_chunks - 1) / row_chunks;
        const uint16_t* rows = nullptr;
        phase(row_chunks * ((groups + per_task - 1) / per_task), [&](int task) {
            if (!rows) rows = prepare();
            const int group = task / row_chunks * per_task, row = task % row_chunks * height;
            multiply(rows, stride, row, std::min(num_rows, row + height), matrix, group,
                     std::min(groups, group + per_task), scratch, put);
        });
    }

    const float* hidden_row(const int64_t* rows, int index) const {
        return model.hidden.data() + (rows ? rows[index] : index) * static_cast<size_t>(model.hidden_stride);
    }

    template <class Put>
    void norm_gemm(const int64_t* source_rows, int num_rows, const std::vector<float>& weight, const Matrix& matrix, Put&& put) {
        const size_t stride = model.hidden_stride;
        auto norm = [&](int row, uint16_t* out) {
            norm_row(hidden_row(source_rows, row), weight.data(), model.shape.hidden_size, model.hidden_stride,
                     model.shape.norm_eps, out + row * stride);
        };
        if (num_rows <= kOwnNormRows) {
            uint16_t* own = model.thread_normed[thread].data();
            gemm(num_rows, stride, matrix, [&] {
                for (int row = 0; row < num_rows; ++row) norm(row, own);
                return own;
            }, put);
            return;
        }
        phase((num_rows + 7) / 8, [&](int task) {
            for (int row = task * 8; row < std::min(num_rows, task * 8 + 8); ++row) norm(row, model.normed.data());
        });
        gemm(num_rows, stride, matrix, [&] { return model.normed.data(); }, put);
    }

    void embed() {
        phase((step.num_tokens + 15) / 16, [&](int task) {
            for (int row = task * 16; row < std::min(step.num_tokens, task * 16 + 16); ++row) {
                float* out = model.hidden.data() + static_cast<size_t>(row) * model.hidden_stride;
                const uint16_t* from = model.embedding.data() + step.token_ids[row] * model.hidden_stride;
                for (int i = 0; i < model.hidden_stride; i += 16) store(out + i, load_bf16(from + i));
            }
        });
    }

    void add_to_hidden(int row, int group, Lanes low, Lanes high) {
        float* at = model.hidden.data() + static_cast<size_t>(row) * model.hidden_stride + group * kGroupColumns;
        store(at, add(load(at), low));
        store(at + 16, add(load(at + 16), high));
    }

    void attention(int index, const Layer& layer) {
        const Plan& plan = model.plan;
        norm_gemm(nullptr, step.num_tokens, layer.input_norm, layer.qkv, [&](int row, int group, Lanes low, Lanes high) {
            float* at = model.qkv.data() + row * model.qkv_stride() + group * kGroupColumns;
            store(at, low);
            store(at + 16, high);
        });
        phase(plan.page_rows.size(), [&](int task) { store_rows(model, index, plan.page_rows[task]); });
        phase(plan.tasks.size(), [&](int task) {
            const AttentionTask& one = plan.tasks[task];
            if (plan.spans[one.span].length == 1)
                attend_decode(model, index, one, space);
            else
                attend_prompt(model, index, one, space);
        });
        gemm(step.num_tokens, model.q_size, layer.output, [&] { return model.attended.data(); },
             [&](int row, int group, Lanes low, Lanes high) { add_to_hidden(row, group, low, high); });
    }

    void mlp(const Layer& layer) {
        norm_gemm(nullptr, step.num_tokens, layer.mlp_norm, layer.gate_up, [&](int row, int group, Lanes gate, Lanes up) {
            uint16_t* at = model.inner.data() + static_cast<size_t>(row) * model.inner_stride + group * 16;
            store_bf16(at, mul(silu(gate), up));
        });
        gemm(step.num_tokens, model.inner_stride, layer.down, [&] { return model.inner.data(); },
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
    const int phases_per_layer = 8, phases_outside = 4;
    model.team.run(model.shape.num_layers * phases_per_layer + phases_outside,
                   [&model](int thread) { Walk(model, thread).all(); });
}
