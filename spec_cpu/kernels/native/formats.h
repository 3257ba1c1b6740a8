// How weights are stored for the kernels: the rows of a group side by side, one a lane.
//
// A group is LANES consecutive rows. It is a sequence of super-blocks (32 or 256 columns); each has
// a header with the scales of all lanes, then, for every 32 columns, the quants in bit planes. The
// quants of four neighbouring columns of one row fill one lane, so one broadcast of four activations
// serves all rows of the group. Quants are unsigned; weight = scale * quant + offset.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "ggml.h"
#include "products.h"

namespace spec_cpu {

// ---- quants ------------------------------------------------------------------------------------

// 32 columns of a group: quad g of the columns is weights[g] after `load`.
template <int BITS> struct Planes {
    static constexpr size_t BYTES = size_t(VECTOR_BYTES) * BITS;

    static void load(const uint8_t * p, Ints (&weights)[8]) {
        if constexpr (BITS == 8) {
#pragma GCC unroll 8
            for (int g = 0; g < 8; g++) weights[g] = load_ints(p + g * VECTOR_BYTES);
        } else {
#pragma GCC unroll 4
            for (int v = 0; v < 4; v++) {
                const Ints x = load_ints(p + v * VECTOR_BYTES);
                weights[v] = both(x, every_byte(15));
                weights[v + 4] = both(shift_right<4>(x), every_byte(15));
            }
            if constexpr (BITS == 5) add_fifth_bit(p + 4 * VECTOR_BYTES, weights);
            if constexpr (BITS == 6) add_two_bits(p + 4 * VECTOR_BYTES, weights);
        }
    }

    // `quants` are the 32 columns of one lane; four of them at a time, as one word.
    static void store_lane(uint8_t * p, int lane, const uint8_t * quants) {
        constexpr uint32_t EVERY = 0x01010101;
        uint32_t quads[8];
        std::memcpy(quads, quants, sizeof quads);
        const auto store = [&](int vector, uint32_t quad) {
            std::memcpy(p + vector * VECTOR_BYTES + 4 * lane, &quad, sizeof quad);
        };
        if constexpr (BITS == 8) {
            for (int g = 0; g < 8; g++) store(g, quads[g] ^ (SIGNED_BYTES ? 128 * EVERY : 0));
        } else {
            for (int v = 0; v < 4; v++) store(v, (quads[v] & 15 * EVERY) | (quads[v + 4] & 15 * EVERY) << 4);
        }
        if constexpr (BITS == 5) {
            uint32_t high = 0;
            for (int g = 0; g < 8; g++) high |= (quads[g] >> 4 & EVERY) << g;
            store(4, high);
        }
        if constexpr (BITS == 6)
            for (int half = 0; half < 2; half++) {
                uint32_t high = 0;
                for (int g = 0; g < 4; g++) high |= (quads[4 * half + g] >> 4 & 3 * EVERY) << 2 * g;
                store(4 + half, high);
            }
    }

  private:
    // Moves bit FROM of every byte to bit TO; the shift is of 16 bits, what crosses over is masked.
    template <int FROM, int TO> static Ints moved(Ints x) {
        if constexpr (FROM > TO) return shift_right<FROM - TO>(x);
        else return shift_left<TO - FROM>(x);
    }

    static void add_fifth_bit(const uint8_t * p, Ints (&w)[8]) {
        const Ints high = load_ints(p), bit = every_byte(16);
        w[0] = either(w[0], both(moved<0, 4>(high), bit));
        w[1] = either(w[1], both(moved<1, 4>(high), bit));
        w[2] = either(w[2], both(moved<2, 4>(high), bit));
        w[3] = either(w[3], both(moved<3, 4>(high), bit));
        w[4] = either(w[4], both(high, bit));
        w[5] = either(w[5], both(moved<5, 4>(high), bit));
        w[6] = either(w[6], both(moved<6, 4>(high), bit));
        w[7] = either(w[7], both(moved<7, 4>(high), bit));
    }

    static void add_two_bits(const uint8_t * p, Ints (&w)[8]) {
        const Ints bits = every_byte(48);
#pragma GCC unroll 2
        for (int half = 0; half < 2; half++) {
            const Ints high = load_ints(p + half * VECTOR_BYTES);
            Ints * quads = w + 4 * half;
            quads[0] = either(quads[0], both(moved<0, 4>(high), bits));
            quads[1] = either(quads[1], both(moved<2, 4>(high), bits));
            quads[2] = either(quads[2], both(high, bits));
            quads[3] = either(quads[3], both(moved<6, 4>(high), bits));
        }
    }
};

// ---- scales ------------------------------------------------------------------------------------

using Half = uint16_t;  // IEEE half precision, as bits

inline void put_half(uint8_t * header, int lane, const uint8_t * from) {
    std::memcpy(header + 2 * lane, from, 2);
}
inline const Half * halves(const uint8_t * p) { return reinterpret_cast<const Half *>(p); }

// A `Block` adds what 32 columns of a group give with one column of activations, `products` being the
// sums of quants times quants.

// One scale for 32 columns; a quant of ZERO stands for 0.
template <int ZERO> struct Scale {
    static constexpr int BLOCKS = 1, PARTS = 1;
    static constexpr size_t BYTES = 2 * LANES;

    struct Block {
        static constexpr const Multiples * multiples = nullptr;
        Floats scale, offset;

        Floats add(Floats products, const QuantizedBlock & a, Floats sum) const {
            if constexpr (ZERO == 8)
                return fma(scale, fma(products, every_float(a.d), every_float(a.minus_8)), sum);
            sum = fma(scale, mul(products, every_float(a.d)), sum);
            return ZERO ? fma(offset, every_float(a.sum), sum) : sum;
        }
    };

    explicit Scale(const uint8_t * header) : d(load_f16(halves(header))) {}
    Block block(int) const { return {d, mul(d, every_float(-ZERO))}; }

  private:
    Floats d;
};

// A scale and an offset for 32 columns.
struct ScaleAndOffset {
    static constexpr int BLOCKS = 1, PARTS = 1;
    static constexpr size_t BYTES = 4 * LANES;

