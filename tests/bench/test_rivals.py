"""Other programs, played by small scripts that print what the real ones print."""

from __future__ import annotations

from pathlib import Path

import pytest

from spec_cpu.bench.rivals import (
    Decoded,
    Program,
    Setting,
    check_rivals,
    llama_cpp_programs,
    open_rivals,
)
from spec_cpu.errors import ModelError, SpecCpuError, UsageError
from spec_cpu.llama.high_level import HighLevel
from spec_cpu.llama.model import Model
from spec_cpu.text.rendering import Rendered

PROMPT = Rendered("Say \\n\n\u00e9", [1, 5, 9])
COMPLETION = """\
0.787 I common_perf_print:    sampling time =       2.74 ms
0.787 I common_perf_print: prompt eval time =      93.06 ms /    11 tokens (    8.46 ms per token)
0.787 I common_perf_print:        eval time =     272.43 ms /    15 runs   (   18.16 ms per token)
0.787 I common_perf_print:       total time =     369.59 ms /    26 tokens
"""
SPECULATIVE = """\
2.578 I encoded   11 tokens in    0.128 seconds, speed:   85.621 t/s
2.578 I decoded   17 tokens in    1.675 seconds, speed:   10.147 t/s
2.578 I common_perf_print: prompt eval time =    1166.94 ms /    71 tokens (   16.44 ms per token)
2.578 I common_perf_print:        eval time =       0.00 ms /     1 runs   (    0.00 ms per token)
"""
AT_ONCE = "0.1 I common_perf_print:        eval time =       0.00 ms /     1 runs   ( inf )\n"


def script(path: Path, text: str) -> Program:
    path.write_text(f"#!/bin/sh\n{text}")
    path.chmod(0o755)
    return Program(path.name, [str(path), "--own"])


@pytest.mark.parametrize("stream", ["", ">&2"])
@pytest.mark.parametrize(
    ("told", "decoded"),
    [
        (COMPLETION, Decoded(15, 0.27243)),
        (SPECULATIVE, Decoded(17, 1.675)),
        (AT_ONCE, None),
    ],
)
def test_their_own_speed_is_read(
    tmp_path: Path, told: str, decoded: Decoded | None, stream: str
) -> None:
    program = script(tmp_path / "program", f"cat {stream} <<'END'\n{told}END\n")
    answer = program.answer(PROMPT, 16, 1)
    if decoded is None:
        assert answer is None
    else:
        assert answer
        assert answer.tokens == decoded.tokens
        assert answer.seconds == pytest.approx(decoded.seconds)
        assert answer.tokens_per_second == pytest.approx(decoded.tokens / decoded.seconds)


def test_they_read_our_prompt_and_nothing_else(tmp_path: Path) -> None:
    text = f'echo "$@" > {tmp_path}/args; cat "$3" > {tmp_path}/read; cat >> {tmp_path}/read\n'
    script(tmp_path / "program", f"{text}echo 'decoded 2 tokens in 1.0 seconds'\n").answer(
        PROMPT, 16, 7
    )
    own, flag, file, *rest = (tmp_path / "args").read_text().split()
    assert (own, flag, rest) == ("--own", "-bf", ["-n", "16", "--seed", "7"])
    assert (tmp_path / "read").read_text(encoding="utf-8") == PROMPT.text
    assert not Path(file).exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "echo first >&2; echo 'no such model' >&2; exit 1",
            r"program failed \(1\): no such model",
        ),
        ("kill -9 $$", r"program failed \(-9\): it wrote nothing"),
        ("true", "program told no speed: it wrote nothing"),
        ("echo hello; echo >&2 bye", "program told no speed: bye"),
    ],
)
def test_a_failure_names_the_program(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(SpecCpuError, match=message):
        script(tmp_path / "program", text).answer(PROMPT, 16, 1)


def test_a_program_that_cannot_be_run(tmp_path: Path) -> None:
    (tmp_path / "program").write_text("")
    with pytest.raises(SpecCpuError, match=r"cannot run .*/program: Permission denied"):
        Program("program", [str(tmp_path / "program")]).answer(PROMPT, 16, 1)


def test_what_is_missing_is_found_out_first(tmp_path: Path) -> None:
    check_rivals(["llama-cpp-python"], None)
    for folder, message in (
        (None, "needs `llama_cpp`"),
        (tmp_path / "nowhere", "there is no folder"),
        (tmp_path, "has no llama-completion"),
    ):
        with pytest.raises(UsageError, match=message):
            check_rivals(["llama.cpp"], folder)
    with pytest.raises(UsageError, match="not vllm"):
        check_rivals(["vllm"], None)


@pytest.fixture
def setting(tiny_target: Path, tiny_draft: Path) -> Setting:
    with Model(tiny_target) as model:
        end_tokens = model.vocab.end_tokens
    return Setting(
        tiny_target,
        tiny_draft,
        ctx=256,
        threads=1,
        temperature=0.8,
        draft_tokens=4,
        end_tokens=end_tokens,
    )


def test_llama_cpps_programs_run_with_our_settings(setting: Setting) -> None:
    plain, draft, lookup = llama_cpp_programs(Path("/bin"), setting)
    assert [one.name for one in (plain, draft, lookup)] == [
        "llama.cpp",
        "llama-speculative-simple",
        "llama-lookup",
    ]
    for one in (plain, draft, lookup):
        assert isinstance(one, Program)
        line = " ".join(one.command)
        assert f"-m {setting.target} -c 256 -t 1 --temp 0.8 --no-escape" in line
        assert (f"-md {setting.draft}" in line) == (one is draft)
        assert ("--spec-draft-n-max 4" in line) == (one is not plain)


def test_llama_cpp_python_decodes_our_tokens(setting: Setting) -> None:
    with open_rivals(["llama-cpp-python"], None, setting) as rivals:
        assert [one.name for one in rivals] == ["llama-cpp-python", "llama-cpp-python lookup"]
        for rival in rivals:
            for seed in range(20):  # an answer may end at once
                decoded = rival.answer(PROMPT, 24, seed)
                if decoded:
                    break
            assert decoded
            assert 0 < decoded.tokens < 24
            assert decoded.seconds > 0


def test_it_stops_where_the_context_is_full(setting: Setting) -> None:
    for lookup in (0, 4):
        llama = HighLevel(setting.target, ctx=256, threads=1, temperature=0, lookup=lookup)
        assert len(llama.decode([1, 5, 9], 1000, 1, ())) == 253
        llama.close()


def test_what_it_cannot_load(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="llama-cpp-python cannot load"):
        HighLevel(tmp_path / "none.gguf", ctx=128, threads=1, temperature=0)
