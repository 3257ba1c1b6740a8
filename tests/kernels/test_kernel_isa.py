"""Choosing an instruction set, and models with a lesser one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import tiny
from spec_cpu_cli.main import main

from spec_cpu.errors import KernelsError, UsageError
from spec_cpu.kernels import isa
from spec_cpu.kernels.build import find_build
from spec_cpu.llama.quantize import quantize
from spec_cpu.machine import hardware

# Arguments: the target, the draft. Prints the greedy texts: plain, with drafted chains, with trees.
TEXTS = """
import json, sys
import spec_cpu
from spec_cpu.kernels.build import find_build
from spec_cpu.sampling.pipeline import SamplingParams

target, draft = sys.argv[1:]
greedy = SamplingParams(temperature=0)
texts = []
chain = {"draft": draft, "k": 3, "shape": "chain"}
tree = {"draft": draft, "k": 6, "shape": "tree"}
for drafted in ({"draft": "none"}, chain, tree):
    with spec_cpu.load(target, kernels="on", sampling=greedy, **drafted) as session:
        assert session.kernels == find_build("avx2").digest, session.notices
        steps = session.generate("a tale", max_tokens=48, raw=True, ignore_eos=True)
        texts.append("".join(step.text for step in steps))
print(json.dumps(texts))
"""


@pytest.fixture
def everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """A processor that has every set."""
    names = sorted(set().union(*(each.needs for each in isa.SETS)))
    monkeypatch.setattr(hardware, "instructions", lambda: names)


@pytest.mark.slow
def test_models_with_avx2_whatever_the_machine(
    models: Path, tiny_draft: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPEC_CPU_ISA", "avx2")
    original = tiny.write_llama(
        models / "avx2.gguf", n_vocab=320, n_embd=256, n_head=4, n_ff=512, n_layer=2, scale=3
    )
    target = original.with_stem("avx2-Q4_K_M")
    quantize(original, target, "Q4_K_M")  # some matrices are Q6_K
    done = subprocess.run(
        [sys.executable, "-c", TEXTS, str(target), str(tiny_draft)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    plain, chains, trees = json.loads(done.stdout)
    assert len(plain) > 20
    assert chains == plain
    assert trees == plain


@pytest.mark.usefixtures("everything")
def test_the_best_is_the_default_and_the_environment_may_choose_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("SPEC_CPU_ISA", raising=False)
    assert isa.choose().name == "avx-512-vnni"
    builds = {}
    for each in isa.SETS:
        monkeypatch.setenv("SPEC_CPU_ISA", each.name)
        assert isa.choose() == each
        builds[find_build().folder] = each
    assert len(builds) == len(isa.SETS), "two sets share a folder"
    assert isa.choose("avx-512").name == "avx-512", "an argument goes before the environment"


@pytest.mark.parametrize("each", isa.SETS, ids=lambda each: each.name)
def test_every_lesser_set_is_available(
    each: isa.InstructionSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hardware, "instructions", lambda: sorted(each.needs))
    monkeypatch.delenv("SPEC_CPU_ISA", raising=False)
    assert isa.choose() == each
    assert isa.available() == [other for other in isa.SETS if other.needs <= each.needs]


@pytest.mark.usefixtures("everything")
@pytest.mark.parametrize("each", isa.SETS, ids=lambda each: each.name)
def test_the_flags_name_every_instruction_and_no_machine(each: isa.InstructionSet) -> None:
    flags = find_build(each.name).flags
    assert not [flag for flag in flags if flag.startswith("-march")]
    chosen = {flag for flag in flags if flag.startswith("-m") and not flag.startswith("-mtune")}
    assert chosen == {f"-m{name.replace('_', '')}" for name in each.needs}


def test_an_unknown_set(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UsageError, match="avx3"):
        isa.choose("avx3")
    monkeypatch.setattr(sys, "argv", ["spec-cpu", "kernels", "build", "--isa", "avx3"])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "avx3" in line
    assert "avx-512-vnni" in line


def test_a_set_that_this_processor_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "instructions", lambda: ["avx2", "f16c", "fma"])
    monkeypatch.setenv("SPEC_CPU_ISA", "avx-512")
    with pytest.raises(KernelsError, match=r"avx512bw.*it has avx2"):
        find_build()
