"""Every default that a person can override, in one place and without imports: cheap to read."""

from __future__ import annotations

# Decoding.
PAIR = "smollm2-135m"
NGRAM = "ngram"  # as the name of a draft: looked up in the text itself
MAX_AUTO_DRAFT_TOKENS = 12  # the most that is drafted where k is chosen each cycle
MAX_TREE_NODES = 24  # likewise, where drafts are trees
MAX_DRAFT_TOKENS = 64
TREE_PATHS = 8  # from the root of a tree to its leaves
MAX_LOOKUP_BYTES = 16 * 2**20  # of one reference text
MEMORY_TOKENS = 2**17  # of earlier texts that are kept to draft from
MAX_TOKENS = 512
CONTEXT = 4096
BATCH = 512  # prompt tokens a pass
HISTORY = 1000  # messages typed that a chat keeps
SHAPE = "auto"  # of a draft model's drafts: by the temperature
RULE = "block"
TYPICAL_EPSILON = 0.3  # of the rule "typical": the most that it asks of a token's probability
TYPICAL_DELTA = 0.3**0.5  # likewise, in shares of exp(-entropy)
KERNELS = "auto"

# Sampling: llama.cpp's own.
TEMPERATURE = 0.8
TOP_K = 40
TOP_P = 0.95
MIN_P = 0.05
REPEAT_PENALTY = 1.0
FREQUENCY_PENALTY = 0.0
PRESENCE_PENALTY = 0.0
PENALTY_LAST_N = 64

WORTHWHILE_SPEEDUP = 1.05  # a smaller one is not worth the memory of a draft, nor called one

# Measuring what passes cost.
PLAN_DRAFT_TOKENS = 8
PLAN_DEPTH = 128
COSTS_AGE = 30 * 24 * 3600  # seconds after which costs are measured anew

# Training.
TRAIN_SEQUENCES, TRAIN_LENGTH = 64, 512  # of conversations in a shard, of their tokens
TRAIN_VOCABULARY = 6144
TRAIN_EPOCHS = 10.0

# Serving.
SLOTS = 8  # conversations at a time, where memory has room for them
MAX_SLOTS = 24
QUEUE = 64  # requests that may wait
MAX_GAP = 200  # milliseconds that prompts of others may keep an answer waiting
CACHE_RAM = 512  # MiB for beginnings of texts that had to make room

# Benchmarks.
BENCH_TOKENS = 96
BENCH_TEMPERATURES = "0,0.8"
MAX_SWEEP = 16

# The server.
HOST = "127.0.0.1"
PORT = 8080
GRACE = 10.0  # seconds that answers have to end by themselves when the server ends
MAX_BODY = 8 * 2**20  # bytes of a request
MAX_TIME = 1800.0  # seconds that an answer may take
