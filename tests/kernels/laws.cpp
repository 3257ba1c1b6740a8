// What the kernels promise, checked on random matrices. Prints the first law that was broken.
//
//     laws [SEED] [ROUNDS]
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "cohorts.h"
#include "ggml_abi.h"
#include "matmul.h"
#include "rows.h"

extern "C" ggml_backend_reg_t ggml_backend_init();
extern "C" void spec_cpu_accept(bool);

using namespace spec_cpu;

namespace {

std::mt19937 random_bits;

int64_t between(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random_bits); }

[[noreturn]] void broken(const char * law, ggml_type type, int64_t k, int64_t rows, int64_t n) {
    std::printf("%s: %s, k %ld, rows %ld, n %ld\n", law, ggml_type_name(type), long(k), long(rows), long(n));
    std::exit(1);
}

// Normal numbers of one magnitude; one row may be zero, denormal or huge.
std::vector<float> numbers(int64_t rows, int64_t k, float magnitude) {
    std::normal_distribution<float> normal(0, magnitude);
    std::vector<float> out(size_t(rows * k));
    for (float & x : out) x = normal(random_bits);
    const int64_t odd = between(0, rows - 1) * k;
    const float factor = std::vector<float>{0, 1e-42f, 1e3f, 1}[size_t(between(0, 3))];
    for (int64_t i = 0; i < k; i++) out[size_t(odd + i)] *= factor;
    return out;
}

struct Span {
    size_t first, last;
};

// Where a block of ggml's has its quants, and multiples of scales; the rest are floats.
Span quants_of(ggml_type type) {
    switch (type) {
        case GGML_TYPE_Q4_0: return {2, 18};
        case GGML_TYPE_Q4_1: return {4, 20};
        case GGML_TYPE_Q5_0: return {2, 22};
        case GGML_TYPE_Q5_1: return {4, 24};
        case GGML_TYPE_Q8_0: return {2, 34};
        case GGML_TYPE_Q4_K: return {4, 144};
        case GGML_TYPE_Q5_K: return {4, 176};
        case GGML_TYPE_Q6_K: return {0, 208};
        default: return {0, 0};
    }
}

struct Problem {
    const Kernel & kernel;
    int64_t k, rows, n;
    std::vector<uint8_t> source, packed;
    std::vector<float> weights, x;

    Problem(const Kernel & of, int64_t k_, int64_t rows_, int64_t n_) : kernel(of), k(k_), rows(rows_), n(n_) {
        const std::vector<float> original = numbers(rows, k, std::pow(10.f, float(between(-3, 1))));
        source.resize(ggml_row_size(kernel.type, k) * size_t(rows));
        ggml_quantize_chunk(kernel.type, original.data(), source.data(), 0, rows, k, nullptr);
        x = numbers(n, k, std::pow(10.f, float(between(-3, 3))));
        read_source();
    }

    void read_source() {
        weights.resize(size_t(rows * k));
        ggml_get_type_traits(kernel.type)->to_float(source.data(), weights.data(), rows * k);
        packed.resize(kernel.group_bytes(k) * size_t(rows / lanes()));
        kernel.pack(source.data(), k, rows, packed.data());
    }

    // Quants as large and as small as their bits allow, and activations as large as there are: no sum
    // may overflow, of signs that are alike or not. Scales stay.
    void make_extreme() {
        const Span quants = quants_of(kernel.type);
        const size_t block = ggml_type_size(kernel.type);
        const std::vector<uint8_t> bytes{0x00, 0xff, 0x80, 0x7f};
        const bool alike = between(0, 1);
        const uint8_t every = bytes[size_t(between(0, 3))];
        for (size_t i = 0; i < source.size(); i++)
            if (i % block >= quants.first && i % block < quants.last)
                source[i] = alike ? every : bytes[size_t(between(0, 3))];
        for (float & v : x) v = alike || between(0, 1) ? 3.f : -3.f;
        read_source();
    }

    std::vector<float> product(const float * columns, int64_t count) const {
        std::vector<uint8_t> ready(activation_bytes(kernel.quantized, k, count));
        for (int64_t j = count - 1; j >= 0; j--) prepare_column(kernel.quantized, columns + j * k, k, j, count, ready.data());
        std::vector<float> y(size_t(count * rows));
        kernel.multiply(packed.data(), k, rows / lanes(), ready.data(), count, y.data(), size_t(rows));
        return y;
    }
};

