// What drawing a token asks of a whole row of logits: its largest, those near it, the k largest.
//
// `spec_cpu/logits.py` says the same in NumPy, and both give the same to the bit. A row is swept
// once, for the largest logit of each block; which blocks are looked into follows from those.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <new>
#include <vector>

#include "simd.h"

namespace {

using namespace spec_cpu;

// An array as NumPy describes it (`__array_struct__`, its PyArrayInterface).
struct Array {
    int two, dimensions;
    char kind;
    int item_bytes, flags;
    intptr_t *shape, *strides;
    void * data;
};

constexpr int CONTIGUOUS_ALIGNED_NATIVE = 0x1 | 0x100 | 0x200;  // NPY_ARRAY_...
constexpr int64_t NOT_FINITE = -1, CANNOT = -2;                 // what is returned in place of a count
constexpr int64_t BLOCK = 128;
constexpr float INF = std::numeric_limits<float>::infinity();

struct Candidate {
    float logit;
    int32_t id;
};

bool comes_first(const Candidate & a, const Candidate & b) {
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

bool is_row(const Array & a) {
    const int flags = a.flags & CONTIGUOUS_ALIGNED_NATIVE;
    return a.dimensions == 1 && a.kind == 'f' && a.item_bytes == sizeof(float) && flags == CONTIGUOUS_ALIGNED_NATIVE;
}

float largest_of(Floats x) {
    float lanes[LANES];
    store(lanes, x);
    return *std::max_element(lanes, lanes + LANES);
}

// A row, swept. The memory is the thread's, and the next row's.
class Row {
public:
    explicit Row(const Array & a) : logits_(static_cast<const float *>(a.data)), n_(a.shape[0]), maxima_(memory()) {
        maxima_.clear();
        Floats poison = zero_floats();  // NaN once there was one; -inf does not make one
        int64_t begin = 0;
        for (; begin + BLOCK <= n_; begin += BLOCK) {
            Floats most = every_float(-INF);
            for (int64_t i = begin; i < begin + BLOCK; i += LANES) {
                const Floats x = load_floats(logits_ + i);
                most = larger(most, x);
                poison = add(poison, smaller(zero_floats(), x));
            }
            maxima_.push_back(largest_of(most));
        }
        float rest = sum_of(poison);
        if (begin < n_) maxima_.push_back(-INF);
        for (; begin < n_; begin++) {
            maxima_.back() = std::max(maxima_.back(), logits_[begin]);
            rest += std::isnan(logits_[begin]) ? logits_[begin] : 0;
        }
        top_ = maxima_.empty() ? -INF : *std::max_element(maxima_.begin(), maxima_.end());
        finite_ = std::isfinite(top_) && !std::isnan(rest);
    }

    bool finite() const { return finite_; }
    float top() const { return top_; }

    // Calls each(id, logit) for those of at least `bound`, in order, until it returns false.
    template <typename Each> void at_least(float bound, Each each) const {
        for (size_t block = 0; block < maxima_.size(); block++) {
            if (maxima_[block] < bound) continue;
            const int64_t begin = int64_t(block) * BLOCK, end = std::min(begin + BLOCK, n_);
            for (int64_t i = begin; i < end; i++)
                if (logits_[i] >= bound && !each(i, logits_[i])) return;
        }
    }

    // The k largest, descending; of equal ones the first. `k` is at most the row's length.
    const std::vector<Candidate> & largest(int64_t k) const {
        static thread_local std::vector<Candidate> candidates;
        candidates.clear();
        at_least(floor_of(k), [](int64_t id, float logit) {
            candidates.push_back({logit, int32_t(id)});
            return true;
        });
        std::nth_element(candidates.begin(), candidates.begin() + k - 1, candidates.end(), comes_first);
        candidates.resize(size_t(k));
        std::sort(candidates.begin(), candidates.end(), comes_first);
        return candidates;
    }

private:
    static std::vector<float> & memory() {
        static thread_local std::vector<float> maxima;
        return maxima;
    }

    // At least k logits reach the k-th largest of the blocks' maxima.
    float floor_of(int64_t k) const {
        if (k > int64_t(maxima_.size())) return -INF;
        static thread_local std::vector<float> descending;
        descending = maxima_;
        std::nth_element(descending.begin(), descending.begin() + k - 1, descending.end(), std::greater<float>());
        return descending[size_t(k - 1)];
    }

    const float * logits_;
    int64_t n_;
    std::vector<float> & maxima_;
    float top_;
    bool finite_;
};

// Rounded, as NumPy's: out of the compiler's sight, which would make one operation of it and the
// difference that follows.
float product(float a, float b) {
    float rounded = a * b;
    __asm__("" : "+x"(rounded));
    return rounded;
}

// How many of the candidates, descending, together hold the share `top_p` of their weights.
int64_t holding(const std::vector<Candidate> & candidates, double top_p) {
    const double top = candidates.front().logit;
    static thread_local std::vector<double> sums;
    sums.clear();
    double sum = 0;
    for (const Candidate & each : candidates) sums.push_back(sum += std::exp(each.logit - top));
    return std::lower_bound(sums.begin(), sums.end(), top_p * sum) - sums.begin() + 1;
}

}  // namespace

#define EXPORTED extern "C" __attribute__((visibility("default")))

// Where the largest logit is; of equal ones the first.
EXPORTED int64_t spec_cpu_argmax(const Array * logits) try {
    if (!is_row(*logits)) return CANNOT;
    const Row row(*logits);
    if (!row.finite()) return NOT_FINITE;
    int64_t first = NOT_FINITE;
    row.at_least(row.top(), [&](int64_t id, float) {
        first = id;
        return false;
    });
    return first;
} catch (const std::bad_alloc &) {
    return CANNOT;
}

// The ids of those at most `gap` below the largest, ascending; `ids` has room for all.
EXPORTED int64_t spec_cpu_near(const Array * logits, float gap, Array * ids) try {
    if (!is_row(*logits)) return CANNOT;
    const Row row(*logits);
    if (!row.finite()) return NOT_FINITE;
    int64_t *begin = static_cast<int64_t *>(ids->data), *end = begin;
    row.at_least(row.top() - gap, [&](int64_t id, float) {
        *end++ = id;
        return true;
    });
    return end - begin;
} catch (const std::bad_alloc &) {
    return CANNOT;
}

// The ids of the k largest, descending; of equal ones the first. 0 < k <= the row's length.
EXPORTED int64_t spec_cpu_top_k(const Array * logits, int64_t k, Array * ids) try {
    if (!is_row(*logits)) return CANNOT;
    const Row row(*logits);
    if (!row.finite()) return NOT_FINITE;
    int64_t * id = static_cast<int64_t *>(ids->data);
    for (const Candidate & each : row.largest(k)) *id++ = each.id;
    return k;
} catch (const std::bad_alloc &) {
    return CANNOT;
}

// Top-k, top-p, min-p (its logarithm) and temperature: the ids that are left, ascending, and their
// probabilities. 0 < k <= the row's length.
EXPORTED int64_t spec_cpu_truncate(
    const Array * logits, int64_t k, double top_p, float log_min_p, double temperature, Array * ids, Array * p) try {
    if (!is_row(*logits)) return CANNOT;
    const Row row(*logits);
    if (!row.finite()) return NOT_FINITE;
    std::vector<Candidate> kept = row.largest(k);
    const double top = row.top();
    const float bound = row.top() + log_min_p;
    if (top_p < 1) kept.resize(size_t(std::min<int64_t>(k, holding(kept, top_p))));
    while (kept.back().logit < bound) kept.pop_back();
    double *weight = static_cast<double *>(p->data), sum = 0;
    // Added up from the likeliest on, as everything here, and only then put in the order of the ids.
    for (const Candidate & each : kept) sum += std::exp((each.logit - top) / temperature);
    std::sort(kept.begin(), kept.end(), [](const Candidate & a, const Candidate & b) { return a.id < b.id; });
    int64_t * id = static_cast<int64_t *>(ids->data);
    for (const Candidate & each : kept) {
        *id++ = each.id;
        *weight++ = std::exp((each.logit - top) / temperature) / sum;
    }
    return int64_t(kept.size());
} catch (const std::bad_alloc &) {
    return CANNOT;
}

// Changes the logits of the n tokens of `recent`, by how often each is among them.
EXPORTED int64_t spec_cpu_penalize(
    Array * logits, const int32_t * recent, int64_t n, float repeat, float frequency, float presence) try {
    if (!is_row(*logits)) return CANNOT;
    float * row = static_cast<float *>(logits->data);
    static thread_local std::vector<int32_t> sorted;
    sorted.assign(recent, recent + n);
    std::sort(sorted.begin(), sorted.end());
    for (auto run = sorted.begin(); run != sorted.end();) {
        const auto end = std::upper_bound(run, sorted.end(), *run);
        const float times = float(end - run);
        if (*run < logits->shape[0]) {
            const float x = row[*run];
            row[*run] = (x <= 0 ? product(x, repeat) : x / repeat) - product(times, frequency) - presence;
        }
        run = end;
    }
    return n;
} catch (const std::bad_alloc &) {
    return CANNOT;
}