    struct Block {
        static constexpr const Multiples * multiples = nullptr;
        Floats scale, offset;

        Floats add(Floats products, const QuantizedBlock & a, Floats sum) const {
            sum = fma(scale, mul(products, every_float(a.d)), sum);
            return fma(offset, every_float(a.sum), sum);
        }
    };

    explicit ScaleAndOffset(const uint8_t * header)
        : both{load_f16(halves(header)), load_f16(halves(header + 2 * LANES))} {}
    Block block(int) const { return both; }

  private:
    Block both;
};

// Two scales for 256 columns, and for each 32 of them a multiple of either (0 to 63).
struct SuperScaleAndMin {
    static constexpr int BLOCKS = 8, PARTS = 1;
    static constexpr size_t BYTES = 4 * LANES + 2 * BLOCKS * LANES;
    using Block = ScaleAndOffset::Block;

    explicit SuperScaleAndMin(const uint8_t * header)
        : d(load_f16(halves(header))),
          dmin(mul(load_f16(halves(header + 2 * LANES)), every_float(-1))),
          multiples(header + 4 * LANES) {}
    Block block(int b) const {
        return {mul(d, load_u8(multiples + 2 * b * LANES)), mul(dmin, load_u8(multiples + (2 * b + 1) * LANES))};
    }

  private:
    Floats d, dmin;
    const uint8_t * multiples;
};

// A scale for 256 columns, and for each 16 of them a multiple of it (-128 to 127); a quant of 32 stands
// for 0.
struct SuperScale {
    static constexpr int BLOCKS = 8, PARTS = 2;
    static constexpr size_t BYTES = 2 * LANES + 2 * BLOCKS * LANES;

    struct Block {
        Floats scale;
        Multiples multiples[PARTS];

        Floats add(Floats products, const QuantizedBlock & a, Floats sum) const {
            return fma(scale, mul(products, every_float(a.d)), sum);
        }
    };

    explicit SuperScale(const uint8_t * header)
        : d(load_f16(halves(header))), multiples(reinterpret_cast<const int8_t *>(header + 2 * LANES)) {}
    Block block(int b) const {
        return {d, {load_multiples(multiples + 2 * b * LANES), load_multiples(multiples + (2 * b + 1) * LANES)}};
    }

