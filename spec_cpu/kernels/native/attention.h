// Attention over a cache of 16-bit keys and values.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ggml.h"

namespace spec_cpu {

// True for FLASH_ATTN_EXT as `attend` covers it: F16 keys and values, a mask, no bias by distance, no
// cap of the logits, no sinks.
bool is_attention(const ggml_tensor * op);

// A task is a few queries of one head of keys; tasks write to different places.
int64_t attention_tasks(const ggml_tensor * op, int threads);

// Floats of scratch memory that a task needs.
size_t attention_scratch(const ggml_tensor * op);

// Computes one task. A query's result depends on that query, its mask, keys and values alone.
void attend(const ggml_tensor * op, int threads, int64_t task, float * scratch);

}  // namespace spec_cpu