// A quant of an activation is off by at most half a step, a step being 1/127 of the largest of 32.
void check_error(const Problem & p, const std::vector<float> & y) {
    for (int64_t j = 0; j < p.n; j++)
        for (int64_t r = 0; r < p.rows; r++) {
            const float * w = &p.weights[size_t(r * p.k)];
            const float * x = &p.x[size_t(j * p.k)];
            double exact = 0, magnitude = 0, allowed = 1e-30;
            for (int64_t first = 0; first < p.k; first += 32) {
                double largest = 0, sum = 0;
                for (int64_t i = first; i < first + 32 && i < p.k; i++) {
                    exact += double(w[i]) * x[i];
                    magnitude += std::fabs(double(w[i]) * x[i]);
                    largest = std::fmax(largest, std::fabs(double(x[i])));
                    sum += std::fabs(double(w[i]));
                }
                if (p.kernel.quantized) {
                    allowed += sum * largest / 127 * 0.5001;
                    magnitude += 8 * sum * largest;  // an offset is added and taken away again
                }
            }
            if (!(std::fabs(exact - y[size_t(j * p.rows + r)]) <= allowed + 2e-5 * magnitude))
                broken("error", p.kernel.type, p.k, p.rows, p.n);
        }
}

void check_columns_alone(const Problem & p, const std::vector<float> & y) {
    for (int64_t j = 0; j < p.n; j++) {
        const std::vector<float> alone = p.product(&p.x[size_t(j * p.k)], 1);
        if (std::memcmp(alone.data(), &y[size_t(j * p.rows)], size_t(p.rows) * sizeof(float)))
            broken("a column depends on the others", p.kernel.type, p.k, p.rows, p.n);
    }
}

void check_not_a_number(const Problem & p, const std::vector<float> & y) {
    const float bad = between(0, 1) ? std::numeric_limits<float>::quiet_NaN() : std::numeric_limits<float>::infinity();
    const int64_t column = between(0, p.n - 1);
    std::vector<float> x = p.x;
    x[size_t(column * p.k + between(0, p.k - 1))] = bad;
    const std::vector<float> with = p.product(x.data(), p.n);
    for (int64_t j = 0; j < p.n; j++)
        for (int64_t r = 0; r < p.rows; r++) {
            const float now = with[size_t(j * p.rows + r)], before = y[size_t(j * p.rows + r)];
            if (j == column ? std::isfinite(now) : std::memcmp(&now, &before, sizeof now) != 0)
                broken("NaN and infinity", p.kernel.type, p.k, p.rows, p.n);
        }
}

void check_kernel(const Kernel & kernel) {
    const int64_t unit = kernel.quantized ? kernel.columns : 1;
    const int64_t k = unit * between(1, std::max<int64_t>(1, 700 / unit));
    Problem p(kernel, k, lanes() * between(1, 4), between(1, 40));
    if (between(0, 3) == 0) p.make_extreme();
    const std::vector<float> y = p.product(p.x.data(), p.n);
    check_error(p, y);
    check_columns_alone(p, y);
    check_not_a_number(p, y);
    if (find_kernel(kernel.type, k, p.rows + 1)) broken("odd rows are taken", kernel.type, k, p.rows + 1, 1);
}

// ---- through ggml ------------------------------------------------------------------------------

struct Graph {
    ggml_context * context = ggml_init({16 << 20, nullptr, true});
    ggml_backend_dev_t device = ggml_backend_reg_dev_get(ggml_backend_init(), 0);
    ggml_backend_t backend = ggml_backend_dev_init(device, nullptr);
    std::vector<ggml_backend_buffer_t> buffers;

    ~Graph() {
        for (const auto buffer : buffers) ggml_backend_buffer_free(buffer);
        ggml_backend_free(backend);
        ggml_free(context);
    }

    void set_threads(int threads) {
        using SetThreads = void (*)(ggml_backend_t, int);
        void * set = ggml_backend_reg_get_proc_address(ggml_backend_init(), "ggml_backend_set_n_threads");
        reinterpret_cast<SetThreads>(set)(backend, threads);
    }

