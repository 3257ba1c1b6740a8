#include "attention.h"

#include <algorithm>
#include <cstring>

#include "attention_kernels.h"

namespace spec_cpu {

namespace {

constexpr int64_t MOST_QUERIES = 64;  // of a tile
constexpr int64_t ROWS = 32;          // values that are converted together
constexpr int64_t AHEAD = CHUNK;      // cells that are fetched before they are needed
constexpr int64_t HALVES_OF_A_LINE = 32;

const char * at(const ggml_tensor * t, int64_t i1, int64_t i2, int64_t i3) {
    return static_cast<const char *>(t->data) + i1 * int64_t(t->nb[1]) + i2 * int64_t(t->nb[2]) +
           i3 * int64_t(t->nb[3]);
}

const uint16_t * halves_at(const ggml_tensor * t, int64_t i1, int64_t i2, int64_t i3) {
    return reinterpret_cast<const uint16_t *>(at(t, i1, i2, i3));
}

// Queries of one head of keys, chunk by chunk.
class Tile {
  public:
    Tile(const Attention & of, int64_t number, AttentionScratch & with) : a(of), scratch(with) {
        const ggml_tensor *q = a.op->src[0], *mask = a.op->src[3];
        stream = number / (a.heads * a.tiles_of_a_head);
        head = number / a.tiles_of_a_head % a.heads;
        const int64_t begin = number % a.tiles_of_a_head * a.tile;
        n = std::min(a.tile, a.queries - begin);
        first = (stream * a.heads + head) * a.queries + begin;
        const int64_t first_token = begin / a.group;
        tokens = (begin + n - 1) / a.group - first_token + 1;
        for (int64_t t = 0; t < tokens; t++) token[t].mask = halves_at(mask, first_token + t, 0, stream % mask->ne[3]);
        for (int64_t i = 0; i < n; i++) {
            const int64_t t = (begin + i) / a.group, of_head = head * a.group + (begin + i) % a.group;
            query[i].q = reinterpret_cast<const float *>(at(q, t, of_head, stream));
            query[i].token = &token[t - first_token];
            query[i].out = reinterpret_cast<float *>(const_cast<char *>(at(a.op, of_head, t, stream)));
        }
    }

    // `next` is to give chunk `number`.
    void start(int64_t number) {
        for (int64_t t = 0; t < tokens; t++) token[t].end = behind(token[t].mask, 0, a.positions, number * CHUNK);
    }

    // Leaves what comes of each query's next chunk in `chunk`. False: nothing, and nothing will.
    bool next() {
        for (int64_t i = 0; i < n; i++) clear(chunk[i], a.value_width);
        find_cells();
        if (cells == 0) return false;
        pick_masks();
        score_cells();
        for (int64_t i = 0; i < n; i++) weigh(query[i], padded, chunk[i]);
        sum_values();
        return true;
    }

    const Attention & a;
    AttentionScratch & scratch;
    int64_t n;
    int64_t first;  // of its queries, among all of the operation
    Query query[MOST_QUERIES];
    Partial chunk[MOST_QUERIES];

  private:
    // The cells that any query sees in its next chunk.
    void find_cells() {
        int64_t low = a.positions, high = 0;
        for (int64_t t = 0; t < tokens; t++) {
            token[t].begin = token[t].end;
            token[t].end = behind(token[t].mask, token[t].begin, a.positions, CHUNK);
            low = std::min(low, token[t].begin);
            high = std::max(high, token[t].end);
        }
        scratch.cells.clear();
        for (int64_t block = low / CELLS * CELLS; block < high; block += CELLS) {
            uint32_t bits = 0;
            for (int64_t t = 0; t < tokens; t++) bits |= shown_in(token[t], block);
            for (; bits; bits &= bits - 1) scratch.cells.push_back(int32_t(block + __builtin_ctz(bits)));
        }
        cells = int64_t(scratch.cells.size());
        padded = parts(cells, LANES) * LANES;
        if (cells) scratch.cells.resize(size_t(padded), scratch.cells.back());
    }

    static uint32_t shown_in(const Token & token, int64_t block) {
        const int64_t from = std::clamp<int64_t>(token.begin - block, 0, CELLS);
        const int64_t to = std::clamp<int64_t>(token.end - block, 0, CELLS);
        return from < to ? shown(token.mask + block) & ((1u << to) - (1u << from)) : 0;
    }

    // Each token's mask of these cells; what belongs to another chunk of its own is masked.
    void pick_masks() {
        scratch.masks.assign(size_t(tokens * padded), MASKED);
        const int32_t *begin = scratch.cells.data(), *end = begin + cells;
        for (int64_t t = 0; t < tokens; t++) {
            uint16_t * picked = &scratch.masks[size_t(t * padded)];
            token[t].mask_of_cells = picked;
            const int32_t * from = std::lower_bound(begin, end, token[t].begin);
            const int32_t * to = std::lower_bound(from, end, token[t].end);
            picked += from - begin;
            if (from < to && to[-1] - *from == to - from - 1)
                std::memcpy(picked, token[t].mask + *from, size_t(to - from) * sizeof *picked);
            else
                for (; from < to; from++) *picked++ = token[t].mask[*from];
        }
    }

