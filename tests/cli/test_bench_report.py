"""The tables of `spec-cpu bench`: their width, their words, and what they warn of."""

from __future__ import annotations

from dataclasses import replace

import pytest
from spec_cpu_cli.bench_report import Report, markdown, sections, show

from spec_cpu.bench.results import Comparison, Result, SourceShare, Speedup, SweepPoint
from spec_cpu.costs.costs import Costs

SPEEDUP = Speedup(10.25, 9.75, 12.25)
RESULT = Result(
    prompts=1000,
    tokens_per_second=1234.5,
    plain_tokens_per_second=1234.5,
    speedup=SPEEDUP,
    alpha=0.75,
    alpha_exact=0.75,
    alpha_by_position=[0.75] * 24,
    tokens_per_cycle=12.25,
    k=12,
    k_used={12: 5},
    sources={name: SourceShare(0.5, 0.75, 2.25) for name in ("ngram", "draft", "eagle")},
    c=0.05,
    speedup_theory=10.25,
    speedup_textbook=12.25,
    share_draft=0.99,
    share_target=1.0,
    share_sample=0.99,
    repetition=0.04,
)


def report(repetition: float = 0.04) -> Report:
    settings = {
        "temperature": 0.8,
        "k": None,
        "shape": "chain",
        "exact": False,
        "max_tokens": 1000,
        "threads": 64,
        "complete": False,
    }
    results = {"translation": RESULT, "overall": replace(RESULT, repetition=repetition)}
    return Report(
        target={},
        draft=None,
        settings=settings,
        peak_memory=0,
        results=results,
        costs=Costs([1.0 + 0.1 * n for n in range(25)], 0.05, 0.0, 0.0, 0.0, depth=128),
        sweep=[SweepPoint(k, SPEEDUP, 10.25, 12.25, 0.75, 12.25) for k in (1, 12, 16)],
        against=[Comparison("llama-cpp-python lookup", 1234.5, SPEEDUP, SPEEDUP)],
        notices=[],
        disturbed=None,
    )


def test_every_table_fits_into_80_columns_with_nothing_cut(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = sections(report(repetition=0.9))
    show(found)
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    assert "…" not in out
    for section in found:
        if section.shown:
            head = next(
                line
                for line in out.splitlines()
                if line.split() and all(name in line for name in section.header)
            )
            for name in section.header:
                assert name in head, "on one line, whole"
            for row in section.rows:
                assert any(all(cell in line for cell in row) for line in out.splitlines())


def test_markdown_has_the_tables_that_the_screen_leaves_out() -> None:
    found = sections(report())
    assert not all(section.shown for section in found)
    text = markdown(found)
    for section in found:
        assert f"| {' | '.join(section.header)} |" in text


@pytest.mark.parametrize("symbol", ["V(", "E /", "alpha", "tok/step", " k ", " c ", "min(p, q)"])
def test_the_tables_need_no_paper(symbol: str) -> None:
    assert symbol not in markdown(sections(report()))


@pytest.mark.parametrize(("repetition", "said"), [(0.04, False), (0.49, False), (0.83, True)])
def test_answers_that_mostly_repeat_themselves_are_said_to(repetition: float, said: bool) -> None:
    notes = [section.note for section in sections(report(repetition))]
    (first, *others) = notes
    assert ("mostly repeat themselves (83%" in first) is said
    assert not any("repeat themselves" in note for note in others)


def test_a_busy_machine_is_said_beside_the_figures() -> None:
    busy = replace(report(), disturbed="other programs used 1.5 of 2 processors")
    assert "busy" not in markdown(sections(report()))
    assert "1.5 of 2 processors" in markdown(sections(busy))