    void place(ggml_tensor * t, ggml_backend_buffer_usage usage, const void * data) {
        ggml_backend_buffer_type_t type = ggml_backend_dev_buffer_type(device);
        ggml_backend_buffer_t buffer = ggml_backend_buft_alloc_buffer(type, ggml_backend_buft_get_alloc_size(type, t));
        ggml_backend_buffer_set_usage(buffer, usage);
        buffers.push_back(buffer);
        ggml_backend_tensor_alloc(buffer, t, ggml_backend_buffer_get_base(buffer));
        if (data) ggml_backend_tensor_set(t, data, 0, ggml_nbytes(t));
    }
};

std::vector<float> run_block(const Problem & gate, const Problem & up, const std::vector<float> & x, int threads) {
    Graph g;
    ggml_tensor * input = ggml_new_tensor_2d(g.context, GGML_TYPE_F32, gate.k, gate.n);
    ggml_tensor * w1 = ggml_new_tensor_2d(g.context, gate.kernel.type, gate.k, gate.rows);
    ggml_tensor * w2 = ggml_new_tensor_2d(g.context, up.kernel.type, up.k, up.rows);
    ggml_tensor * norm = ggml_mul(g.context, ggml_rms_norm(g.context, input, 1e-5f), input);
    ggml_tensor * a = ggml_mul_mat(g.context, w1, norm);
    ggml_tensor * b = ggml_mul_mat(g.context, w2, norm);
    ggml_tensor * out = ggml_add(g.context, ggml_swiglu_split(g.context, a, b), a);
    ggml_cgraph * graph = ggml_new_graph(g.context);
    ggml_build_forward_expand(graph, out);
    g.place(input, GGML_BACKEND_BUFFER_USAGE_COMPUTE, x.data());
    g.place(w1, GGML_BACKEND_BUFFER_USAGE_WEIGHTS, gate.source.data());
    g.place(w2, GGML_BACKEND_BUFFER_USAGE_WEIGHTS, up.source.data());
    for (int i = 0; i < ggml_graph_n_nodes(graph); i++) {
        ggml_tensor * node = ggml_graph_node(graph, i);
        if (!ggml_backend_dev_supports_op(g.device, node)) broken("not supported", gate.kernel.type, gate.k, gate.rows, gate.n);
        g.place(node, GGML_BACKEND_BUFFER_USAGE_COMPUTE, nullptr);
    }
    g.set_threads(threads);
    ggml_backend_graph_compute(g.backend, graph);
    std::vector<float> y(size_t(gate.n * gate.rows));
    ggml_backend_tensor_get(out, y.data(), 0, y.size() * sizeof(float));
    return y;
}

// silu(gate(h)) * up(h) + gate(h), h = x^2 / rms(x), from the products as the kernels give them.
std::vector<double> expected_block(const Problem & gate, const Problem & up, const std::vector<float> & x) {
    std::vector<float> h(x.size());
    for (int64_t j = 0; j < gate.n; j++) {
        double squares = 0;
        for (int64_t i = 0; i < gate.k; i++) squares += double(x[size_t(j * gate.k + i)]) * x[size_t(j * gate.k + i)];
        const double scale = 1 / std::sqrt(squares / double(gate.k) + 1e-5);
        for (int64_t i = 0; i < gate.k; i++) {
            const float v = x[size_t(j * gate.k + i)];
            h[size_t(j * gate.k + i)] = float(v * scale) * v;
        }
    }
    const std::vector<float> a = gate.product(h.data(), gate.n), b = up.product(h.data(), gate.n);
    std::vector<double> out(a.size());
    for (size_t i = 0; i < out.size(); i++) out[i] = a[i] / (1 + std::exp(-double(a[i]))) * b[i] + a[i];
    return out;
}

