#include "attention.h"

#include <algorithm>
#include <cstring>

#include "attention_kernels.h"

namespace spec_cpu {

namespace {

constexpr int64_t MOST_QUERIES = 64;      // of a tile
constexpr int64_t MOST_TOKENS = 128;      // of a pass whose queries' chunks are shared out
constexpr int64_t TASKS_PER_THREAD = 4;   // so that a thread that was held up does not hold up all
constexpr int64_t CONVERSION = 4;         // queries whose products take as long as to convert what they are with
constexpr int64_t FLOATS = 4096;          // of values that are converted together: they stay at hand
constexpr int64_t LINE = 64;               // bytes
constexpr int64_t MOST_FETCHED = 16 * LINE;  // at once: a processor that waits for more waits with all it does
constexpr int64_t UNIT = 16;              // of widths and of the number of cells

const char * at(const ggml_tensor * t, int64_t i1, int64_t i2, int64_t i3) {
    return static_cast<const char *>(t->data) + i1 * int64_t(t->nb[1]) + i2 * int64_t(t->nb[2]) +
           i3 * int64_t(t->nb[3]);
}

const uint16_t * halves_at(const ggml_tensor * t, int64_t i1, int64_t i2, int64_t i3) {
    return reinterpret_cast<const uint16_t *>(at(t, i1, i2, i3));
}

int64_t heads_of_keys(const ggml_tensor * op) { return op->src[1]->ne[2]; }
int64_t group_of(const ggml_tensor * op) { return op->src[0]->ne[2] / heads_of_keys(op); }

// Room for `size` items in memory that is kept.
template <class T> T * room(std::vector<T> & memory, int64_t size) {
    if (memory.size() < size_t(size)) memory.resize(size_t(size));
    return memory.data();
}

// Keys or values of one head, of the cells of a list.
class Rows {
  public:
    Rows(const ggml_tensor * t, int64_t head, const Cohort & cohort)
        : first_(at(t, 0, head, cohort.stream)), stride_(int64_t(t->nb[1])), bytes_(2 * t->ne[0]), cells_(cohort.cells) {}

    const uint16_t * operator[](int64_t i) const { return reinterpret_cast<const uint16_t *>(row(i)); }

    // Fetches a few of these rows from memory that were not fetched before; false: there are none.
    bool fetch(int64_t begin, int64_t end) {
        end = std::min(end, int64_t(cells_.size()));
        fetched_ = std::max(fetched_, begin);
        if (fetched_ >= end) return false;
        for (int64_t bytes = 0; bytes < MOST_FETCHED && fetched_ < end; bytes += bytes_, fetched_++)
            for (int64_t x = 0; x < bytes_; x += LINE) _mm_prefetch(row(fetched_) + x, _MM_HINT_T1);
        return true;
    }

  private:
    const char * row(int64_t i) const { return first_ + cells_[size_t(i)] * stride_; }

    const char * first_;
    int64_t stride_, bytes_, fetched_ = 0;
    const std::vector<int32_t> & cells_;
};

// The queries of a tile, chunk by chunk.
class Tile {
  public:
    Tile(const ggml_tensor * op, const Cohorts & cohorts, const AttentionTile & tile, AttentionScratch & with)
        : n(tile.queries), width(op->src[1]->ne[0]), value_width(op->src[2]->ne[0]), scratch_(with),
          cohort_(cohorts.all()[size_t(tile.cohort)]), keys_(op->src[1], tile.head, cohort_),
          values_(op->src[2], tile.head, cohort_) {
        const ggml_tensor *q = op->src[0], *mask = op->src[3];
        const int64_t group = group_of(op), stream = cohort_.stream;
        std::memcpy(&scale_, op->op_params, sizeof scale_);
        const int64_t first_token = tile.first / group;
        tokens_ = (tile.first + n - 1) / group - first_token + 1;
        for (int64_t t = 0; t < tokens_; t++) {
            const int64_t of_cohort = first_token + t, number = cohort_.tokens[size_t(of_cohort)];
            const std::vector<int32_t> & ends = cohort_.ends[size_t(of_cohort)];
            token_[t].mask = halves_at(mask, number, 0, stream);
            token_[t].plain = cohorts.plain(stream, number);
            token_[t].seen = cohorts.seen(stream, number);
            token_[t].ends = ends.data();
            token_[t].chunks = int64_t(ends.size());
        }
        for (int64_t i = 0; i < n; i++) {
            const int64_t t = (tile.first + i) / group, of_head = tile.head * group + (tile.first + i) % group;
            const int64_t number = cohort_.tokens[size_t(t)];
            query_[i].q = reinterpret_cast<const float *>(at(q, number, of_head, stream));
            query_[i].token = &token_[t - first_token];
            query_[i].out = reinterpret_cast<float *>(const_cast<char *>(at(op, of_head, number, stream)));
        }
    }

