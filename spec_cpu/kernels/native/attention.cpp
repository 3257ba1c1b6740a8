#include "attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "simd.h"

namespace spec_cpu {

namespace {

constexpr int MOST_QUERIES = 4;  // of a task: they share the conversion of keys and values
constexpr int STRIP = 4;         // vectors of a value that are summed together
constexpr int MOST_WIDTH = 256;  // of a head

const char * at(const ggml_tensor * t, int64_t i1, int64_t i2, int64_t i3) {
    return static_cast<const char *>(t->data) + i1 * int64_t(t->nb[1]) + i2 * int64_t(t->nb[2]) +
           i3 * int64_t(t->nb[3]);
}

const uint16_t * halves_at(const ggml_tensor * t, int64_t i1, int64_t i2, int64_t i3) {
    return reinterpret_cast<const uint16_t *>(at(t, i1, i2, i3));
}

// Fewer queries a task where there are few, so that all threads have work.
int64_t queries_of_a_task(const ggml_tensor * op, int threads) {
    const int64_t queries = op->src[0]->ne[1] * op->src[0]->ne[2] * op->src[0]->ne[3];
    return std::clamp<int64_t>(queries / (8 * threads), 1, MOST_QUERIES);
}

// Queries that attend to one head of keys: those of a group of heads, token by token.
int64_t queries_of_a_head(const ggml_tensor * op) {
    return op->src[0]->ne[1] * op->src[0]->ne[2] / op->src[1]->ne[2];
}

int64_t tasks_of_a_head(const ggml_tensor * op, int threads) {
    const int64_t size = queries_of_a_task(op, threads);
    return (queries_of_a_head(op) + size - 1) / size;
}

struct Query {
    const float * q;
    const uint16_t * mask;
    float * out;
    float * weights;  // of all positions; their logits at first
};

struct Task {
    const ggml_tensor * op;
    int64_t stream;  // sequences with a cache of their own each
    int64_t head;    // of keys and values
    int64_t positions;
    int64_t width, value_width;
    float scale;
    int n;
    Query queries[MOST_QUERIES];

    Task(const ggml_tensor * of, int threads, int64_t task, float * scratch) : op(of) {
        const ggml_tensor * q = op->src[0];
        const ggml_tensor * k = op->src[1];
        const int64_t per_head = tasks_of_a_head(op, threads), size = queries_of_a_task(op, threads);
        const int64_t group = q->ne[2] / k->ne[2];
        stream = task / (per_head * k->ne[2]);
        head = task / per_head % k->ne[2];
        positions = k->ne[1];
        width = k->ne[0];
        value_width = op->src[2]->ne[0];
        std::memcpy(&scale, op->op_params, sizeof scale);
        const int64_t first = task % per_head * size;
        n = int(std::min(size, queries_of_a_head(op) - first));
        for (int i = 0; i < n; i++) {
            const int64_t token = (first + i) / group, of_head = head * group + (first + i) % group;
            queries[i] = {
                reinterpret_cast<const float *>(at(q, token, of_head, stream)),
                halves_at(op->src[3], token, of_head % op->src[3]->ne[2], stream % op->src[3]->ne[3]),
                reinterpret_cast<float *>(const_cast<char *>(at(op, of_head, token, stream))),
                scratch + i * positions,
            };
        }
    }

