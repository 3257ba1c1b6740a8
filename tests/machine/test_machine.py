"""What a machine lets us have, as others' machines describe themselves, and on this one."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Literal

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spec_cpu.errors import UsageError
from spec_cpu.machine import control_groups, hardware

Version = Literal[1, 2]
VERSIONS: tuple[Version, ...] = (1, 2)
GB = 10**9
LEVELS = ("", "machine.slice", "machine.slice/box:1", "machine.slice/box:1/job")


def write(folder: Path, **files: object) -> None:
    """Files of a control group; `__` stands for a dot."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name.replace("__", ".")).write_text(f"{content}\n")


class Box:
    """The root of a file system in which Linux describes a process in nested groups."""

    def __init__(self, root: Path, version: Version, group: str, *, top: str = "/") -> None:
        """The process is in `group`; what is mounted is `top` and what is below it."""
        self.root, self.version = root, version
        self.mounts = {name: f"/sys/fs/cgroup/{name}" for name in ("cpu,cpuacct", "memory")}
        if version == 2:
            self.mounts = {"": "/sys/fs/cgroup"}
        kind = "cgroup" if version == 1 else "cgroup2"
        write(
            root / "proc/self",
            cgroup="\n".join(
                [f"12:pids:{group}"] + [f"{i}:{name}:{group}" for i, name in enumerate(self.mounts)]
            ),
            mountinfo="\n".join(
                ["22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw"]
                + [
                    f"30 22 0:26 {top} {point} rw,nosuid shared:9 - {kind} cgroup rw,{name}"
                    for name, point in self.mounts.items()
                ]
            ),
        )

    def folder(self, controller: str, level: str) -> Path:
        point = next(point for name, point in self.mounts.items() if controller in name or not name)
        return self.root / point[1:] / level

    def limit_cpu(self, level: str, quota: int | None, period: int = 100_000) -> None:
        """Microseconds that the group may use in each period; None: as many as there are."""
        if self.version == 2:
            said = "max" if quota is None else quota
            write(self.folder("cpu", level), cpu__max=f"{said} {period}")
        else:
            said = -1 if quota is None else quota
            write(self.folder("cpu", level), cpu__cfs_quota_us=said, cpu__cfs_period_us=period)

    def limit_memory(self, level: str, most: int | None, used: int, cached: int = 0) -> None:
        folder = self.folder("memory", level)
        if self.version == 2:
            write(folder, memory__max="max" if most is None else most, memory__current=used)
            write(folder, memory__stat=f"anon 17\ninactive_file {cached}\nslab 3")
        else:
            no_limit = 0x7FFFFFFFFFFFF000
            write(folder, memory__limit_in_bytes=no_limit if most is None else most)
            write(folder, memory__usage_in_bytes=used)
            write(folder, memory__stat=f"inactive_file 1\ntotal_inactive_file {cached}")


@pytest.fixture(autouse=True)
def _large_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """64 cores of one thread each, and 64 GB that are free."""
    monkeypatch.setattr(psutil, "cpu_count", lambda logical=True: 64)
    monkeypatch.setattr(psutil.Process, "cpu_affinity", lambda _self: list(range(64)))
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=64 * GB))


@pytest.mark.parametrize("version", VERSIONS)
@given(
    quotas=st.lists(
        st.none() | st.integers(1_000, 100_000 * 80), min_size=len(LEVELS), max_size=len(LEVELS)
    ),
    period=st.integers(1_000, 1_000_000),
)
def test_the_tightest_quota_of_all_nested_groups_counts(
    tmp_path_factory: pytest.TempPathFactory,
    version: Version,
    quotas: Sequence[int | None],
    period: int,
) -> None:
    root = tmp_path_factory.mktemp("box")
    box = Box(root, version, f"/{LEVELS[-1]}")
    for level, quota in zip(LEVELS, quotas, strict=True):
        box.limit_cpu(level, quota, period)
    allowed = [quota / period for quota in quotas if quota is not None]
    assert control_groups.cpu_quota(root) == (min(allowed) if allowed else None)
    assert hardware.usable_cores(root) == max(1, int(min([64.0, *allowed])))


@pytest.mark.parametrize("version", VERSIONS)
@given(
    groups=st.lists(
        st.tuples(st.none() | st.integers(0, 70 * GB), st.integers(0, 70 * GB), st.floats(0, 1)),
        min_size=len(LEVELS),
        max_size=len(LEVELS),
    )
)
def test_the_tightest_memory_of_all_nested_groups_counts(
    tmp_path_factory: pytest.TempPathFactory,
    version: Version,
    groups: Sequence[tuple[int | None, int, float]],
) -> None:
    """What a group holds of files that nobody reads any more is free to take."""
    root = tmp_path_factory.mktemp("box")
    box = Box(root, version, f"/{LEVELS[-1]}")
    free = [64 * GB]
    for level, (most, used, share) in zip(LEVELS, groups, strict=True):
        cached = int(used * share)
        box.limit_memory(level, most, used, cached)
        if most is not None:
            free.append(max(0, most - used + cached))
    assert hardware.available_memory(root) == min(free)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("quota", "threads"), [(50_000, 1), (100_000, 1), (199_999, 1), (200_000, 2), (650_000, 6)]
)
def test_a_thread_is_run_for_each_whole_processor_of_a_quota(
    tmp_path: Path, version: Version, quota: int, threads: int
) -> None:
    box = Box(tmp_path, version, f"/{LEVELS[-1]}")
    box.limit_cpu(LEVELS[1], quota)
    assert hardware.usable_cores(tmp_path) == threads


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("group", "top"),
    [
        ("/docker/6f1b", "/docker/6f1b"),  # told the host's path, shown its own part of the tree
        ("/docker/6f1b", "/"),  # told the host's path, where the whole tree is shown but has it not
        ("/", "/"),  # a namespace of its own
        ("/../other", "/"),  # entered a namespace from outside
        ("/docker/6f1b", "/lxc/7"),
    ],
)
def test_a_container_sees_its_limits_at_the_mount(
    tmp_path: Path, version: Version, group: str, top: str
) -> None:
    box = Box(tmp_path, version, group, top=top)
    box.limit_cpu("", 50_000)
    box.limit_memory("", 3 * GB, GB)
    assert hardware.usable_cores(tmp_path) == 1
    assert hardware.available_memory(tmp_path) == 2 * GB


