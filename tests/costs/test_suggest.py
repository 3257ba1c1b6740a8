"""What is expected of the catalogue's pairs, from sizes alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spec_cpu.costs.suggest import estimated, suggestions
from spec_cpu.models.catalog import load_catalog

SETS = ("avx2", "avx-vnni", "avx-512", "avx-512-vnni", "none")
MANY = 1e12


@given(memory=st.floats(0.0, 2e10), isa=st.sampled_from(SETS), speed=st.floats(1e9, 1e12))
def test_what_fits_comes_first_and_the_largest_of_it(memory: float, isa: str, speed: float) -> None:
    found = suggestions(memory, speed=speed, isa=isa)
    assert [one.fits for one in found] == sorted((one.fits for one in found), reverse=True)
    assert all(one.fits == (one.memory <= memory) for one in found)
    fitting = [one.size for one in found if one.fits]
    assert fitting == sorted(fitting, reverse=True)


def test_every_pair_of_two_models_is_there_and_no_head() -> None:
    names = {one.pair for one in suggestions(MANY, speed=3e10, isa="avx2")}
    catalog = load_catalog()
    heads = {name for name, pair in catalog.pairs.items() if "eagle" in pair.draft}
    assert heads
    assert names == set(catalog.pairs) - heads


@given(
    target=st.integers(10**8, 10**11),
    share=st.floats(0.01, 1.0),
    speed=st.floats(1e9, 1e12),
    isa=st.sampled_from(SETS),
)
def test_a_step_reads_the_model_once(target: int, share: float, speed: float, isa: str) -> None:
    costs = estimated(target, int(share * target), speed, isa)
    assert costs.passes[0] >= target / speed
    assert costs.passes[0] == pytest.approx(
        target * estimated(10**9, 1, speed, isa).passes[0] / 1e9
    )
    assert costs.c >= share * 0.99


def test_our_kernels_are_expected_to_be_faster_than_stock_ones() -> None:
    stock, *ours = (suggestions(MANY, speed=3e10, isa=isa) for isa in reversed(SETS))
    for found in ours:
        for slow, fast in zip(stock, found, strict=True):
            assert slow.step > fast.step
            for low, high in zip(slow.plan.expected, fast.plan.expected, strict=True):
                assert low.speedup / slow.step < high.speedup / fast.step
            assert not fast.plan.acceptance.known