    // Lanes of the block of positions that any query sees, as bits.
    uint32_t seen(int64_t block) const {
        uint32_t bits = 0;
        for (int i = 0; i < n; i++)
            bits |= lanes_above(load_f16(queries[i].mask + block), every_float(-INFINITY));
        return bits;
    }
};

// The logits of a block of positions, for all queries. Positions that none sees may hold anything.
void score_block(Task & task, int64_t block, uint32_t seen) {
    Floats partial[MOST_QUERIES][LANES];
    const int vectors = int(task.width / LANES);
    for (int p = 0; p < LANES; p++) {
        if (!(seen >> p & 1)) {
            for (int i = 0; i < task.n; i++) partial[i][p] = zero_floats();
            continue;
        }
        const uint16_t * key = halves_at(task.op->src[1], block + p, task.head, task.stream);
        Floats keys[MOST_WIDTH / LANES];
        for (int v = 0; v < vectors; v++) keys[v] = load_f16(key + v * LANES);
        for (int i = 0; i < task.n; i++) {
            const float * q = task.queries[i].q;
            Floats sum = mul(keys[0], load_floats(q));
            for (int v = 1; v < vectors; v++) sum = fma(keys[v], load_floats(q + v * LANES), sum);
            partial[i][p] = sum;
        }
    }
    for (int i = 0; i < task.n; i++) {
        Query & query = task.queries[i];
        const Floats mask = load_f16(query.mask + block);
        const Floats logits = fma(sums_of(partial[i]), every_float(task.scale), mask);
        store(query.weights + block, logits);
    }
}

// From logits to e^(logit - largest); 0 where the mask is -infinity. Returns 1 / their sum; 0 for none.
float weigh(const Task & task, Query & query) {
    Floats largest = every_float(-INFINITY);
    for (int64_t p = 0; p < task.positions; p += LANES) largest = larger(load_floats(query.weights + p), largest);
    float lanes[LANES];
    store(lanes, largest);
    const float most = *std::max_element(lanes, lanes + LANES);
    Floats sum = zero_floats();
    for (int64_t p = 0; p < task.positions; p += LANES) {
        const Floats e = exponential(add(load_floats(query.weights + p), every_float(-most)));
        const Floats weights = zero_unless_above(e, load_f16(query.mask + p), every_float(-INFINITY));
        store(query.weights + p, weights);
        sum = add(sum, weights);
    }
    const float all = sum_of(sum);
    return all == 0 ? 0 : 1 / all;
}

// Sums VECTORS vectors of the values, from vector `first` on, weighted, for N queries.
template <int N, int VECTORS> void sum_strip(Task & task, int64_t first, const float * scales) {
    Floats acc[N][VECTORS];
    for (auto & query : acc)
        for (Floats & a : query) a = zero_floats();
    for (int64_t block = 0; block < task.positions; block += LANES) {
        uint32_t seen = task.seen(block);
        for (; seen; seen &= seen - 1) {
            const int64_t p = block + __builtin_ctz(seen);
            const uint16_t * value = halves_at(task.op->src[2], p, task.head, task.stream) + first * LANES;
#pragma GCC unroll 4
            for (int v = 0; v < VECTORS; v++) {
                const Floats x = load_f16(value + v * LANES);
#pragma GCC unroll 4
                for (int i = 0; i < N; i++) acc[i][v] = fma(x, every_float(task.queries[i].weights[p]), acc[i][v]);
            }
        }
    }
    for (int i = 0; i < N; i++)
        for (int v = 0; v < VECTORS; v++)
            store(task.queries[i].out + (first + v) * LANES, mul(acc[i][v], every_float(scales[i])));
}

template <int N> void sum_values(Task & task, const float * scales) {
    const int64_t vectors = task.value_width / LANES;
    int64_t first = 0;
    for (; first + STRIP <= vectors; first += STRIP) sum_strip<N, STRIP>(task, first, scales);
    for (; first < vectors; first++) sum_strip<N, 1>(task, first, scales);
}

}  // namespace

bool is_attention(const ggml_tensor * op) {
    if (op->op != GGML_OP_FLASH_ATTN_EXT || op->src[4]) return false;
    const ggml_tensor * q = op->src[0];
    const ggml_tensor * k = op->src[1];
    const ggml_tensor * v = op->src[2];
    const ggml_tensor * mask = op->src[3];
    float parameters[3];  // scale, bias by distance, cap of the logits
    std::memcpy(parameters, op->op_params, sizeof parameters);
    return mask && parameters[1] == 0 && parameters[2] == 0 && q->type == GGML_TYPE_F32 &&
           k->type == GGML_TYPE_F16 && v->type == GGML_TYPE_F16 && mask->type == GGML_TYPE_F16 &&
           q->nb[0] == sizeof(float) && k->nb[0] == 2 && v->nb[0] == 2 && op->nb[0] == sizeof(float) &&
           k->ne[3] == q->ne[3] && v->ne[3] == q->ne[3] && k->ne[2] == v->ne[2] &&
           k->ne[1] % LANES == 0 && k->ne[0] % LANES == 0 && k->ne[0] <= MOST_WIDTH && v->ne[0] % LANES == 0;
}

int64_t attention_tasks(const ggml_tensor * op, int threads) {
    return op->src[1]->ne[2] * op->src[1]->ne[3] * tasks_of_a_head(op, threads);
}

size_t attention_scratch(const ggml_tensor * op) { return size_t(MOST_QUERIES * op->src[1]->ne[1]); }

void attend(const ggml_tensor * op, int threads, int64_t number, float * scratch) {
    Task task(op, threads, number, scratch);
    for (int64_t block = 0; block < task.positions; block += LANES) {
        const uint32_t seen = task.seen(block);
        if (seen) score_block(task, block, seen);
        else
            for (int i = 0; i < task.n; i++) store(task.queries[i].weights + block, every_float(-INFINITY));
    }
    float scales[MOST_QUERIES];
    for (int i = 0; i < task.n; i++) scales[i] = weigh(task, task.queries[i]);
    switch (task.n) {
        case 1: return sum_values<1>(task, scales);
        case 2: return sum_values<2>(task, scales);
        case 3: return sum_values<3>(task, scales);
        default: return sum_values<4>(task, scales);
    }
}

}  // namespace spec_cpu
