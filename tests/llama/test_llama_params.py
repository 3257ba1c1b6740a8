"""llama.cpp's multiplication with AMX tiles, as GCC 12 compiles it, would end the process."""

from __future__ import annotations

from pathlib import Path

import llama_cpp
import pytest

from spec_cpu.bench.rivals import Setting, llama_cpp_programs
from spec_cpu.llama import params


@pytest.mark.parametrize("built_in", [True, False])
def test_weights_are_never_laid_out_for_amx(
    monkeypatch: pytest.MonkeyPatch, built_in: bool
) -> None:
    info = b"CPU : AVX2 = 1 | " + (b"AMX_INT8 = 1 | " if built_in else b"")
    monkeypatch.setattr(llama_cpp, "llama_print_system_info", lambda: info)
    params.uses_amx.cache_clear()
    try:
        assert params.model_params().use_extra_bufts is not built_in
        with params.safe_defaults():
            assert llama_cpp.llama_cpp.llama_model_default_params().use_extra_bufts is not built_in
        assert llama_cpp.llama_cpp.llama_model_default_params().use_extra_bufts
        setting = Setting(
            target=Path("t"),
            draft=None,
            ctx=8,
            threads=1,
            temperature=0.0,
            draft_tokens=2,
            end_tokens=frozenset(),
        )
        for program in llama_cpp_programs(Path("bin"), setting):
            assert ("--no-repack" in program.command) is built_in
    finally:
        params.uses_amx.cache_clear()
