// The C face that Python calls through ctypes. No exception leaves it: 0 is success, else a Fault.
#include <algorithm>
#include <cstring>
#include <new>
#include <system_error>

#include "model.h"
#include "pack.h"
#include "plan.h"

using namespace baton;

namespace {

enum Fault { kNoMemory = 1, kNoThreads = 2 };  // as in forward.py
enum Isa { kNone = 0, kAvx2 = 1, kAvx512 = 2 };
enum MatrixName { kQkv = 0, kOutput = 1, kGateUp = 2, kDown = 3, kHead = 4, kEmbedding = 5 };
enum VectorName { kInputNorm = 0, kMlpNorm = 1, kFinalNorm = 2, kQueryNorm = 3, kKeyNorm = 4 };

Matrix& matrix_of(Model& model, int layer, int name) {
    if (name == kHead) return model.head;
    if (name == kEmbedding) return model.own_embedding;
    Layer& one = model.layers[layer];
    Matrix* const all[] = {&one.qkv, &one.output, &one.gate_up, &one.down};
    return *all[name];
}

std::vector<float>& vector_of(Model& model, int layer, int name) {
    if (name == kFinalNorm) return model.norm;
    Layer& one = model.layers[layer];
    std::vector<float>* const all[] = {&one.input_norm, &one.mlp_norm, nullptr, &one.query_norm, &one.key_norm};
    return *all[name];
}

void allocate(Model& model) {
    const Shape& shape = model.shape;
    const size_t pages = static_cast<size_t>(shape.num_blocks) * (shape.block_tokens / kPageTokens);
    model.kv.grow(pages * shape.num_layers * shape.num_kv_heads * model.page_bytes());
    for (int thread = 0; thread < model.team.size(); ++thread) {
        model.thread_rows.emplace_back(16 * model.widest_row_bytes());
        model.thread_attention.emplace_back(model.attention_space());
        model.thread_pages.emplace_back(shape.kv_int8 ? kPartitionPages * 2 * model.page_size() : 0);
        ChoiceSpace& choice = model.thread_choice.emplace_back();  // all it will need: no thread allocates in a step
        for (auto* values : {&choice.distances, &choice.weights}) values->reserve(round_up(shape.vocab_size, 64));
        choice.sums.reserve(round_up(shape.vocab_size, 64) / 64);
        choice.ranks.reserve(shape.vocab_size);
    }
    // Now, and not page by page in the first requests: those would wait twice as long for their prompts' memory
    // as a decode takes.
    model.team.run(1, [&](int thread) {
        model.team.phase(thread, model.kv.num_pieces(), [&](int piece) { model.kv.touch(piece); });
    });
}

template <class Action>
int guarded(Action&& action) {
    try {
        action();
        return 0;
    } catch (const std::bad_alloc&) {
        return kNoMemory;
    } catch (const std::system_error&) {
        return kNoThreads;
    }
}

}  // namespace

extern "C" {

int baton_best_isa() {
    __builtin_cpu_init();
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
    const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
                        __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vnni");
    return avx512 && avx2 ? kAvx512 : avx2 ? kAvx2 : kNone;
}

int baton_shape_size() { return sizeof(Shape); }
int baton_step_size() { return sizeof(Step); }
int baton_draw_size() { return sizeof(Draw); }
int baton_weight_size() { return sizeof(Weight); }

int baton_new(const Shape* shape, Model** out) {
    return guarded([&] {
        auto model = std::make_unique<Model>(*shape);
        allocate(*model);
        *out = model.release();
    });
}

void baton_delete(Model* model) { delete model; }

int baton_set_matrix(Model* model, int layer, int name, const Weight* weight) {
    return guarded([&] { pack(matrix_of(*model, layer, name), *weight, name == kGateUp, model->team); });
}

int64_t baton_weight_bytes(const Model* model) {
    auto bytes = [](const Matrix& matrix) { return static_cast<int64_t>(matrix.num_groups() * matrix.group_bytes()); };
    int64_t sum = bytes(model->head) + bytes(model->own_embedding);
    for (const Layer& layer : model->layers)
        sum += bytes(layer.qkv) + bytes(layer.output) + bytes(layer.gate_up) + bytes(layer.down);
    return sum;
}

void baton_tie_embedding(Model* model) { model->tied = true; }

int baton_set_vector(Model* model, int layer, int name, const float* values) {
    return guarded([&] {
        std::vector<float>& out = vector_of(*model, layer, name);
        const bool of_head = name == kQueryNorm || name == kKeyNorm;
        out.assign(of_head ? model->shape.head_dim : model->hidden_stride, 0.f);
        std::copy_n(values, of_head ? model->shape.head_dim : model->shape.hidden_size, out.begin());
    });
}

void baton_set_window(Model* model, int layer, int window) { model->layers[layer].window = window; }

int baton_set_rotary(Model* model, const float* cos, const float* sin) {
    return guarded([&] {
        const size_t count = static_cast<size_t>(model->shape.max_positions) * model->shape.head_dim / 2;
        model->cos.assign(cos, cos + count);
        model->sin.assign(sin, sin + count);
    });
}

// One matrix product without a model, for tests and measurements. out: num_rows × columns rounded up to 32.
int baton_multiply(const Weight* weight, int isa, const float* x, int num_rows, float* out) {
    return guarded([&] {
        Matrix matrix;
        Team alone(1);
        pack(matrix, *weight, false, alone);
        (isa == kAvx512 ? avx512::multiply_rows : avx2::multiply_rows)(matrix, x, num_rows, weight->num_columns, out);
    });
}

// ids: a token for each row of at most vocab_size logits, -1 where none can be chosen.
int baton_choose(Model* model, const float* logits, int64_t row_stride, int num_rows, int size, const Draw* draws,
                 int64_t* ids) {
    return guarded([&] {
        (model->shape.isa == kAvx512 ? avx512::choose : avx2::choose)(*model, logits, row_stride, num_rows, size, draws, ids);
    });
}

int baton_run(Model* model, const Step* step) {
    return guarded([&] {
        plan_step(*model, *step);
        model->shape.isa == kAvx512 ? avx512::run(*model) : avx2::run(*model);
    });
}

}  // extern "C"
