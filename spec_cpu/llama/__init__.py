"""llama.cpp, by way of llama-cpp-python: only what is in here imports it."""

from spec_cpu.llama.spinning import short_spins

with short_spins():
    import llama_cpp  # noqa: F401 (loads the libraries, and with them GNU OpenMP)