    // Leaves what comes of each query's chunk `number` in `chunk`.
    void compute(int64_t number) {
        for (int64_t i = 0; i < n; i++) clear(chunk[i], value_width);
        find_cells(number);
        if (cells_ == 0) return;
        pick_masks(number);
        score_cells();
        for (int64_t i = 0; i < n; i++) {
            float * weights = query_[i].weights;
            std::fill(weights + cells_, weights + padded_, -INFINITY);
            if (query_[i].token->sees)
                weigh(weights, padded_, chunk[i]);
            else
                std::fill_n(weights, cells_, 0.f);
        }
        sum_values();
    }

    float * out(int64_t i) const { return query_[i].out; }

    const int64_t n, width, value_width;
    Partial chunk[MOST_QUERIES];

  private:
    int64_t begin_of(const Token & token, int64_t chunk) const { return chunk ? token.ends[chunk - 1] : 0; }

    // Where in the cohort's list those cells are that a query sees in its chunk.
    void find_cells(int64_t chunk) {
        int64_t end = 0;
        first_ = int64_t(cohort_.cells.size());
        for (int64_t t = 0; t < tokens_; t++) {
            token_[t].sees = chunk < token_[t].chunks;
            if (!token_[t].sees) continue;
            first_ = std::min(first_, begin_of(token_[t], chunk));
            end = std::max<int64_t>(end, token_[t].ends[chunk]);
        }
        cells_ = std::max<int64_t>(end - first_, 0);
        padded_ = parts(cells_, LANES) * LANES;
    }

    // Each token's mask of these cells, if it does not simply show all; what belongs to another chunk
    // of its own is masked.
    void pick_masks(int64_t chunk) {
        uint16_t * picked = room(scratch_.masks, tokens_ * padded_);
        for (int64_t t = 0; t < tokens_; t++, picked += padded_) {
            Token & token = token_[t];
            token.mask_of_cells = nullptr;
            if (!token.sees) continue;
            const int64_t begin = begin_of(token, chunk), end = token.ends[chunk];
            if (token.plain && end - begin == cells_ && std::min(token.seen - chunk * CHUNK, CHUNK) == cells_) continue;
            std::fill_n(picked, padded_, MASKED);
            for (int64_t i = begin; i < end; i++) picked[i - first_] = token.mask[cohort_.cells[size_t(i)]];
            token.mask_of_cells = picked;
        }
    }

    void score_cells() {
        float * weights = room(scratch_.weights, n * padded_);
        for (int64_t i = 0; i < n; i++) query_[i].weights = weights + i * padded_;
        for (int64_t block = 0; block < padded_; block += BLOCK) {
            const int64_t cells = std::min(BLOCK, padded_ - block);
            transpose_keys(block, cells);
            if (n <= TOGETHER)
                score_block(scratch_.halves.data(), block, cells);
            else
                score_block(as_floats(scratch_.halves.data(), cells * width), block, cells);
        }
    }

