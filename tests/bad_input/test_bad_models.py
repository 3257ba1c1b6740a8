"""Bad models: files that are none, models that cannot be used, vocabularies that differ."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

import gguf
import pytest
import tiny
from calling import Call, refused, spawn


@pytest.fixture(scope="session")
def bad_models(models: Path, tiny_target: Path) -> dict[str, Path]:
    """Files that are no models one can use, by what is wrong."""
    folder = models / "bad"
    folder.mkdir()
    (folder / "empty.gguf").touch()
    (folder / "text.gguf").write_text("once upon a time")
    (folder / "folder.gguf").mkdir()
    first = tiny.write_llama(folder / "split.gguf", n_vocab=320, split=True)
    second = first.with_name(first.name.replace("-00001-", "-00002-"))
    lonely = folder / "lonely-00001-of-00002.gguf"
    lonely.write_bytes(first.read_bytes())
    files = {
        "missing": folder / "missing.gguf",
        "directory": folder / "folder.gguf",
        "empty": folder / "empty.gguf",
        "text": folder / "text.gguf",
        "adapter": tiny.write_adapter(folder / "adapter.gguf"),
        "projector": tiny.write_projector(folder / "projector.gguf"),
        "encoder": tiny.write_bert(folder / "encoder.gguf"),
        "second part": second,
        "part missing": lonely,
        "null device": Path("/dev/null"),
        "zero device": Path("/dev/zero"),
        "below a file": folder / "text.gguf" / "model.gguf",
        "overlong": folder / f"{'x' * 5000}.gguf",
    }
    for fraction in (0.001, 0.3, 0.9, 0.999):
        out = folder / f"truncated-{fraction}.gguf"
        files[f"truncated {fraction}"] = tiny.truncate(tiny_target, out, fraction)
    damages: tuple[tiny.Damage, ...] = ("magic", "header", "metadata", "tensor-info", "tensor-data")
    for what in damages:
        files[what] = tiny.corrupt(tiny_target, folder / f"{what}.gguf", what)
    return files


BAD_MODELS = [
    ("missing", 2, "no such file"),
    ("below a file", 2, "no such file"),
    ("overlong", 2, ""),
    ("directory", 2, "directory"),
    ("empty", 1, "empty"),
    ("null device", 2, "device"),
    ("zero device", 2, "device"),
    ("text", 1, "does not begin with GGUF"),
    ("magic", 1, "not a GGUF"),
    ("truncated 0.001", 1, "not whole"),
    ("truncated 0.3", 1, "again"),
    ("truncated 0.9", 1, "truncated"),
    ("truncated 0.999", 1, "truncated"),
    ("header", 1, "damaged"),
    ("metadata", 1, "damaged"),
    ("tensor-info", 1, "damaged"),
    ("adapter", 1, "adapter"),
    ("projector", 1, "projector"),
    ("encoder", 1, "encode"),
    ("part missing", 1, "-00002-of-00002"),
    ("second part", 1, "first"),
]


@pytest.mark.parametrize(("kind", "code", "word"), BAD_MODELS)
def test_a_file_that_is_no_usable_target_is_named(
    call: Call, bad_models: dict[str, Path], kind: str, code: int, word: str
) -> None:
    file = bad_models[kind]
    refused(call("run", "hi", "-q", "-m", file, "-d", "none"), code, word, file.name[:50])


@pytest.mark.parametrize(("kind", "code", "word"), BAD_MODELS)
def test_a_file_that_is_no_usable_draft_is_named(
    call: Call, bad_models: dict[str, Path], plain: list[str], kind: str, code: int, word: str
) -> None:
    file = bad_models[kind]
    refused(call("run", "hi", "-q", *plain, "-d", file), code, word, file.name[:50])


ANOTHERS = [
    ("eagle3", "EAGLE-3"),
    ("dflash", "DFlash"),
    ("gemma4-assistant", "Gemma 4"),
    ("clip", "projector"),
    ("wavtokenizer-dec", "speech"),
    ("qwen3tts", "speech"),
    ("pockettts", "speech"),
    *((name, "encoder") for name in ("modern-bert", "eurobert", "gemma-embedding", "llama-embed")),
]


@pytest.mark.parametrize("part", ["-m", "-d"])
@pytest.mark.parametrize(("architecture", "word"), ANOTHERS)
def test_a_part_of_something_else_is_named(
    call: Call, tmp_path: Path, plain: list[str], part: str, architecture: str, word: str
) -> None:
    """Rule: what llama.cpp would need another model's context for never gets to it."""
    file = tiny.write_bare(tmp_path / "part.gguf", architecture)
    refused(call("run", "hi", "-q", *plain, part, file), 1, word, "part.gguf")


def test_layers_for_multi_token_prediction_alone_are_named(
    call: Call, tmp_path: Path, plain: list[str]
) -> None:
    tensors = ["blk.28.nextn.eh_proj.weight", "blk.28.attn_q.weight"]
    file = tiny.write_bare(tmp_path / "part.gguf", "qwen35", tensors)
    refused(call("run", "hi", "-q", *plain, "-d", file), 1, "MTP", "part.gguf")


