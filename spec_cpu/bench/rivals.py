"""Other programs to measure against: llama.cpp's own, and llama-cpp-python."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from spec_cpu.errors import SpecCpuError, UsageError
from spec_cpu.llama.params import uses_amx
from spec_cpu.text.rendering import Rendered

LLAMA_CPP, LLAMA_CPP_PYTHON = "llama.cpp", "llama-cpp-python"
RIVALS = (LLAMA_CPP, LLAMA_CPP_PYTHON)
DRAFT_TOKENS = 4  # what a rival drafts where our k is not pinned
_PROGRAMS = ("llama-completion", "llama-speculative-simple", "llama-lookup")
_TOO_SHORT = 1e-9  # seconds: a single token leaves nothing to time

_SPEEDS = (
    re.compile(r"decoded +(?P<tokens>\d+) tokens in +(?P<s>[\d.]+) seconds"),
    re.compile(r"(?<!prompt )eval time = +(?P<ms>[\d.]+) ms / +(?P<tokens>\d+) runs"),
)  # programs that draft print both: the first is the one that counts


@dataclass(frozen=True, slots=True)
class Decoded:
    """Tokens that were decoded after the prompt, and the seconds that they took."""

    tokens: int
    seconds: float

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / self.seconds


class Rival(Protocol):
    """Another program that answers and tells how fast it was."""

    @property
    def name(self) -> str: ...

    def answer(self, prompt: Rendered, max_tokens: int, seed: int) -> Decoded | None:
        """Answer `prompt`; None if the answer was too short to time."""
        ...


@dataclass(frozen=True, slots=True)
class Setting:
    """What a rival runs with: as our own arms."""

    target: Path
    draft: Path | None
    ctx: int
    threads: int
    temperature: float
    draft_tokens: int
    end_tokens: frozenset[int]


def check_rivals(names: Sequence[str], folder: Path | None) -> None:
    """Find out whether the rivals `names` are here, before anything is measured.

    Args:
        folder: of llama.cpp's programs.

    Raises:
        UsageError: an unknown name, or llama.cpp without a folder that has its programs.
    """
    for name in names:
        if name not in RIVALS:
            raise UsageError(f"`against` knows {' and '.join(RIVALS)}, not {name}")
    if LLAMA_CPP not in names:
        return
    if folder is None:
        raise UsageError(f"`against` {LLAMA_CPP} needs `llama_cpp`, the folder of its programs")
    if not folder.is_dir():
        raise UsageError(f"`llama_cpp`: there is no folder {folder}")
    for program in _PROGRAMS:
        if not (folder / program).is_file():
            raise UsageError(f"`llama_cpp`: {folder} has no {program}")


@contextmanager
def open_rivals(
    names: Sequence[str], folder: Path | None, setting: Setting
) -> Iterator[list[Rival]]:
    """The rivals `names`, checked before, ready to answer."""
    rivals: list[Rival] = []
    with ExitStack() as stack:
        if LLAMA_CPP in names and folder is not None:
            rivals += llama_cpp_programs(folder, setting)
        if LLAMA_CPP_PYTHON in names:
            rivals += (stack.enter_context(each) for each in _in_python(setting))
        yield rivals


def _in_python(setting: Setting) -> Iterator[InPython]:
    yield InPython(LLAMA_CPP_PYTHON, setting, lookup=0)
    yield InPython(f"{LLAMA_CPP_PYTHON} lookup", setting, lookup=setting.draft_tokens)


def llama_cpp_programs(folder: Path, setting: Setting) -> list[Rival]:
    """Plain decoding, a draft model if there is one, and prompt lookup, by programs in `folder`."""
    common = ["-m", str(setting.target), "-c", str(setting.ctx), "-t", str(setting.threads)]
    common += ["--temp", f"{setting.temperature:g}", "--no-escape"]
    if uses_amx():
        common.append("--no-repack")
    most = ["--spec-draft-n-max", str(setting.draft_tokens)]
    plain, speculative, lookup = (folder / program for program in _PROGRAMS)
    rivals: list[Rival] = [
        Program(LLAMA_CPP, [str(plain), *common, "-no-cnv", "--no-display-prompt"]),
        Program(lookup.name, [str(lookup), *common, *most]),
    ]
    if setting.draft is not None:
        draft = ["-md", str(setting.draft), "-td", str(setting.threads)]
        draft += ["--spec-type", "draft-simple"]
        rivals.insert(1, Program(speculative.name, [str(speculative), *common, *draft, *most]))
    return rivals


@dataclass(frozen=True, slots=True)
class Program:
    """One of llama.cpp's programs; it says itself how fast it decoded.

    It may write more tokens than it was asked for, so its own count is the one that holds.
    """

    name: str
    command: Sequence[str]

    def answer(self, prompt: Rendered, max_tokens: int, seed: int) -> Decoded | None:
        """Run the program on `prompt`.

        Raises:
            SpecCpuError: it cannot be run, failed, or told no speed.
        """
        with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as file:
            file.write(prompt.text)
            file.flush()
            asked = ["-bf", file.name, "-n", str(max_tokens), "--seed", str(seed)]
            done = self._run([*self.command, *asked])
        last = _last_line(done.stderr.strip() or done.stdout)
        if done.returncode:
            raise SpecCpuError(f"{self._program} failed ({done.returncode}): {last}")
        decoded = _decoded(done.stderr + done.stdout)
        if decoded is None:
            raise SpecCpuError(f"{self._program} told no speed: {last}")
        return decoded if decoded.tokens and decoded.seconds > _TOO_SHORT else None

    @property
    def _program(self) -> str:
        return Path(self.command[0]).name

    def _run(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        try:
            return subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                check=False,
                start_new_session=True,  # Ctrl-C is for us: this answer is still wanted
            )
        except OSError as error:
            raise SpecCpuError(f"cannot run {command[0]}: {error.strerror}") from None


class InPython:
    """llama-cpp-python's own loop. Use it as a context manager."""

    def __init__(self, name: str, setting: Setting, *, lookup: int) -> None:
        """Load the target once more; `lookup`: tokens that prompt lookup drafts, or 0."""
        from spec_cpu.llama.high_level import HighLevel

        self.name = name
        self._end_tokens = setting.end_tokens
        self._llama = HighLevel(
            setting.target,
            ctx=setting.ctx,
            threads=setting.threads,
            temperature=setting.temperature,
            lookup=lookup,
        )

    def __enter__(self) -> InPython:
        return self

    def __exit__(self, *_error: object) -> None:
        self._llama.close()

    def answer(self, prompt: Rendered, max_tokens: int, seed: int) -> Decoded | None:
        """Answer `prompt`, timed from the first token to the last."""
        times = self._llama.decode(prompt.tokens, max_tokens, seed, self._end_tokens)
        return Decoded(len(times) - 1, times[-1] - times[0]) if len(times) > 1 else None


def _decoded(told: str) -> Decoded | None:
    for pattern in _SPEEDS:
        if found := pattern.search(told):
            parts = found.groupdict()
            seconds = float(parts["s"]) if "s" in parts else float(parts["ms"]) / 1e3
            return Decoded(int(parts["tokens"]), seconds)
    return None


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "it wrote nothing"