    // The keys of a vector of cells: their first numbers, their second ones, ...
    void transpose_keys(int64_t block, int64_t cells) {
        uint16_t * out = room(scratch_.halves, BLOCK * width);
        for (int64_t cell = 0; cell < cells; cell += 8) {
            const uint16_t * keys[8];
            for (int64_t i = 0; i < 8; i++) keys[i] = keys_[first_ + std::min(block + cell + i, cells_ - 1)];
            fetch();
            transpose(keys, width, out + cell / LANES * LANES * width + cell % LANES);
        }
    }

    const float * as_floats(const uint16_t * halves, int64_t count) {
        float * out = room(scratch_.rows, count);
        convert(halves, count, out);
        return out;
    }

    template <class Number> void score_block(const Number * keys, int64_t block, int64_t cells) {
        by_groups(n, [&](auto group, int64_t i) {
            constexpr int N = group, V = VECTORS<N>;
            int64_t cell = 0;
            for (; cell + V * LANES <= cells; cell += V * LANES) {
                fetch();
                score<N, V>(keys + cell * width, width, scale_, query_ + i, block + cell);
            }
            for (; cell < cells; cell += LANES) score<N, 1>(keys + cell * width, width, scale_, query_ + i, block + cell);
        });
    }

    void sum_values() {
        const int64_t rows = std::max<int64_t>(1, FLOATS / value_width);
        float * values = room(scratch_.rows, rows * value_width);
        for (int64_t block = 0; block < cells_; block += rows) {
            const int64_t count = std::min(rows, cells_ - block);
            for (int64_t i = 0; i < count; i++) {
                if (i % 8 == 0) fetch();
                convert(values_[first_ + block + i], value_width, values + i * value_width);
            }
            by_groups(n, [&](auto group, int64_t i) {
                add_values<group>(values, value_width, count, query_ + i, block, chunk + i, [&] { fetch(); });
            });
        }
    }

    // Called again and again between computations: fetches what comes next.
    void fetch() {
        const int64_t next = first_ + cells_, behind = next + cells_;
        values_.fetch(first_, next) || keys_.fetch(next, behind) || values_.fetch(next, behind);
    }