    void score_cells() {
        scratch.weights.resize(std::max(scratch.weights.size(), size_t(n * padded)));
        scratch.rows.resize(std::max(scratch.rows.size(), size_t(LANES * a.width)));
        for (int64_t i = 0; i < n; i++) query[i].weights = &scratch.weights[size_t(i * padded)];
        for (int64_t block = 0; block < padded; block += LANES) {
            convert(a.op->src[1], a.width, block, LANES);
            by_groups(n, [&](auto group, int64_t i) {
                const auto f = a.width == 64 ? score<group, 64> : a.width == 128 ? score<group, 128> : score<group, 0>;
                f(scratch.rows.data(), a.width, a.scale, query + i, block);
            });
        }
    }

    void sum_values() {
        scratch.rows.resize(std::max(scratch.rows.size(), size_t(ROWS * a.value_width)));
        for (int64_t block = 0; block < cells; block += ROWS) {
            const int64_t count = std::min(ROWS, cells - block);
            convert(a.op->src[2], a.value_width, block, count);
            by_groups(n, [&](auto group, int64_t i) {
                add_values<group>(scratch.rows.data(), a.value_width, count, query + i, block, chunk + i);
            });
        }
    }

    // Rows of keys or values as floats.
    void convert(const ggml_tensor * from, int64_t width, int64_t first_cell, int64_t count) {
        float * row = scratch.rows.data();
        for (int64_t i = 0; i < count; i++, row += width) {
            const uint16_t * halves = halves_at(from, scratch.cells[size_t(first_cell + i)], head, stream);
            const char * ahead = reinterpret_cast<const char *>(halves) + AHEAD * int64_t(from->nb[1]);
            for (int64_t x = 0; x < width; x += HALVES_OF_A_LINE) _mm_prefetch(ahead + 2 * x, _MM_HINT_T1);
            for (int64_t x = 0; x < width; x += LANES) store(row + x, load_f16(halves + x));
        }
    }

    int64_t stream, head, tokens, cells = 0, padded = 0;
    Token token[MOST_QUERIES];
};

// All chunks of a tile, folded as they come.
void run_alone(Tile & t) {
    const int64_t width = t.a.value_width, size = Partial::floats(width);
    std::vector<float> & memory = t.scratch.partials;
    memory.resize(std::max(memory.size(), size_t(2 * MOST_QUERIES * size)));
    Partial all[MOST_QUERIES];
    for (int64_t i = 0; i < t.n; i++) {
        all[i] = Partial(&memory[size_t(2 * i * size)], width);
        t.chunk[i] = Partial(&memory[size_t((2 * i + 1) * size)], width);
        clear(all[i], width);
    }
    while (t.next())
        for (int64_t i = 0; i < t.n; i++) fold(all[i], t.chunk[i], width);
    for (int64_t i = 0; i < t.n; i++) finish(all[i], width, t.query[i].out);
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
           k->ne[3] == q->ne[3] && v->ne[3] == q->ne[3] && k->ne[2] == v->ne[2] && mask->ne[2] == 1 &&
           k->ne[1] % CELLS == 0 && k->ne[0] % LANES == 0 && v->ne[0] % LANES == 0;
}

Attention::Attention(const ggml_tensor * of, int threads) : op(of) {
    const ggml_tensor *q = op->src[0], *k = op->src[1];
    streams = k->ne[3];
    heads = k->ne[2];
    group = q->ne[2] / heads;
    queries = group * q->ne[1];
    positions = k->ne[1];
    width = k->ne[0];
    value_width = op->src[2]->ne[0];
    std::memcpy(&scale, op->op_params, sizeof scale);
    chunks = parts(positions, CHUNK);
    share_out(threads > 1 ? 4 * threads : 1);
}

// Into `wanted` tasks or more: large tiles, each read once, if their chunks can be shared out.
void Attention::share_out(int64_t wanted) {
    const auto tiles_of = [&](int64_t size) { return streams * heads * parts(queries, size); };
    tile = parts(queries, parts(queries, MOST_QUERIES));
    const int64_t runs_of_one = queries <= MOST_QUERIES ? parts(chunks, 2) : 1;
    while (tile > 1 && tiles_of(tile) * runs_of_one < wanted) tile = parts(tile, 2);
    tiles_of_a_head = parts(queries, tile);
    const int64_t most_runs = queries <= MOST_QUERIES ? chunks : 1;
    run_length = parts(chunks, std::clamp<int64_t>(parts(wanted, tiles()), 1, most_runs));
    runs = parts(chunks, run_length);
}

size_t Attention::partials() const {
    return runs == 1 ? 0 : size_t(streams * heads * queries * chunks * Partial::floats(value_width));
}

void Attention::run(int64_t task, AttentionScratch & scratch, float * partials, std::atomic<int> * done) const {
    const int64_t number = task / runs, first_chunk = task % runs * run_length;
    Tile t(*this, number, scratch);
    t.start(first_chunk);
    if (runs == 1) return run_alone(t);
    const int64_t size = Partial::floats(value_width);
    const auto shared = [&](int64_t i, int64_t chunk) { return partials + ((t.first + i) * chunks + chunk) * size; };
    for (int64_t c = first_chunk; c < std::min(first_chunk + run_length, chunks); c++) {
        for (int64_t i = 0; i < t.n; i++) t.chunk[i] = Partial(shared(i, c), value_width);
        t.next();
    }
    if (done[number].fetch_add(1, std::memory_order_acq_rel) + 1 < runs) return;
    done[number].store(0, std::memory_order_relaxed);
    for (int64_t i = 0; i < t.n; i++) {
        for (int64_t c = 1; c < chunks; c++)
            fold(Partial(shared(i, 0), value_width), Partial(shared(i, c), value_width), value_width);
        finish(Partial(shared(i, 0), value_width), value_width, t.query[i].out);
    }
}

}  // namespace spec_cpu