def test_limits_of_both_versions_count_where_both_are_there(tmp_path: Path) -> None:
    Box(tmp_path, 1, "/job").limit_cpu("job", 350_000)
    described = {name: (tmp_path / "proc/self" / name) for name in ("cgroup", "mountinfo")}
    first = {name: file.read_text() for name, file in described.items()}
    second = Box(tmp_path, 2, "/job")
    second.limit_memory("job", 4 * GB, GB)
    for name, file in described.items():
        file.write_text(first[name] + file.read_text())
    assert hardware.usable_cores(tmp_path) == 3
    assert hardware.available_memory(tmp_path) == 3 * GB


def test_a_mount_point_with_a_blank_in_its_name(tmp_path: Path) -> None:
    box = Box(tmp_path, 2, "/")
    mountinfo = tmp_path / "proc/self/mountinfo"
    mountinfo.write_text(mountinfo.read_text().replace("/sys/fs/cgroup", "/sys/c\\040groups"))
    box.mounts = {"": "/sys/c groups"}
    box.limit_cpu("", 100_000)
    assert hardware.usable_cores(tmp_path) == 1


@settings(max_examples=40)
@given(
    files=st.fixed_dictionaries(
        {
            name: st.text(st.characters(codec="utf-8"))
            | st.sampled_from(["-1 0", "5 0", "max", "1"])
            for name in ("cpu__max", "memory__max", "memory__current", "memory__stat")
        }
    ),
    group=st.text(st.characters(codec="utf-8")),
)
def test_nonsense_is_no_limit_and_no_error(
    tmp_path_factory: pytest.TempPathFactory, files: dict[str, str], group: str
) -> None:
    root = tmp_path_factory.mktemp("box")
    box = Box(root, 2, group)
    write(box.folder("cpu", ""), **files)
    assert hardware.usable_cores(root) >= 1
    assert (hardware.available_memory(root) or 0) <= 64 * GB


def test_without_control_groups_the_machine_is_all_ours(tmp_path: Path) -> None:
    assert hardware.usable_cores(tmp_path) == 64
    assert hardware.available_memory(tmp_path) == 64 * GB


@given(st.sets(st.integers(0, 15), min_size=1))
def test_two_processors_of_one_core_are_one_thread(
    tmp_path_factory: pytest.TempPathFactory, allowed: set[int]
) -> None:
    """Of 16 logical processors n and n + 8 are one core's; affinity or a cpuset allows some."""
    root = tmp_path_factory.mktemp("processors")
    for cpu in range(16):
        topology = root / f"sys/devices/system/cpu/cpu{cpu}/topology"
        write(topology, thread_siblings_list=f"{cpu % 8},{cpu % 8 + 8}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(psutil, "cpu_count", lambda logical=True: 16 if logical else 8)
        patch.setattr(psutil.Process, "cpu_affinity", lambda _self: list(allowed))
        assert hardware.physical_cores(root) == len({cpu % 8 for cpu in allowed})


@pytest.mark.parametrize("system", ["macOS", "Windows"])
@pytest.mark.parametrize(
    ("logical", "physical", "cores"), [(8, 4, 4), (4, 4, 4), (6, None, 6), (None, None, 1)]
)
def test_cores_are_counted_where_linux_describes_none(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    system: str,
    logical: int | None,
    physical: int | None,
    cores: int,
) -> None:
    counted = {True: logical, False: physical}
    monkeypatch.setattr(psutil, "cpu_count", lambda logical=True: counted[logical])
    if system == "macOS":
        monkeypatch.delattr(psutil.Process, "cpu_affinity")
    else:
        allowed = list(range(logical or 1))
        monkeypatch.setattr(psutil.Process, "cpu_affinity", lambda _self: allowed)
    assert hardware.usable_cores(tmp_path) == cores


def test_memory_that_the_system_does_not_tell_is_not_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable() -> None:
        raise FileNotFoundError("/proc/meminfo")

    monkeypatch.setattr(psutil, "virtual_memory", unreadable)
    assert hardware.available_memory(tmp_path) is None


def test_what_a_person_asks_for_is_not_cut_down() -> None:
    assert hardware.threads(7) == 7
    for wrong in (0, -1, 513):
        with pytest.raises(UsageError, match="threads"):
            hardware.threads(wrong)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="processes are bound on Linux")
def test_a_process_bound_to_one_processor_runs_one_thread() -> None:
    code = (
        "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))});"
        "from spec_cpu.machine import hardware;"
        "print(hardware.threads(None), hardware.available_memory())"
    )
    said = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    threads, memory = map(int, said.stdout.split())
    assert threads == 1
    assert memory > 0
