"""Whether training can run here: what it needs beside the rest is an extra."""

from __future__ import annotations

import importlib.util

from spec_cpu.errors import UsageError


def check_installed() -> None:
    """Raise UsageError unless torch and gguf are there, and torch can be loaded."""
    missing = [name for name in ("torch", "gguf") if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(
            f'train needs {" and ".join(missing)}: pip install ".[train]", in its folder'
        )
    try:
        import torch  # noqa: F401
    except (ImportError, OSError) as error:
        raise UsageError(
            f"torch is there but does not load ({error}): install it anew with pip"
        ) from None
