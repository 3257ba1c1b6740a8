"""How much a text repeats itself."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spec_cpu.bench.arms import SHIPPED
from spec_cpu.text.repetition import repetition


@given(st.text(min_size=1, max_size=60), st.integers(1, 40))
def test_a_loop_is_new_once(unit: str, times: int) -> None:
    share = repetition(unit * times)
    runs = max(1, len(unit) * times - 23)
    assert 0.0 <= share < 1.0
    assert share >= 1.0 - len(unit) / runs


@given(st.text(max_size=23))
def test_a_short_text_says_nothing(text: str) -> None:
    assert repetition(text) == 0.0


def test_what_never_stood_there_before_is_no_repetition() -> None:
    assert repetition(" ".join(map(str, range(100, 400)))) == 0.0


@pytest.mark.parametrize("line", SHIPPED.read_text(encoding="utf-8").splitlines()[:20])
def test_prose_hardly_repeats_itself(line: str) -> None:
    assert repetition(json.loads(line)["turns"][0]) < 0.05