void check_graph() {
    const Kernel * kernels = all_kernels();
    const Kernel & one = kernels[between(0, 9)];
    const Kernel & two = kernels[between(0, 9)];
    const int64_t k = 256 * between(1, 3), rows = lanes() * between(1, 5), n = between(1, 20);
    const Problem gate(one, k, rows, n), up(two, k, rows, n);
    const std::vector<float> x = numbers(n, k, 1);
    const std::vector<double> expected = expected_block(gate, up, x);
    const std::vector<float> single = run_block(gate, up, x, 1);
    double squares = 0, worst = 0;
    for (size_t i = 0; i < single.size(); i++) {
        squares += expected[i] * expected[i];
        worst = std::fmax(worst, std::fabs(expected[i] - single[i]));
    }
    // A result of the norm that is rounded the other way can move a quant by one step.
    if (!(worst <= 0.05 * std::sqrt(squares / double(single.size())) + 1e-6)) broken("graph", one.type, k, rows, n);
    for (const int threads : {2, 3}) {
        const std::vector<float> y = run_block(gate, up, x, threads);
        if (std::memcmp(y.data(), single.data(), y.size() * sizeof(float)))
            broken("threads change the result", one.type, k, rows, n);
    }
}

// ---- packed weights that are wanted for something else -----------------------------------------

int errors_logged;
void count_errors(ggml_log_level level, const char *, void *) { errors_logged += level == GGML_LOG_LEVEL_ERROR; }

void check_misuse() {
    const Problem p(all_kernels()[between(0, 9)], 256, 2 * lanes(), 1);
    ggml_log_set(count_errors, nullptr);
    for (int misuse = 0; misuse < 4; misuse++) {
        Graph g;
        ggml_tensor * w = ggml_new_tensor_2d(g.context, p.kernel.type, p.k, p.rows);
        ggml_tensor * x = ggml_new_tensor_2d(g.context, GGML_TYPE_F32, p.k, p.n);
        g.place(w, GGML_BACKEND_BUFFER_USAGE_WEIGHTS, p.source.data());
        g.place(x, GGML_BACKEND_BUFFER_USAGE_COMPUTE, p.x.data());
        ggml_tensor * product = ggml_mul_mat(g.context, w, x);
        g.place(product, GGML_BACKEND_BUFFER_USAGE_COMPUTE, nullptr);
        ggml_cgraph * graph = ggml_new_graph(g.context);
        ggml_build_forward_expand(graph, product);
        g.set_threads(1);
        errors_logged = 0;
        if (ggml_backend_graph_compute(g.backend, graph) != GGML_STATUS_SUCCESS || errors_logged)
            broken("a product is refused", p.kernel.type, p.k, p.rows, p.n);
        ggml_tensor * ids = ggml_new_tensor_1d(g.context, GGML_TYPE_I32, 1);
        ggml_tensor * other = misuse == 0 ? ggml_get_rows(g.context, w, ids)
                              : misuse == 1 ? ggml_view_2d(g.context, w, p.k, 1, w->nb[1], w->nb[1])
                              : misuse == 2 ? ggml_cont(g.context, w)
                                            : ggml_mul_mat(g.context, ggml_reshape_2d(g.context, w, p.k, p.rows), x);
        if (!ggml_backend_dev_supports_op(g.device, other)) broken("left to others", p.kernel.type, p.k, p.rows, p.n);
        if (ggml_backend_graph_compute(g.backend, graph) != GGML_STATUS_FAILED || errors_logged != 1)
            broken("misuse is not refused", p.kernel.type, p.k, p.rows, p.n);
    }
    ggml_log_set(nullptr, nullptr);
}

// ---- attention ---------------------------------------------------------------------------------

struct Attention {
    int64_t width = 16 * between(1, 8), heads_of_keys = between(1, 3), group = between(1, 4);
    int64_t positions = 16 * between(1, between(0, 1) ? 9 : 40), n = between(1, 12);
    int64_t heads = heads_of_keys * group;
    float scale = 1 / std::sqrt(float(width));
    std::vector<float> q = normal(width * n * heads), k = normal(width * positions * heads_of_keys);
    std::vector<float> v = normal(width * positions * heads_of_keys);
    std::vector<float> mask = std::vector<float>(size_t(positions * n));

    static std::vector<float> normal(int64_t size) {
        std::normal_distribution<float> one;
        std::vector<float> out(static_cast<size_t>(size));
        for (float & x : out) x = ggml_fp16_to_fp32(ggml_fp32_to_fp16(one(random_bits)));
        return out;
    }

    Attention() { fill_masks(); }

