"""bench/kernels.py takes seconds of a pass from what llama-bench says."""

import sys
from pathlib import Path

from bench_module import load_bench

kernels = load_bench("kernels")

LLAMA_BENCH = """#!{python}
import json, sys
given = dict(zip(sys.argv[1::2], sys.argv[2::2]))
repeats = int(given["-r"])
tests = [(int(n), 0) for n in given["-p"].split(",")] + [(0, int(given["-n"]))]
print(json.dumps([
    {{"n_prompt": prompt, "n_gen": generated, "samples_ns": [(prompt + generated) * 1e6] * repeats}}
    for prompt, generated in tests
]))
"""


def test_a_pass_over_n_tokens_takes_what_it_takes_and_generating_is_a_pass_a_token(
    tmp_path: Path,
) -> None:
    program = tmp_path / "llama-bench"
    program.write_text(LLAMA_BENCH.format(python=sys.executable))
    program.chmod(0o700)
    ik = kernels.IkBench(str(program), tmp_path / "model.gguf")
    ik.run()
    ik.run()
    assert ik.seconds == {n: [n / 1e3] * 4 for n in (*kernels.WIDTHS, kernels.PROMPT)}
