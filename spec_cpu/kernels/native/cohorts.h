// Which tokens of a pass see much the same cells of a cache: in a pass over many conversations, those of
// one conversation, wherever its cells lie.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "ggml.h"

namespace spec_cpu {

// Visible from outside, for the laws.
#pragma GCC visibility push(default)

constexpr int64_t CHUNK = 128;  // cells that a token sees, taken together
constexpr uint16_t MASKED = 0xfc00;  // in a mask: -infinity

struct Cohort {
    int64_t stream;
    std::vector<int64_t> tokens;  // of the stream
    std::vector<int32_t> cells;   // that any of them sees, ascending
    std::vector<std::vector<int32_t>> ends;  // for each token, behind each of its chunks, in `cells`

    int64_t chunks() const;  // of a token, at most
};

// Of one mask at a time. Threads `look` at a share of it each; `form` follows.
class Cohorts {
  public:
    void reserve(const ggml_tensor * mask);

    // Notes which cells the tokens of this share see.
    void look(const ggml_tensor * mask, int share, int shares);

    // Groups the tokens, at most `most` in one cohort. False: they are those of the mask before.
    bool form(const ggml_tensor * mask, int64_t most);

    const std::vector<Cohort> & all() const { return all_; }

    // A token's mask adds nothing to the logits that it shows.
    bool plain(int64_t stream, int64_t token) const { return plain_[size_t(stream * tokens_ + token)]; }

    // Cells that a token sees.
    int64_t seen(int64_t stream, int64_t token) const { return seen_[size_t(stream * tokens_ + token)]; }

  private:
    const uint64_t * bits(int64_t row) const { return &bits_[size_t(row * words_)]; }
    // Beside each cohort while they are formed: the cells that any of its tokens sees, and how many
    // those are that its tokens see, all together.
    struct Union {
        std::vector<uint64_t> bits;
        int64_t cells = 0, seen = 0;
    };

    void join(int64_t stream, int64_t token);
    void list_cells(Cohort & cohort, const std::vector<uint64_t> & all) const;

    std::vector<uint64_t> bits_;  // of each token, by cell
    std::vector<uint8_t> plain_;
    std::vector<int64_t> seen_;
    std::atomic<bool> changed_{true};
    int64_t tokens_ = 0, words_ = 0, streams_ = 0, most_ = 0;

    std::vector<Cohort> all_;
    std::vector<Union> unions_;
};

#pragma GCC visibility pop

}  // namespace spec_cpu
