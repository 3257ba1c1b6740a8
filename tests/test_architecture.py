"""Arrows among the rooms of the library, drawn from its sources: they point one way.

A room is a folder of `spec_cpu`, or a file beside them. `docs/architecture.md` shows the picture.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import spec_cpu_cli

import spec_cpu

LIBRARY = Path(spec_cpu.__file__).parent
COMMAND_LINE = Path(spec_cpu_cli.__file__).parent
Arrow = tuple[str, str]


def modules(folder: Path) -> Iterator[tuple[str, ast.Module]]:
    """The modules below `folder`, by their names as they are imported."""
    for file in sorted(folder.rglob("*.py")):
        name = ".".join(file.relative_to(folder.parent).with_suffix("").parts)
        yield name.removesuffix(".__init__"), ast.parse(file.read_text(encoding="utf-8"))


def imported(tree: ast.Module) -> Iterator[str]:
    """What a module imports, wherever it does so, also for its types alone."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "imports are written in full"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


SOURCES = dict(modules(LIBRARY))


def arrows() -> set[Arrow]:
    """From module to module, within the library and without its name; `__init__` is its face."""
    found = set()
    for name, tree in SOURCES.items():
        if name != "spec_cpu":
            for target in imported(tree):
                module = target if target in SOURCES else target.rpartition(".")[0]
                if module in SOURCES and module != "spec_cpu":
                    found.add((name.removeprefix("spec_cpu."), module.removeprefix("spec_cpu.")))
    return found


def within(module: str, room: str) -> bool:
    return module == room or module.startswith(f"{room}.")


def test_rooms_make_no_circle() -> None:
    rooms: defaultdict[str, set[str]] = defaultdict(set)
    for start, end in arrows():
        if (room := start.split(".")[0]) != end.split(".")[0]:
            rooms[room].add(end.split(".")[0])
    assert len(rooms) > 10, "this looks at nothing"
    try:
        list(TopologicalSorter(rooms).static_order())
    except CycleError as error:
        circle = error.args[1]
        raise AssertionError(f"rooms import each other: {' <- '.join(circle)}") from None


def test_drafting_and_the_cycle_know_nothing_of_what_is_built_upon_them() -> None:
    above = ("train", "bench", "answer", "session", "loading", "costs.measure", "costs.cache")
    forbidden = [
        arrow
        for arrow in sorted(arrows())
        if arrow[0].split(".")[0] in ("draft", "cycle")
        and any(within(arrow[1], room) for room in above)
    ]
    assert forbidden == []


def test_verification_and_formulas_import_no_model() -> None:
    pure = ("cycle.verify", "draft.tree", "costs.theory", "costs.costs", "sampling")
    models = ("llama", "kernels", "models", "heads")
    assert [
        arrow
        for arrow in sorted(arrows())
        if any(within(arrow[0], one) for one in pure) and any(within(arrow[1], m) for m in models)
    ] == []


def test_what_drafts_knows_nothing_of_what_else_does() -> None:
    """What makes drafts is a class named Source; `load` makes them, and knows them."""
    sources = {
        name.removeprefix("spec_cpu.")
        for name, tree in SOURCES.items()
        if within(name, "spec_cpu.draft") and name not in ("spec_cpu.draft.base", "spec_cpu.draft")
        for node in tree.body
        if isinstance(node, ast.ClassDef) and node.name.endswith("Source")
    }
    assert len(sources) >= 4, "this looks at nothing"
    assert [arrow for arrow in sorted(arrows()) if {*arrow} <= sources] == []


def test_each_large_package_is_imported_in_one_room() -> None:
    homes = {"llama_cpp": "spec_cpu.llama", "torch": "spec_cpu.train"}
    homes |= dict.fromkeys(
        ("starlette", "uvicorn", "pydantic", "prometheus_client", "anyio"), "spec_cpu.serve.http"
    )
    strangers = [
        (name, target)
        for folder in (LIBRARY, COMMAND_LINE)
        for name, tree in modules(folder)
        for target in imported(tree)
        if (home := homes.get(target.split(".")[0])) and not within(name, home)
    ]
    assert strangers == []


def test_the_library_does_not_know_the_command_line() -> None:
    assert [
        (name, target)
        for name, tree in SOURCES.items()
        for target in imported(tree)
        if target.startswith("spec_cpu_cli")
    ] == []


def test_training_is_for_the_command_that_trains() -> None:
    users = {
        name
        for folder in (LIBRARY, COMMAND_LINE)
        for name, tree in modules(folder)
        if not within(name, "spec_cpu.train")
        and any(within(one, "spec_cpu.train") for one in imported(tree))
    }
    assert users <= {"spec_cpu_cli.train", "spec_cpu_cli.training_view"}


def test_each_room_says_what_it_holds_and_the_architecture_page_names_it() -> None:
    page = (LIBRARY.parent / "docs" / "architecture.md").read_text(encoding="utf-8")
    for init in LIBRARY.glob("*/__init__.py"):
        said = ast.get_docstring(ast.parse(init.read_text(encoding="utf-8")))
        assert said, f"{init} says nothing"
        assert f"{init.parent.name}/" in page, f"{init.parent.name}/ is not on the page"


def test_the_engine_does_not_know_how_it_is_asked() -> None:
    assert [
        arrow
        for arrow in sorted(arrows())
        if (within(arrow[1], "serve") and not within(arrow[0], "serve"))
        or (within(arrow[1], "serve.http") and not within(arrow[0], "serve.http"))
    ] == []