    // Another of the same shape.
    Attention again() const {
        Attention other = *this;
        other.q = normal(int64_t(q.size()));
        other.k = normal(int64_t(k.size()));
        other.v = normal(int64_t(v.size()));
        other.fill_masks();
        return other;
    }

    // The same with unused positions between.
    Attention with_gaps() const {
        Attention other = *this;
        other.positions += 16 * between(1, 9);
        std::vector<int64_t> places(static_cast<size_t>(other.positions));
        for (size_t p = 0; p < places.size(); p++) places[p] = int64_t(p);
        std::shuffle(places.begin(), places.end(), random_bits);
        places.resize(size_t(positions));
        std::sort(places.begin(), places.end());
        other.k.assign(size_t(width * other.positions * heads_of_keys), NAN);
        other.v = other.k;
        other.mask.assign(size_t(other.positions * n), -INFINITY);
        for (int64_t p = 0; p < positions; p++) {
            const int64_t place = places[size_t(p)];
            for (int64_t j = 0; j < n; j++)
                other.mask[size_t(j * other.positions + place)] = mask[size_t(j * positions + p)];
            for (int64_t h = 0; h < heads_of_keys; h++) {
                std::copy_n(row(k, h, p), width, &other.k[size_t((h * other.positions + place) * width)]);
                std::copy_n(row(v, h, p), width, &other.v[size_t((h * other.positions + place) * width)]);
            }
        }
        return other;
    }

    // Positions that no query sees hold NaN, as memory does that nobody wrote to.
    void fill_masks() {
        for (int64_t p = 0; p < positions; p++) {
            const bool unused = between(0, 3) == 0;
            for (int64_t j = 0; j < n; j++)
                mask[size_t(j * positions + p)] = unused || between(0, 2) == 0 ? -INFINITY : 0;
            if (unused)
                for (int64_t i = 0; i < width * heads_of_keys; i++) key(k, i, p) = key(v, i, p) = NAN;
        }
    }

    // The masks of conversations whose cells lie mixed: some have a beginning in common, some cells
    // are nobody's, and of its own last cells a token sees those up to its own.
    void mix_conversations() {
        const int64_t conversations = between(1, 5), in_common = between(0, 3);
        std::vector<int64_t> of_token, tokens(size_t(conversations), 0);
        for (int64_t j = 0; j < n; j++) of_token.push_back(between(0, conversations - 1));
        for (int64_t j = 0; j < n; j++) tokens[size_t(of_token[size_t(j)])]++;
        std::vector<int64_t> owner;
        for (int64_t p = 0; p < positions; p++) owner.push_back(between(0, 3) < in_common ? -2 : between(-1, conversations - 1));
        for (int64_t j = n - 1; j >= 0; j--) {
            const int64_t mine = of_token[size_t(j)];
            int64_t hidden = tokens[size_t(mine)] - 1;
            for (int64_t k = 0; k < j; k++) hidden -= of_token[size_t(k)] == mine;
            for (int64_t p = positions - 1; p >= 0; p--) {
                const bool shown = owner[size_t(p)] == -2 || (owner[size_t(p)] == mine && hidden-- <= 0);
                mask[size_t(j * positions + p)] = shown ? 0 : -INFINITY;
            }
        }
        k = normal(int64_t(k.size()));  // no NaN that somebody sees
        v = normal(int64_t(v.size()));
    }

    float & key(std::vector<float> & t, int64_t i, int64_t p) {
        return t[size_t((i / width * positions + p) * width + i % width)];
    }
    const float * row(const std::vector<float> & t, int64_t head, int64_t p) const {
        return &t[size_t((head * positions + p) * width)];
    }

    // Queries `first` .. `first` + `count` - 1; the result is [heads][width] for each.
    std::vector<float> run(int64_t first, int64_t count, int threads) const {
        return run(first, count, threads, {this});
    }

