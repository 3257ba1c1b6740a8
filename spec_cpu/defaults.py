"""Every default that a person can override, in one place and without imports: cheap to read."""

from __future__ import annotations

# Decoding.
PAIR = "smollm2-135m"
DRAFT_TOKENS = 4  # k
MAX_DRAFT_TOKENS = 64
MAX_TOKENS = 512
CONTEXT = 4096
BATCH = 512  # prompt tokens a pass
RULE = "block"

# Sampling: llama.cpp's own.
TEMPERATURE = 0.8
TOP_K = 40
TOP_P = 0.95
MIN_P = 0.05
REPEAT_PENALTY = 1.0
FREQUENCY_PENALTY = 0.0
PRESENCE_PENALTY = 0.0
PENALTY_LAST_N = 64
