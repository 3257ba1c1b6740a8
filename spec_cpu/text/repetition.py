"""How much a text repeats itself."""

from __future__ import annotations

_RUN = 24  # characters: a run of four or five words, which seldom stands twice in a text


def repetition(text: str) -> float:
    """The share of the runs of 24 characters of `text` that stand in it before; 0.0 if it is short.

    Of a text that goes round in a loop it comes close to 1; of common prose it is below 0.05.
    """
    runs = [text[i : i + _RUN] for i in range(len(text) - _RUN + 1)]
    return 1.0 - len(set(runs)) / len(runs) if runs else 0.0
