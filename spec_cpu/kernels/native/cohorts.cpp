#include "cohorts.h"

#include <immintrin.h>

#include <algorithm>

namespace spec_cpu {

namespace {

constexpr int64_t CELLS = 16;        // whose masks are looked at together
constexpr int64_t WORD = 64;
constexpr int64_t MOST_IDLE = 8;     // a cohort's products with masked cells: one to so many others
constexpr int64_t SPARE = 16;        // and so many for each token: a prompt's first tokens see few cells

int64_t count(uint64_t bits) { return __builtin_popcountll(bits); }

// Bits 0 .. `bit`.
uint64_t up_to(int64_t bit) { return ~uint64_t(0) >> (WORD - 1 - bit); }

// Which of CELLS cells a mask shows. What it adds to their logits is gathered in `added`.
uint64_t shown(const uint16_t * mask, __m256i & added) {
    const __m256i m = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(mask));
    const __m256i masked = _mm256_cmpeq_epi16(m, _mm256_set1_epi16(int16_t(MASKED)));
    added = _mm256_or_si256(added, _mm256_andnot_si256(masked, m));
    const __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(masked), _mm256_extracti128_si256(masked, 1));
    return uint64_t(_mm_movemask_epi8(bytes)) ^ 0xffff;
}

// Behind each chunk of what `bits` shows, in the list of the cells of `all`.
std::vector<int32_t> chunk_ends(const uint64_t * bits, const std::vector<uint64_t> & all) {
    std::vector<int32_t> ends;
    int64_t seen = 0, listed = 0, last = 0;
    for (size_t w = 0; w < all.size(); w++) {
        const int64_t here = count(bits[w]), missing = int64_t(ends.size() + 1) * CHUNK - seen;
        if (here >= missing) {
            uint64_t rest = bits[w];
            for (int64_t before = 1; before < missing; before++) rest &= rest - 1;
            ends.push_back(int32_t(listed + count(all[w] & up_to(__builtin_ctzll(rest)))));
        }
        if (here) last = listed + count(all[w] & up_to(WORD - 1 - __builtin_clzll(bits[w])));
        seen += here;
        listed += count(all[w]);
    }
    if (seen % CHUNK) ends.push_back(int32_t(last));
    return ends;
}

}  // namespace

int64_t Cohort::chunks() const {
    size_t most = 0;
    for (const auto & of_token : ends) most = std::max(most, of_token.size());
    return int64_t(most);
}

void Cohorts::reserve(const ggml_tensor * mask) {
    const size_t rows = size_t(mask->ne[1] * mask->ne[3]);
    bits_.resize(std::max(bits_.size(), rows * size_t((mask->ne[0] + WORD - 1) / WORD)));
    plain_.resize(std::max(plain_.size(), rows));
    seen_.resize(std::max(seen_.size(), rows));
}

void Cohorts::look(const ggml_tensor * mask, int share, int shares) {
    const int64_t positions = mask->ne[0], words = (positions + WORD - 1) / WORD, rows = mask->ne[1] * mask->ne[3];
    bool changed = false;
    for (int64_t row = rows * share / shares; row < rows * (share + 1) / shares; row++) {
        const char * data = static_cast<const char *>(mask->data);
        data += row % mask->ne[1] * int64_t(mask->nb[1]) + row / mask->ne[1] * int64_t(mask->nb[3]);
        const uint16_t * of_row = reinterpret_cast<const uint16_t *>(data);
        __m256i added = _mm256_setzero_si256();
        int64_t seen = 0;
        for (int64_t w = 0; w < words; w++) {
            uint64_t bits = 0;
            for (int64_t cell = w * WORD; cell < std::min((w + 1) * WORD, positions); cell += CELLS)
                bits |= shown(of_row + cell, added) << (cell - w * WORD);
            uint64_t & known = bits_[size_t(row * words + w)];
            changed |= known != bits;
            known = bits;
            seen += count(bits);
        }
        plain_[size_t(row)] = _mm256_testz_si256(added, added);
        seen_[size_t(row)] = seen;
    }
    if (changed) changed_ = true;
}

bool Cohorts::form(const ggml_tensor * mask, int64_t most) {
    const int64_t words = (mask->ne[0] + WORD - 1) / WORD;
    const bool known = tokens_ == mask->ne[1] && streams_ == mask->ne[3] && words_ == words && most_ == most;
    if (!changed_.exchange(false) && known) return false;
    tokens_ = mask->ne[1];
    streams_ = mask->ne[3];
    words_ = words;
    most_ = most;
    all_.clear();
    unions_.clear();
    for (int64_t stream = 0; stream < streams_; stream++)
        for (int64_t token = 0; token < tokens_; token++) join(stream, token);
    for (size_t i = 0; i < all_.size(); i++) list_cells(all_[i], unions_[i].bits);
    return true;
}

// To the last cohort that it suits, or to one of its own.
void Cohorts::join(int64_t stream, int64_t token) {
    const uint64_t * of_token = bits(stream * tokens_ + token);
    const int64_t seen_by_token = seen(stream, token);
    for (size_t i = all_.size(); i-- > 0 && all_[i].stream == stream;) {
        Union & all = unions_[i];
        const int64_t tokens = int64_t(all_[i].tokens.size()) + 1;
        if (tokens > most_) continue;
        int64_t shared = 0;
        for (int64_t w = 0; w < words_; w++) shared += count(of_token[w] & all.bits[size_t(w)]);
        const int64_t cells = all.cells + seen_by_token - shared, products = all.seen + seen_by_token;
        if (shared == 0 || tokens * cells - products > products / MOST_IDLE + tokens * SPARE) continue;
        for (int64_t w = 0; w < words_; w++) all.bits[size_t(w)] |= of_token[w];
        all.cells = cells;
        all.seen = products;
        all_[i].tokens.push_back(token);
        return;
    }
    all_.push_back({stream, {token}, {}, {}});
    unions_.push_back({std::vector<uint64_t>(of_token, of_token + words_), seen_by_token, seen_by_token});
}

void Cohorts::list_cells(Cohort & cohort, const std::vector<uint64_t> & all) const {
    for (size_t w = 0; w < all.size(); w++)
        for (uint64_t rest = all[w]; rest; rest &= rest - 1)
            cohort.cells.push_back(int32_t(int64_t(w) * WORD + __builtin_ctzll(rest)));
    for (const int64_t token : cohort.tokens)
        cohort.ends.push_back(chunk_ends(bits(cohort.stream * tokens_ + token), all));
}

}  // namespace spec_cpu
