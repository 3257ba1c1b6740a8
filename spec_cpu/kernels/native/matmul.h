// Matrix products for a few columns, over weights in the layouts of formats.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ggml.h"

namespace spec_cpu {

// Of packed weights and prepared activations: kernels fetch ahead of what they read.
constexpr size_t ALIGNMENT = 64, SLACK = 8192;

// What can be done with the weights of one type. A matrix of `rows` rows has rows / lanes() groups.
//
// Activations are made ready by column, any column by any thread, then shared by all. The result of
// a column depends on that column alone, bit by bit, whatever the number of columns.
struct Kernel {
    ggml_type type;
    int columns;          // of a super-block: K must be a multiple
    bool quantized;       // activations: 8 bits and a scale for 32 of them; else floats
    size_t (*group_bytes)(int64_t k);
    void (*pack)(const void * source, int64_t k, int64_t rows, void * packed);
    // y[j * stride + row] for the rows of `groups` groups and n columns.
    void (*multiply)(
        const uint8_t * packed, int64_t k, int64_t groups, const uint8_t * activations, int64_t n,
        float * y, size_t stride);
};

// Visible from outside, as what is declared to the end is: the laws are checked on the library itself.
#pragma GCC visibility push(default)

// The kernel for a matrix, or nullptr where there is none: stock ggml multiplies it then.
const Kernel * find_kernel(ggml_type type, int64_t k, int64_t rows);

// Every kernel there is; the last one has type GGML_TYPE_COUNT.
const Kernel * all_kernels();

// From now on there is no kernel for matrices of this type.
void decline(ggml_type type);

int lanes();
const char * isa();

// Bytes that n columns of k activations take when they are ready.
size_t activation_bytes(bool quantized, int64_t k, int64_t n);

// Makes column j of n ready. NaN or infinity in x leaves no result of the column finite.
void prepare_column(bool quantized, const float * x, int64_t k, int64_t j, int64_t n, uint8_t * activations);

#pragma GCC visibility pop

}  // namespace spec_cpu