    AttentionScratch & scratch_;
    const Cohort & cohort_;
    Rows keys_, values_;
    int64_t tokens_, first_ = 0, cells_ = 0, padded_ = 0;
    float scale_;
    Token token_[MOST_QUERIES];
    Query query_[MOST_QUERIES];
};

// All chunks of a tile, folded as they come.
void run_alone(Tile & t, int64_t chunks, std::vector<float> & memory) {
    const int64_t width = t.value_width, size = Partial::floats(width);
    float * partials = room(memory, 2 * t.n * size);
    Partial all[MOST_QUERIES];
    for (int64_t i = 0; i < t.n; i++) {
        all[i] = Partial(partials + 2 * i * size, width);
        t.chunk[i] = Partial(partials + (2 * i + 1) * size, width);
        clear(all[i], width);
    }
    for (int64_t c = 0; c < chunks; c++) {
        t.compute(c);
        for (int64_t i = 0; i < t.n; i++) fold(all[i], t.chunk[i], width);
    }
    for (int64_t i = 0; i < t.n; i++) finish(all[i], width, t.out(i));
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
           mask->ne[1] == q->ne[1] && mask->ne[3] == k->ne[3] &&
           k->ne[1] % UNIT == 0 && k->ne[0] % UNIT == 0 && v->ne[0] % UNIT == 0;
}

void Attention::reserve(const ggml_tensor * op) { cohorts_.reserve(op->src[3]); }

bool Attention::look(const ggml_tensor * op, int thread, int threads) {
    cohorts_.look(op->src[3], thread, threads);
    if (looking_.fetch_add(1, std::memory_order_acq_rel) + 1 < threads) return false;
    looking_.store(0, std::memory_order_relaxed);
    return true;
}

void Attention::share_out(const ggml_tensor * op, int threads) {
    cohorts_.form(op->src[3], std::max<int64_t>(1, MOST_QUERIES / group_of(op)));
    cut_into_tiles(op, threads);
}

// Into tasks of much the same size, a few for each thread: large tiles, each read once, if their chunks
// can be shared out.
void Attention::cut_into_tiles(const ggml_tensor * op, int threads) {
    const int64_t heads = heads_of_keys(op), group = group_of(op), value_width = op->src[2]->ne[0];
    const bool few_tokens = op->src[0]->ne[1] * op->src[0]->ne[3] <= MOST_TOKENS;
    const auto work = [](int64_t queries, const Cohort & of) { return (queries + CONVERSION) * int64_t(of.cells.size()); };
    int64_t all = 0, partials = 0;
    for (const Cohort & each : cohorts_.all()) all += heads * work(int64_t(each.tokens.size()) * group, each);
    const int64_t share = threads > 1 ? parts(all, TASKS_PER_THREAD * threads) : all;
    tiles_.clear();
    tasks_ = 0;
    for (size_t c = 0; c < cohorts_.all().size(); c++) {
        const Cohort & cohort = cohorts_.all()[c];
        const int64_t queries = int64_t(cohort.tokens.size()) * group, chunks = std::max<int64_t>(cohort.chunks(), 1);
        const int64_t most_runs = few_tokens ? chunks : 1;
        const int64_t wanted = std::max<int64_t>(1, parts(work(queries, cohort), std::max<int64_t>(share, 1)));
        const int64_t cuts = std::min(queries, std::max(parts(queries, MOST_QUERIES), parts(wanted, most_runs)));
        const int64_t run_length = parts(chunks, std::clamp<int64_t>(parts(wanted, cuts), 1, most_runs));
        for (int64_t head = 0; head < heads; head++)
            for (int64_t cut = 0; cut < cuts; cut++) {
                const int64_t first = queries * cut / cuts, n = queries * (cut + 1) / cuts - first;
                const int64_t tasks = parts(chunks, run_length);
                tiles_.push_back({int64_t(c), head, first, n, chunks, run_length, tasks_, tasks, size_t(partials)});
                tasks_ += tasks;
                if (tasks > 1) partials += n * chunks * Partial::floats(value_width);
            }
    }
    room(partials_, partials);
    if (done_.size() < tiles_.size()) done_ = std::vector<std::atomic<int>>(tiles_.size());
}

void Attention::run(const ggml_tensor * op, int64_t task, AttentionScratch & scratch) {
    const auto behind = std::upper_bound(
        tiles_.begin(), tiles_.end(), task, [](int64_t number, const AttentionTile & each) { return number < each.first_task; });
    const AttentionTile & tile = behind[-1];
    Tile t(op, cohorts_, tile, scratch);
    if (tile.tasks == 1) return run_alone(t, tile.chunks, scratch.partials);
    const int64_t width = t.value_width, size = Partial::floats(width);
    const auto shared = [&](int64_t i, int64_t chunk) {
        return Partial(&partials_[tile.partials + size_t((i * tile.chunks + chunk) * size)], width);
    };
    const int64_t first_chunk = (task - tile.first_task) * tile.run_length;
    for (int64_t c = first_chunk; c < std::min(first_chunk + tile.run_length, tile.chunks); c++) {
        for (int64_t i = 0; i < t.n; i++) t.chunk[i] = shared(i, c);
        t.compute(c);
    }
    std::atomic<int> & done = done_[size_t(&tile - tiles_.data())];
    if (done.fetch_add(1, std::memory_order_acq_rel) + 1 < tile.tasks) return;
    done.store(0, std::memory_order_relaxed);
    for (int64_t i = 0; i < t.n; i++) {
        for (int64_t c = 1; c < tile.chunks; c++) fold(shared(i, 0), shared(i, c), width);
        finish(shared(i, 0), width, t.out(i));
    }
}

}  // namespace spec_cpu
