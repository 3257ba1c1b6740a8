// Times attention alone: passes over the tokens of conversations that lie mixed in one cache, and over
// each conversation's tokens with a cache of its own. `bench/attention.py` compiles and starts it.
//
//     attention LAYERS HEADS HEADS_OF_KEYS WIDTH THREADS ROUNDS LENGTH:TOKENS ...
//
// A conversation holds LENGTH cells, of which the last TOKENS are the pass's. Prints milliseconds of
// all layers, medians: of the pass over all conversations, and the sum of the passes over each.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include "ggml_abi.h"

extern "C" ggml_backend_reg_t ggml_backend_init();

namespace {

constexpr int64_t PADDING = 256;  // llama.cpp's, of the cells that a pass looks at
constexpr int64_t LONGEST_RUN = 5;  // cells of a conversation side by side
constexpr double FREE = 0.125;      // share of the cells that nobody holds

std::mt19937 random_bits(1);

struct Conversation {
    int64_t length, tokens;
};

struct Shape {
    int64_t layers, heads, heads_of_keys, width;
    int threads;
};

// Whose each cell is; -1: nobody's.
std::vector<int> cells_of(const std::vector<Conversation> & all) {
    std::vector<int> owner;
    std::vector<int64_t> left;
    for (const Conversation & each : all) left.push_back(each.length);
    const auto run = [](std::vector<int> & to, int of, int64_t n) { to.insert(to.end(), size_t(n), of); };
    for (int64_t rest = 1; rest > 0;) {
        const size_t next = random_bits() % all.size();
        const int64_t n = std::min<int64_t>(left[next], 1 + random_bits() % LONGEST_RUN);
        run(owner, int(next), n);
        left[next] -= n;
        if (all.size() > 1 && double(random_bits()) < FREE * double(random_bits.max())) run(owner, -1, n);
        rest = 0;
        for (const int64_t each : left) rest += each;
    }
    run(owner, -1, (PADDING - int64_t(owner.size()) % PADDING) % PADDING);
    return owner;
}

class Pass {
  public:
    Pass(const Shape & shape, const std::vector<Conversation> & all) {
        const std::vector<int> owner = cells_of(all);
        const int64_t positions = int64_t(owner.size());
        int64_t n = 0;
        for (const Conversation & each : all) n += each.tokens;
        ggml_tensor * mask = ggml_new_tensor_2d(context_, GGML_TYPE_F16, positions, n);
        std::vector<ggml_fp16_t> shown;
        for (size_t c = 0; c < all.size(); c++)
            for (int64_t t = 0; t < all[c].tokens; t++) {
                int64_t seen = all[c].length - all[c].tokens + t + 1;
                for (const int of : owner) shown.push_back(ggml_fp32_to_fp16(of == int(c) && seen-- > 0 ? 0 : -INFINITY));
            }
        place(mask, shown.data());
        for (int64_t layer = 0; layer < shape.layers; layer++) {
            ggml_tensor * q = ggml_new_tensor_3d(context_, GGML_TYPE_F32, shape.width, n, shape.heads);
            ggml_tensor * k = ggml_new_tensor_3d(context_, GGML_TYPE_F16, shape.width, shape.heads_of_keys, positions);
            ggml_tensor * v = ggml_new_tensor_3d(context_, GGML_TYPE_F16, shape.width, shape.heads_of_keys, positions);
            place(q, normal(ggml_nelements(q)).data());
            for (ggml_tensor * t : {k, v}) {
                const std::vector<float> values = normal(ggml_nelements(t));
                std::vector<ggml_fp16_t> halves(values.size());
                ggml_fp32_to_fp16_row(values.data(), halves.data(), ggml_nelements(t));
                place(t, halves.data());
            }
            ggml_tensor * out = ggml_flash_attn_ext(
                context_, q, ggml_permute(context_, k, 0, 2, 1, 3), ggml_permute(context_, v, 0, 2, 1, 3), mask,
                1 / std::sqrt(float(shape.width)), 0, 0);
            place(out, nullptr);
            graphs_.push_back(ggml_new_graph(context_));
            ggml_build_forward_expand(graphs_.back(), out);
        }
        using SetThreads = void (*)(ggml_backend_t, int);
        void * set = ggml_backend_reg_get_proc_address(ggml_backend_init(), "ggml_backend_set_n_threads");
        reinterpret_cast<SetThreads>(set)(backend_, shape.threads);
    }

    ~Pass() {
        for (const auto buffer : buffers_) ggml_backend_buffer_free(buffer);
        ggml_backend_free(backend_);
        ggml_free(context_);
    }

    Pass(const Pass &) = delete;

    double milliseconds() {
        const auto start = std::chrono::steady_clock::now();
        for (ggml_cgraph * graph : graphs_) ggml_backend_graph_compute(backend_, graph);
        return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    }

  private:
    static std::vector<float> normal(int64_t size) {
        std::vector<float> out(static_cast<size_t>(size));
        std::normal_distribution<float> one;
        float few[1024];
        for (float & x : few) x = one(random_bits);
        for (float & x : out) x = few[random_bits() % 1024];
        return out;
    }

    void place(ggml_tensor * t, const void * data) {
        ggml_backend_buffer_type_t type = ggml_backend_dev_buffer_type(device_);
        buffers_.push_back(ggml_backend_buft_alloc_buffer(type, ggml_nbytes(t)));
        ggml_backend_tensor_alloc(buffers_.back(), t, ggml_backend_buffer_get_base(buffers_.back()));
        if (data) ggml_backend_tensor_set(t, data, 0, ggml_nbytes(t));
    }

    ggml_context * context_ = ggml_init({64 << 20, nullptr, true});
    ggml_backend_dev_t device_ = ggml_backend_reg_dev_get(ggml_backend_init(), 0);
    ggml_backend_t backend_ = ggml_backend_dev_init(device_, nullptr);
    std::vector<ggml_backend_buffer_t> buffers_;
    std::vector<ggml_cgraph *> graphs_;
};

double median(std::vector<double> & x) {
    std::nth_element(x.begin(), x.begin() + long(x.size() / 2), x.end());
    return x[x.size() / 2];
}

}  // namespace

int main(int count, char ** arguments) {
    const auto number = [&](int i) { return std::atoll(arguments[i]); };
    if (count < 8) return 1;
    const Shape shape{number(1), number(2), number(3), number(4), int(number(5))};
    std::vector<Conversation> all;
    for (int i = 7; i < count; i++) {
        long length = 0, tokens = 0;
        if (std::sscanf(arguments[i], "%ld:%ld", &length, &tokens) != 2) return 1;
        all.push_back({length, tokens});
    }
    Pass together(shape, all);
    std::vector<Pass *> alone;
    if (all.size() > 1)
        for (const Conversation & each : all) alone.push_back(new Pass(shape, {each}));
    std::vector<double> of_all, of_each;
    for (int64_t round = 0; round <= number(6); round++) {
        const double all_of_them = together.milliseconds();
        double sum = 0;
        for (Pass * each : alone) sum += each->milliseconds();
        if (round == 0) continue;  // the first touches memory
        of_all.push_back(all_of_them);
        of_each.push_back(sum);
    }
    std::printf("%.3f %.3f\n", median(of_all), median(of_each));
    for (Pass * each : alone) delete each;
}
