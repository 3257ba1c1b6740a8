"""The verify kernels: matrix products for a few tokens at once, in a library for this machine.

`native/` is their source, a ggml backend; `build` compiles it on first use and keeps the result;
`spec_cpu.llama.kernels` loads it into llama.cpp; `autotune` finds out whether a model gains.
"""