    // The same of several of one shape, each a stream of its own: [streams][count][heads][width].
    static std::vector<float> run(int64_t first, int64_t count, int threads, std::vector<const Attention *> all) {
        const Attention & a = *all[0];
        const int64_t width = a.width, positions = a.positions, heads = a.heads, n = a.n;
        const int64_t heads_of_keys = a.heads_of_keys, streams = int64_t(all.size());
        const auto halves = [](const float * x, int64_t size) {
            std::vector<ggml_fp16_t> out(static_cast<size_t>(size));
            ggml_fp32_to_fp16_row(x, out.data(), size);
            return out;
        };
        std::vector<float> some, keys, values, masks;
        for (const Attention * each : all) {
            for (int64_t h = 0; h < heads; h++) {
                const float * begin = &each->q[size_t((h * n + first) * width)];
                some.insert(some.end(), begin, begin + count * width);
            }
            keys.insert(keys.end(), each->k.begin(), each->k.end());
            values.insert(values.end(), each->v.begin(), each->v.end());
            const float * begin = &each->mask[size_t(first * positions)];
            masks.insert(masks.end(), begin, begin + count * positions);
        }
        Graph g;
        ggml_tensor * tq = ggml_new_tensor_4d(g.context, GGML_TYPE_F32, width, count, heads, streams);
        ggml_tensor * tk = ggml_new_tensor_4d(g.context, GGML_TYPE_F16, width, positions, heads_of_keys, streams);
        ggml_tensor * tv = ggml_new_tensor_4d(g.context, GGML_TYPE_F16, width, positions, heads_of_keys, streams);
        ggml_tensor * tm = ggml_new_tensor_4d(g.context, GGML_TYPE_F16, positions, count, 1, streams);
        ggml_tensor * out = ggml_flash_attn_ext(g.context, tq, tk, tv, tm, a.scale, 0, 0);
        ggml_cgraph * graph = ggml_new_graph(g.context);
        ggml_build_forward_expand(graph, out);
        const int64_t cells = width * positions * heads_of_keys * streams;
        g.place(tq, GGML_BACKEND_BUFFER_USAGE_COMPUTE, some.data());
        g.place(tk, GGML_BACKEND_BUFFER_USAGE_COMPUTE, halves(keys.data(), cells).data());
        g.place(tv, GGML_BACKEND_BUFFER_USAGE_COMPUTE, halves(values.data(), cells).data());
        g.place(tm, GGML_BACKEND_BUFFER_USAGE_COMPUTE, halves(masks.data(), count * positions * streams).data());
        g.place(out, GGML_BACKEND_BUFFER_USAGE_COMPUTE, nullptr);
        if (!ggml_backend_dev_supports_op(g.device, out)) broken("attention is not supported", GGML_TYPE_F16, width, positions, n);
        g.set_threads(threads);
        ggml_backend_graph_compute(g.backend, graph);
        std::vector<float> y(size_t(count * heads * width * streams));
        ggml_backend_tensor_get(out, y.data(), 0, y.size() * sizeof(float));
        return y;
    }

    std::vector<double> exact(int64_t j, int64_t head) const {
        std::vector<double> weights(size_t(positions), 0.0), out(size_t(width), 0.0);
        double largest = -INFINITY, sum = 0;
        for (int64_t p = 0; p < positions; p++) {
            if (mask[size_t(j * positions + p)] != 0) continue;
            double logit = 0;
            for (int64_t i = 0; i < width; i++) logit += double(q[size_t((head * n + j) * width + i)]) * row(k, head / group, p)[i];
            weights[size_t(p)] = logit * scale;
            largest = std::fmax(largest, weights[size_t(p)]);
        }
        for (int64_t p = 0; p < positions; p++) {
            if (mask[size_t(j * positions + p)] != 0) continue;
            const double weight = std::exp(weights[size_t(p)] - largest);
            sum += weight;
            for (int64_t i = 0; i < width; i++) out[size_t(i)] += weight * row(v, head / group, p)[i];
        }
        for (double & x : out) x = sum > 0 ? x / sum : 0;
        return out;
    }
};

