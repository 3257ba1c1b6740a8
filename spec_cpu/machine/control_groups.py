"""What Linux's control groups (of containers, of services) let this process have.

A process is in one group of version 2, in one group for each controller of version 1, or in both
kinds. Groups are nested, and a group's limit holds for all that is below it: cgroups(7).

The functions take the root of the file system, so that they can be shown another machine's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

ROOT = Path("/")
_GROUP = re.compile(r"^\d+:(?P<controllers>[^:\n]*):(?P<path>/.*)", re.MULTILINE)
_MOUNT = re.compile(
    r"^\S+ \S+ \S+ (?P<top>/\S*) (?P<point>/\S*) .*- (?P<version>cgroup2?) \S+ (?P<options>\S+)",
    re.MULTILINE,
)
_MEMORY_FILES = (  # a limit, what is in use, and how much of that can be given up at once
    ("memory.max", "memory.current", "inactive_file"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)


def cpu_quota(root: Path = ROOT) -> float | None:
    """Processors that the process may keep busy, possibly a fraction of one; None: no limit."""
    quotas = (_quota(folder) for folder in _groups("cpu", root))
    return min((quota for quota in quotas if quota is not None), default=None)


def free_memory(root: Path = ROOT) -> int | None:
    """Bytes that the process may still take; None: no limit."""
    free = (_free(folder, *files) for folder in _groups("memory", root) for files in _MEMORY_FILES)
    return min((n for n in free if n is not None), default=None)


def _quota(folder: Path) -> float | None:
    quota, _, period = _read(folder / "cpu.max").partition(" ")  # "50000 100000", "max 100000"
    if not period:
        quota, period = (_read(folder / f"cpu.cfs_{name}_us") for name in ("quota", "period"))
    if not quota.isdecimal() or not period.isdecimal() or not int(period):  # "max", or "-1"
        return None
    return int(quota) / int(period)


def _free(folder: Path, limit: str, used: str, reclaimable: str) -> int | None:
    most, taken = _read(folder / limit), _read(folder / used)
    if not most.isdecimal() or not taken.isdecimal():
        return None
    # Files that were read stay in memory, and count, until somebody wants the room.
    cached = re.search(rf"^{reclaimable} (\d+)$", _read(folder / "memory.stat"), re.MULTILINE)
    return max(0, int(most) - int(taken) + (int(cached[1]) if cached else 0))


def _groups(controller: str, root: Path) -> Iterator[Path]:
    """The folders of all groups whose limits hold for this process, as far as they are mounted."""
    groups = [*_GROUP.finditer(_read(root / "proc/self/cgroup"))]
    for mount in _MOUNT.finditer(_read(root / "proc/self/mountinfo")):
        if mount["version"] == "cgroup" and controller not in mount["options"].split(","):
            continue
        wanted = controller if mount["version"] == "cgroup" else ""  # version 2 names none
        for group in groups:
            if wanted in group["controllers"].split(","):
                point = root / _unescaped(mount["point"]).relative_to("/")
                inside = _inside(PurePosixPath(group["path"]), _unescaped(mount["top"]))
                yield from (point / part for part in (inside, *inside.parents))


def _inside(group: PurePosixPath, top: PurePosixPath) -> PurePosixPath:
    """Where `group` is below a mount that shows `top` and what is below it.

    A container may be told the path of its group on the host, or one that leads out of what it
    sees: then the mount itself is the nearest that can be read.
    """
    if ".." in group.parts or not group.is_relative_to(top):
        return PurePosixPath(".")
    return group.relative_to(top)


def _unescaped(path: str) -> PurePosixPath:
    return PurePosixPath(re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), path))


def _read(file: Path) -> str:
    """What is in `file`, without the line's end; nothing where it cannot be read."""
    try:
        return file.read_text("utf-8", "surrogateescape").strip()
    except OSError:
        return ""
