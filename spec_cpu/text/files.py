"""Text files that a person names: one clear line for what is none."""

from __future__ import annotations

import stat
from pathlib import Path

from spec_cpu.errors import UsageError


def read_bytes(file: Path, most: int = -1) -> bytes:
    """What `file` holds, or its first `most` bytes.

    Raises:
        UsageError: it cannot be read, or is a device.
    """
    try:
        mode = file.stat().st_mode
        if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
            raise UsageError(f"{file} is a device, which may have no end: give a text file")
        with file.open("rb") as stream:
            return stream.read(most)
    except IsADirectoryError:
        raise UsageError(f"{file} is a directory: give a text file") from None
    except FileNotFoundError:
        raise UsageError(f"no such file: {file}") from None
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read {file}: {getattr(error, 'strerror', error)}") from None


def decode(data: bytes, name: str | Path) -> str:
    """The text that `data` is, without a byte order mark.

    Raises:
        UsageError: it is not UTF-8; the message names `name` and the place.
    """
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{name} is not UTF-8 text (byte {data[error.start]:#04x} at offset {error.start}): "
            "convert it first, for example with iconv"
        ) from None
