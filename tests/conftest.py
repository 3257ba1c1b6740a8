"""Models for the tests, and surroundings in which none depends on another, on the person who runs
them, or on how busy the machine is."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

# Set before llama.cpp is loaded. Every worker computes with all processors: threads that spin where
# they wait would take them from other workers, and so would more threads of NumPy's and torch's.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Tests ask for the kernels that they mean; and timing every tiny model both ways takes its time.
os.environ["SPEC_CPU_KERNELS"] = "off"

# No settings of the person who runs the tests: an empty file, and (below) no variables.
os.environ["SPEC_CPU_CONFIG"] = os.devnull

import pytest
import tiny
from hypothesis import HealthCheck, settings

from spec_cpu.cache import cache_dir
from spec_cpu.llama.model import Model
from spec_cpu.machine.disturbance import Spent
from spec_cpu.models.fetch import resolve

_KEPT = {"CACHE", "CONFIG", "ISA", "KERNELS", "VOCABULARIES"}
for _name in [name for name in os.environ if name.startswith("SPEC_CPU_")]:
    if _name.removeprefix("SPEC_CPU_") not in _KEPT:
        del os.environ[_name]

# How long an example takes says how busy the machine is.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")

# What tests share and check with: its failures say what was compared, as those of tests do.
pytest.register_assert_rewrite("calling", "engine", "languages", "program")


_numbers = count()


@pytest.fixture(scope="session")
def kernels_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the kernels are compiled, once for all workers of this run of the tests."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "kernels"
    folder.mkdir(exist_ok=True)
    return folder


def _empty_cache(tmp_path_factory: pytest.TempPathFactory, kernels_folder: Path) -> str:
    folder = tmp_path_factory.getbasetemp() / f"cache-{next(_numbers)}"
    folder.mkdir()
    (folder / "kernels").symlink_to(kernels_folder)
    return str(folder)


@pytest.fixture(scope="session", autouse=True)
def default_models(
    tmp_path_factory: pytest.TempPathFactory, kernels_folder: Path
) -> Iterator[Callable[[str], Path]]:
    """Finds models of the catalogue in the cache of the person who runs the tests, fetched on first
    use. What is shared between tests is made with another cache."""
    with pytest.MonkeyPatch.context() as patch:
        theirs = cache_dir()
        patch.setenv("SPEC_CPU_CACHE", _empty_cache(tmp_path_factory, kernels_folder))

        def find(name: str) -> Path:
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("SPEC_CPU_CACHE", str(theirs))
                return resolve(name)

        yield find


@pytest.fixture(scope="session", autouse=True)
def nobody_else() -> Iterator[None]:
    """What other programs do meanwhile, such as other tests, decides nothing."""
    alone = Spent(0.0, 0.0, 0.0, 0.0, 1)
    with pytest.MonkeyPatch.context() as patch:
        for user in ("costs.measure", "answer.participants"):
            patch.setattr(f"spec_cpu.{user}.spent", lambda *_: alone)
        yield


@pytest.fixture(autouse=True)
def own_cache(
    tmp_path_factory: pytest.TempPathFactory, kernels_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A cache of the test's own: it holds nothing but compiled kernels, those of all tests."""
    folder = _empty_cache(tmp_path_factory, kernels_folder)
    monkeypatch.setenv("SPEC_CPU_CACHE", folder)
    monkeypatch.setenv("SPEC_CPU_DATA", f"{folder}-data")
    return Path(folder)


@pytest.fixture(scope="session")
def default_path(default_models: Callable[[str], Path]) -> Path:
    """The embedded default target, SmolLM2-135M-Instruct in Q4_1."""
    return default_models("smollm2-135m-instruct")


@pytest.fixture(scope="session")
def q4_0_path(default_models: Callable[[str], Path]) -> Path:
    """The same model in Q4_0: the default draft, and a target that is exact to the bit."""
    return default_models("smollm2-135m-instruct-q4_0")


@pytest.fixture
def default_by_name(own_cache: Path, default_path: Path) -> Path:
    """The embedded default target where the program looks for it."""
    link = own_cache / default_path.name
    link.symlink_to(default_path)
    return link


@pytest.fixture(scope="session")
def default_target(default_path: Path) -> Iterator[Model]:
    with Model(default_path) as model:
        yield model


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for tiny models that tests share."""
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="session")
def tiny_target(models: Path) -> Path:
    """A tiny model that can read any text."""
    return tiny.write_llama(models / "target.gguf", n_vocab=320, n_ctx=2048, scale=3)


@pytest.fixture(scope="session")
def tiny_draft(models: Path) -> Path:
    """A relative of `tiny_target`: it often guesses right."""
    return tiny.write_llama(models / "draft.gguf", n_vocab=320, n_ctx=2048, scale=3, noise=0.15)


@pytest.fixture(scope="session")
def target(models: Path) -> Path:
    """A target to write heads for."""
    return tiny.write_llama(models / "headless.gguf", n_vocab=32, n_embd=64)
