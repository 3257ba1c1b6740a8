// Operations on the rows of an activation, each row alone: what stands between two matrix products.
//
// They are computed here and not by ggml's CPU backend so that a layer's products stay in one piece
// of the graph: on a small model the change of backends would cost more than the products gain.
#pragma once

#include "ggml.h"

namespace spec_cpu {

// True for operations that `compute_rows` covers, given shapes and types.
bool is_row_op(const ggml_tensor * op);

// Computes rows `first` .. `last` - 1 of op, counted over all dimensions but the first.
void compute_rows(const ggml_tensor * op, int64_t first, int64_t last);

}  // namespace spec_cpu