void check_attention(const Attention & a) {
    const std::vector<float> y = a.run(0, a.n, 1);
    for (int64_t j = 0; j < a.n; j++) {
        for (int64_t h = 0; h < a.heads; h++) {
            const std::vector<double> exact = a.exact(j, h);
            for (int64_t i = 0; i < a.width; i++)
                if (!(std::fabs(exact[size_t(i)] - y[size_t((j * a.heads + h) * a.width + i)]) < 1e-4))
                    broken("attention", GGML_TYPE_F16, a.width, a.positions, a.n);
        }
        const std::vector<float> alone = a.run(j, 1, 2);
        if (std::memcmp(alone.data(), &y[size_t(j * a.heads * a.width)], alone.size() * sizeof(float)))
            broken("a query depends on the others", GGML_TYPE_F16, a.width, a.positions, a.n);
    }
    for (const int threads : {2, 3, 8})
        if (a.run(0, a.n, threads) != y) broken("threads change attention", GGML_TYPE_F16, a.width, a.positions, a.n);
    if (a.with_gaps().run(0, a.n, 2) != y) broken("a gap changes attention", GGML_TYPE_F16, a.width, a.positions, a.n);
    const Attention b = a.again(), c = a.again();
    const std::vector<float> together = Attention::run(0, a.n, 2, {&a, &b, &c});
    size_t begin = 0;
    for (const Attention * each : {&a, &b, &c}) {
        const std::vector<float> alone = each->run(0, a.n, 1);
        if (std::memcmp(alone.data(), &together[begin], alone.size() * sizeof(float)))
            broken("a stream depends on the others", GGML_TYPE_F16, a.width, a.positions, a.n);
        begin += alone.size();
    }
}

// Tokens of a cohort see much the same cells, and it lists those that one of them sees.
void check_cohorts(const Attention & a) {
    const auto shows = [&](int64_t token, int64_t cell) { return a.mask[size_t(token * a.positions + cell)] == 0; };
    const auto law = [&](const char * name, bool holds) {
        if (!holds) broken(name, GGML_TYPE_F16, a.width, a.positions, a.n);
    };
    Graph g;
    ggml_tensor * mask = ggml_new_tensor_2d(g.context, GGML_TYPE_F16, a.positions, a.n);
    std::vector<ggml_fp16_t> halves(a.mask.size());
    ggml_fp32_to_fp16_row(a.mask.data(), halves.data(), int64_t(halves.size()));
    g.place(mask, GGML_BACKEND_BUFFER_USAGE_COMPUTE, halves.data());
    Cohorts cohorts;
    const int64_t most = between(1, 16);
    cohorts.reserve(mask);
    for (int share = 0; share < 3; share++) cohorts.look(mask, share, 3);
    law("new cohorts are known", cohorts.form(mask, most));
    std::vector<int> found(size_t(a.n), 0);
    for (const Cohort & each : cohorts.all()) {
        int64_t seen = 0, tokens = int64_t(each.tokens.size());
        law("a cohort is too large", tokens <= most);
        for (const int64_t token : each.tokens) {
            found[size_t(token)]++;
            seen += cohorts.seen(0, token);
            bool shared = tokens == 1;
            for (const int64_t other : each.tokens)
                for (int64_t p = 0; p < a.positions && other != token && !shared; p++) shared = shows(token, p) && shows(other, p);
            law("a cohort mixes tokens that share no cell", shared);
        }
        size_t listed = 0;
        for (int64_t p = 0; p < a.positions; p++) {
            bool any = false;
            for (const int64_t token : each.tokens) any |= shows(token, p);
            if (any) law("a cell is not listed", listed < each.cells.size() && each.cells[listed++] == p);
        }
        law("a cell is listed that nobody sees", listed == each.cells.size());
        law("a cohort idles", tokens * int64_t(listed) <= seen + seen / 8 + tokens * 16);
    }
    law("a token is in no cohort, or in two", std::count(found.begin(), found.end(), 1) == a.n);
    for (int share = 0; share < 2; share++) cohorts.look(mask, share, 2);
    law("known cohorts are formed again", !cohorts.form(mask, most));
}

void check_attention() {
    Attention a;
    check_attention(a);
    check_cohorts(a);
    a.mix_conversations();
    check_attention(a);
    check_cohorts(a);
}

}  // namespace

int main(int count, char ** arguments) {
    random_bits.seed(count > 1 ? unsigned(std::atoi(arguments[1])) : 1);
    const int rounds = count > 2 ? std::atoi(arguments[2]) : 5;
    spec_cpu_accept(true);
    for (int round = 0; round < rounds; round++) {
        for (const Kernel * kernel = all_kernels(); kernel->type != GGML_TYPE_COUNT; kernel++) check_kernel(*kernel);
        check_graph();
        check_misuse();
        check_attention();
    }
    std::printf("%s: ok\n", isa());
}
