// Does a kernel multiply correctly on this processor?
#pragma once

#include <cstddef>

#include "matmul.h"

namespace spec_cpu {

// Compares products of small random matrices with those of the dequantized weights, and columns
// multiplied together with columns multiplied alone. False, and why, in `message`.
bool self_test(const Kernel & kernel, char * message, size_t size);

}  // namespace spec_cpu
