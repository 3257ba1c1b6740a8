"""Reference texts to look things up in: files, checked, in tokens."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from spec_cpu import defaults
from spec_cpu.errors import UsageError
from spec_cpu.llama.vocab import Vocab
from spec_cpu.machine import hardware
from spec_cpu.text.files import decode, read_bytes

MEMORY = 64  # bytes that a byte of text may take: its tokens, and the index of them


def read_references(files: Sequence[Path], vocab: Vocab, notices: list[str]) -> list[list[int]]:
    """The tokens of each file, all of it text; a notice where only the beginning of one is used.

    Raises:
        UsageError: a file cannot be read, is empty, or is not UTF-8 text.
    """
    texts = (_read(file, notices) for file in files)
    return [vocab.tokenize(text, add_special=False, parse_special=False) for text in texts]


def _read(file: Path, notices: list[str]) -> str:
    most = _most_bytes()
    data = read_bytes(file, most + 1)
    if len(data) > most:
        data = _whole_characters(data[:most])
        notices.append(
            f"{file} is too long: things are looked up in its first {len(data):,} bytes alone"
        )
    return _checked(data, file)


def _most_bytes() -> int:
    available = hardware.available_memory()
    most = defaults.MAX_LOOKUP_BYTES
    return most if available is None else max(1, min(most, available // MEMORY))


def _whole_characters(data: bytes) -> bytes:
    """`data` without the beginning of a character at its end."""
    for back in range(1, min(4, len(data)) + 1):
        if data[-back] & 0xC0 != 0x80:  # not a byte that continues a character
            return data[:-back] if data[-back] >= 0xC0 else data
    return data


def _checked(data: bytes, file: Path) -> str:
    if b"\0" in data:
        raise UsageError(f"{file} is binary: `lookup` takes UTF-8 text")
    text = decode(data, file)
    if not text.strip():
        raise UsageError(f"{file} is empty: there is nothing to look up in it")
    return text