  private:
    Floats d;
    const int8_t * multiples;
};

// ---- formats -----------------------------------------------------------------------------------
//
// SOURCE_BYTES, `quants` and `scales` read ggml's own layout of one super-block of one row
// (ggml/src/ggml-common.h and ggml-quants.c of llama.cpp describe it).

inline void unpack_nibbles(const uint8_t * p, uint8_t * quants) {
    for (int i = 0; i < 16; i++) {
        quants[i] = p[i] & 15;
        quants[i + 16] = p[i] >> 4;
    }
}

inline void unpack_fifth_bits(const uint8_t * p, uint8_t * quants) {
    for (int i = 0; i < BLOCK; i++) quants[i] |= (p[i / 8] >> i % 8 & 1) << 4;
}

template <int BITS_, class Scales_> struct Format {
    static constexpr int BITS = BITS_;
    using Scales = Scales_;
    using Quants = Planes<BITS>;
    static constexpr int COLUMNS = BLOCK * Scales::BLOCKS;
    static constexpr size_t BYTES = Scales::BYTES + Scales::BLOCKS * Quants::BYTES;
};

struct Q4_0 : Format<4, Scale<8>> {
    static constexpr size_t SOURCE_BYTES = 18;
    static void quants(const uint8_t * source, uint8_t * q) { unpack_nibbles(source + 2, q); }
    static void scales(const uint8_t * source, int lane, uint8_t * header) { put_half(header, lane, source); }
};

struct Q4_1 : Format<4, ScaleAndOffset> {
    static constexpr size_t SOURCE_BYTES = 20;
    static void quants(const uint8_t * source, uint8_t * q) { unpack_nibbles(source + 4, q); }
    static void scales(const uint8_t * source, int lane, uint8_t * header) {
        put_half(header, lane, source);
        put_half(header + 2 * LANES, lane, source + 2);
    }
};

struct Q5_0 : Format<5, Scale<16>> {
    static constexpr size_t SOURCE_BYTES = 22;
    static void quants(const uint8_t * source, uint8_t * q) {
        unpack_nibbles(source + 6, q);
        unpack_fifth_bits(source + 2, q);
    }
    static void scales(const uint8_t * source, int lane, uint8_t * header) { put_half(header, lane, source); }
};

struct Q5_1 : Format<5, ScaleAndOffset> {
    static constexpr size_t SOURCE_BYTES = 24;
    static void quants(const uint8_t * source, uint8_t * q) {
        unpack_nibbles(source + 8, q);
        unpack_fifth_bits(source + 4, q);
    }
    static void scales(const uint8_t * source, int lane, uint8_t * header) { Q4_1::scales(source, lane, header); }
};

struct Q8_0 : Format<8, Scale<SIGNED_BYTES ? 0 : 128>> {
    static constexpr size_t SOURCE_BYTES = 34;
    static void quants(const uint8_t * source, uint8_t * q) {
        for (int i = 0; i < BLOCK; i++) q[i] = source[2 + i] ^ 0x80;
    }
    static void scales(const uint8_t * source, int lane, uint8_t * header) { put_half(header, lane, source); }
};

struct Q4_K : Format<4, SuperScaleAndMin> {
    static constexpr size_t SOURCE_BYTES = 144;
    static void quants(const uint8_t * source, uint8_t * q) {
        for (int b = 0; b < 8; b++)
            for (int i = 0; i < BLOCK; i++)
                q[b * BLOCK + i] = source[16 + b / 2 * BLOCK + i] >> (b % 2 ? 4 : 0) & 15;
    }
    // Of 8 scales and 8 minima of 6 bits in 12 bytes: four of each plain, the top bits hold the rest.
    static void scales(const uint8_t * source, int lane, uint8_t * header) {
        Q4_1::scales(source, lane, header);
        const uint8_t * packed = source + 4;
        uint8_t * multiples = header + 4 * LANES + lane;
        for (int b = 0; b < 8; b++) {
            const int low = b % 4, high = b / 4;
            multiples[2 * b * LANES] =
                uint8_t(high ? (packed[low + 8] & 15) | packed[low] >> 6 << 4 : packed[low] & 63);
            multiples[(2 * b + 1) * LANES] =
                uint8_t(high ? packed[low + 8] >> 4 | packed[low + 4] >> 6 << 4 : packed[low + 4] & 63);
        }
    }
};

struct Q5_K : Format<5, SuperScaleAndMin> {
    static constexpr size_t SOURCE_BYTES = 176;
    static void quants(const uint8_t * source, uint8_t * q) {
        Q4_K::quants(source + 32, q);
        for (int b = 0; b < 8; b++)
            for (int i = 0; i < BLOCK; i++) q[b * BLOCK + i] |= (source[16 + i] >> b & 1) << 4;
    }
    static void scales(const uint8_t * source, int lane, uint8_t * header) { Q4_K::scales(source, lane, header); }
};

struct Q6_K : Format<6, SuperScale> {
    static constexpr size_t SOURCE_BYTES = 210;
    static void quants(const uint8_t * source, uint8_t * q) {
        for (int b = 0; b < 8; b++) {
            const int half = b / 4, quarter = b % 4;
            const uint8_t * low = source + 64 * half + quarter % 2 * BLOCK;
            const uint8_t * high = source + 128 + 32 * half;
            for (int i = 0; i < BLOCK; i++)
                q[b * BLOCK + i] =
                    uint8_t((low[i] >> (quarter < 2 ? 0 : 4) & 15) | (high[i] >> 2 * quarter & 3) << 4);
        }
    }
    static void scales(const uint8_t * source, int lane, uint8_t * header) {
        put_half(header, lane, source + 208);
        for (int i = 0; i < 16; i++) header[(2 + i) * LANES + lane] = source[192 + i];
    }
};

// Sixteen-bit floats: every column's rows side by side.
struct F16 {
    static Floats load(const uint16_t * p) { return load_f16(p); }
};
struct BF16 {
    static Floats load(const uint16_t * p) { return load_bf16(p); }
};

}  // namespace spec_cpu
