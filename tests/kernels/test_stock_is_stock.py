"""A model that was loaded without the kernels is computed as if there were none."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path
from typing import cast

import pytest
import tiny

from spec_cpu.errors import KernelsError
from spec_cpu.kernels import build
from spec_cpu.llama.kernels import check_layouts
from spec_cpu.llama.quantize import quantize

NATIVE = Path(build.__file__).parent / "native"

# Prints llama.cpp's log, with the backend of every operation, and a digest of logits.
RUN = """
import hashlib, os, sys
from pathlib import Path
from typing import cast
os.environ["GGML_SCHED_DEBUG"] = "2"
from spec_cpu.kernels.build import build
from spec_cpu.llama import log
from spec_cpu.llama.context import Context
from spec_cpu.llama.kernels import load_kernels
from spec_cpu.llama.model import Model
from spec_cpu.llama.sequence import KVSequence
path, load, packed = Path(sys.argv[1]), sys.argv[2] == "load", sys.argv[3] == "packed"
if load:
    library = build().library
    load_kernels(library)
log.set_verbose(True)
digest = hashlib.sha256()
with Model(path, kernels=library if packed else None) as model:
    with Context(model, n_ctx=256, threads=2, max_outputs=64) as context:
        sequence = KVSequence(context)
        for width in (1, 4, 40):
            digest.update(sequence.score([260 + i for i in range(width)]).tobytes())
print(digest.hexdigest())
"""


def computed(model: Path, load: str, packed: str = "stock") -> tuple[str, list[str]]:
    """The digest, and the lines of the log that say where the graph is computed."""
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(model), load, packed],
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    )
    graph = [
        line
        for line in done.stderr.splitlines()
        if line.startswith(("## SPLIT", "node #")) or "splits = " in line
    ]
    assert any("splits = " in line for line in graph)
    assert any(line.startswith("node #") for line in graph)
    return done.stdout, graph


@pytest.mark.parametrize("quantization", ["Q4_0", "Q6_K", "F16"])
def test_as_in_a_process_that_never_loaded_the_library(models: Path, quantization: str) -> None:
    original = tiny.write_llama(
        models / "stock.gguf", n_vocab=320, n_embd=256, n_head=4, n_ff=512, n_layer=2, scale=3
    )
    model = original.with_stem(f"stock-{quantization}")
    quantize(original, model, quantization)
    logits, graph = computed(model, "never")
    assert (logits, graph) == computed(model, "load")
    assert (logits, graph) != computed(model, "load", "packed")


def checked_with(header: str, folder: Path) -> str:
    """What the check of layouts says, had it been compiled with `header` as ggml_abi.h."""
    source = folder / "layouts.cpp"
    source.write_text((NATIVE / "layouts.cpp").read_text())
    (folder / "layouts.h").write_text((NATIVE / "layouts.h").read_text())
    (folder / "ggml_abi.h").write_text(header)
    (folder / "exported.cpp").write_text(
        '#include "layouts.h"\n'
        'extern "C" const char * check() { return spec_cpu::differing_layout(); }\n'
    )
    found = build.find_build()
    library = folder / "check.so"
    subprocess.run(
        [
            *(*found.compiler, "-std=c++17", "-O0", "-fPIC", "-shared", "-Wno-psabi"),
            f"-I{found.llama_cpp.parent / 'include'}",
            *(str(source), str(folder / "exported.cpp"), "-o", str(library)),
            *(f"-L{found.llama_cpp / 'lib'}", "-l:libggml-base.so.0"),
        ],
        check=True,
        timeout=600,
    )
    check = ctypes.CDLL(str(library)).check
    check.restype = ctypes.c_char_p
    said: bytes | None = check()
    return (said or b"").decode()


@pytest.mark.parametrize(
    ("structure", "member"),
    [
        ("ggml_backend_buffer_type", "size_t (*get_max_size)(ggml_backend_buffer_type_t);"),
        ("ggml_backend_buffer", "size_t size;"),
        ("ggml_backend", "ggml_guid_t guid;"),
        ("ggml_backend_device", "ggml_backend_reg_t reg;"),
        ("ggml_backend_reg", "int api_version;"),
    ],
)
def test_a_structure_that_differs_is_named(structure: str, member: str, tmp_path: Path) -> None:
    header = (NATIVE / "ggml_abi.h").read_text()
    assert header.count(member) == 1
    assert checked_with(header.replace(member, f"void * more; {member}"), tmp_path) == structure


def test_another_llama_cpp_means_stock_kernels() -> None:
    class Differs:
        @staticmethod
        def spec_cpu_check_layouts(message: ctypes.Array[ctypes.c_char], _size: int) -> int:
            message.value = b"ggml_backend"
            return 1

    with pytest.raises(KernelsError, match=r"another ggml_backend than.*own code computes"):
        check_layouts(cast(ctypes.CDLL, Differs()))
