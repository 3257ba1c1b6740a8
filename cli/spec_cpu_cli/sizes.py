"""Numbers of bytes, as people read them."""

from __future__ import annotations


def size_text(size: int | None) -> str:
    """`size` bytes in the largest unit that fits; a dash where it is not known."""
    if size is None:
        return "-"
    if size >= 1e9:
        return f"{size / 1e9:.1f} GB"
    return f"{size / 1e6:.0f} MB" if size >= 1e6 else f"{size / 1e3:.0f} kB"