@pytest.mark.parametrize("name", ["smollm2-135m-eagle", "smollm2-135m-medusa"])
@pytest.mark.parametrize(
    "command", [["run", "hi"], ["plan"], ["train", "-o", "head.gguf"]], ids=lambda words: words[0]
)
def test_a_head_as_a_target_is_named(call: Call, command: list[str], name: str) -> None:
    if command[0] == "train" and find_spec("torch") is None:
        pytest.skip("what trains is not installed")
    refused(call(*command, "-m", name), 1, "draft head", f"{name}.gguf", "as the draft")


@pytest.mark.parametrize("part", ["-m", "-d"])
def test_a_model_without_a_vocabulary_is_named(
    call: Call, tmp_path: Path, plain: list[str], part: str
) -> None:
    file = tiny.write_bare(tmp_path / "mute.gguf", "llama", mute=True)
    refused(call("run", "hi", "-q", *plain, part, file), 1, "vocabulary", "mute.gguf")


@pytest.mark.parametrize("architecture", [*gguf.MODEL_ARCH_NAMES.values(), "no-such", "x" * 70])
def test_a_file_of_any_architecture_that_lacks_its_layers_is_refused(
    call: Call, tmp_path: Path, architecture: str
) -> None:
    file = tiny.write_bare(tmp_path / "bare.gguf", architecture)
    refused(call("run", "hi", "-q", "-m", file, "-d", "none"), 1, "bare.gguf")


@pytest.mark.parametrize("part", ["-m", "-d"])
@pytest.mark.parametrize("temperature", ["0", "0.8"])
def test_weights_that_are_not_numbers_are_noticed_and_the_file_is_named(
    call: Call, bad_models: dict[str, Path], pair: list[str], part: str, temperature: str
) -> None:
    file = bad_models["tensor-data"]
    outcome = call("run", "hi", "-q", *pair, part, file, "--temp", temperature)
    refused(outcome, 1, "damaged", file.name)


@pytest.mark.parametrize("part", ["-m", "-d"])
def test_a_fifo_as_a_model_is_refused_and_not_waited_for(pair: list[str], part: str) -> None:
    fifo = Path.cwd() / "fifo"
    os.mkfifo(fifo)
    outcome = spawn("run", "hi", "-q", *pair, part, fifo)
    assert outcome.code in (1, 2)
    refused(outcome, outcome.code, "fifo")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_model_that_may_not_be_read(call: Call, tiny_target: Path) -> None:
    file = Path("mine.gguf")
    file.write_bytes(tiny_target.read_bytes())
    file.chmod(0)
    refused(call("run", "hi", "-m", file), 1, "mine.gguf", "permission")


@pytest.mark.parametrize("part", ["-m", "-d"])
def test_a_recurrent_model_works_without_drafting_and_with_a_notice(
    call: Call, tmp_path: Path, pair: list[str], part: str
) -> None:
    mamba = tiny.write_mamba(tmp_path / "mamba.gguf", n_vocab=320, n_ctx=2048)
    outcome = call("run", "hi", *pair, part, mamba, "--json")
    assert outcome.code == 0
    assert outcome.json["tokens"] == 5
    assert outcome.json["drafted"] == 0
    assert "recurrent" in " ".join(outcome.json["notices"])
    assert "mamba.gguf" in outcome.err


def test_text_that_a_vocabulary_cannot_hold_is_refused(tmp_path: Path) -> None:
    """Rule: where llama.cpp throws an exception, there is still one line."""
    small = tiny.write_llama(tmp_path / "small.gguf", n_vocab=32)
    outcome = spawn("run", "Ü", "--raw", "-q", "-m", small, "-d", "none")
    assert outcome.code in (1, 2)
    refused(outcome, outcome.code)


# Vocabularies


def test_a_draft_with_other_tokens_is_refused(call: Call, tmp_path: Path, plain: list[str]) -> None:
    tokens = tiny.vocabulary(320)
    tokens[300], tokens[301] = tokens[301], tokens[300]
    draft = tiny.write_llama(tmp_path / "other.gguf", tokens=tokens)
    refused(call("run", "hi", "-q", *plain, "-d", draft), 1, "vocabular", "300", "family")


def test_a_draft_with_another_end_token_is_refused(
    call: Call, tmp_path: Path, plain: list[str]
) -> None:
    draft = tiny.write_llama(tmp_path / "other.gguf", n_vocab=320, eos=5)
    refused(call("run", "hi", "-q", *plain, "-d", draft), 1, "EOS", "family")


@pytest.mark.parametrize("part", ["-m", "-d"])
@pytest.mark.parametrize("temperature", ["0", "0.8"])
def test_padding_at_the_end_of_a_vocabulary_is_no_difference(
    call: Call, tmp_path: Path, pair: list[str], part: str, temperature: str
) -> None:
    padded = tiny.write_llama(tmp_path / "padded.gguf", n_vocab=320, n_ctx=2048, n_pad=7, scale=3)
    outcome = call("run", "hi", *pair, part, padded, "--temp", temperature, "--json", "-q")
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.json["drafted"] > 0
