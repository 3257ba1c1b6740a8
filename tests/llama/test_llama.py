"""The llama.cpp layer: files, models, vocabularies, contexts, sequences."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tiny
from hypothesis import given, settings
from hypothesis import strategies as st

from spec_cpu.errors import ContextError, ModelError, UsageError, VocabularyMismatchError
from spec_cpu.llama import log
from spec_cpu.llama.chat import ChatTemplate, Message
from spec_cpu.llama.context import Context
from spec_cpu.llama.model import Model
from spec_cpu.llama.quantize import quantize
from spec_cpu.llama.sequence import KVSequence
from spec_cpu.llama.vocab import Detokenizer, check_same_vocabulary
from spec_cpu.machine import hardware
from spec_cpu.text.rendering import render

TOKENS = [tiny.BOS, 5, 8, 13, 21, 4, 9]


@pytest.fixture(scope="module")
def small(models: Path) -> Path:
    return tiny.write_llama(models / "small.gguf", n_vocab=32, n_layer=2)


# Files


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda good, path: path.write_bytes(b""), "empty"),
        (lambda good, path: path.write_bytes(b"PK\x03\x04 a zip"), "not a GGUF"),
        (lambda good, path: path.write_bytes(b"GGUF"), "damaged"),
        (lambda good, path: tiny.truncate(good, path, 0.02), "damaged"),
        (lambda good, path: tiny.truncate(good, path, 0.9), "truncated: .* of .* bytes"),
        (lambda good, path: tiny.corrupt(good, path, "magic"), "not a GGUF"),
        (lambda good, path: tiny.corrupt(good, path, "header"), "damaged"),
        (lambda good, path: tiny.corrupt(good, path, "metadata"), r"damaged|cannot load"),
        (lambda good, path: tiny.corrupt(good, path, "tensor-info"), r"damaged|cannot load"),
        (lambda good, path: tiny.write_adapter(path), "adapter"),
        (lambda good, path: tiny.write_projector(path), "projector"),
        (lambda good, path: tiny.write_bert(path), "encoder"),
        (lambda good, path: tiny.write_llama(path, causal=False), "only encodes"),
    ],
)
def test_what_is_no_language_model_is_named(
    small: Path, tmp_path: Path, make: object, message: str
) -> None:
    path = tmp_path / "x.gguf"
    make(small, path)  # type: ignore[operator]
    with pytest.raises(ModelError, match=message):
        Model(path)


def test_no_such_file_and_a_directory_are_usage_errors(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        Model(tmp_path / "none.gguf")
    with pytest.raises(UsageError, match="directory"):
        Model(tmp_path)


def test_a_split_model_loads_from_its_first_part(tmp_path: Path, small: Path) -> None:
    first = tiny.write_llama(tmp_path / "s.gguf", n_vocab=32, n_layer=2, split=True)
    with Model(first) as model, Model(small) as whole:
        assert model.info.parameters == whole.info.parameters
    next(path for path in tmp_path.glob("*00002-of*")).unlink()
    with pytest.raises(ModelError, match="cannot load"):
        Model(first)


def test_damaged_weights_show_in_the_logits(small: Path, tmp_path: Path) -> None:
    path = tiny.corrupt(small, tmp_path / "nan.gguf", "tensor-data")
    from spec_cpu.sampling.pipeline import Pipeline, SamplingParams

    with Model(path) as model, Context(model, n_ctx=64) as context:
        logits = KVSequence(context).score(TOKENS)
        with pytest.raises(ModelError, match="not finite"):
            Pipeline(SamplingParams()).distribution(logits[0], [])


def test_llama_cpps_log_is_silent_unless_asked_for(small: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from spec_cpu.llama import log;"
        "from spec_cpu.llama.model import Model; log.set_verbose(len(sys.argv) > 2);"
        "Model(Path(sys.argv[1])).close()"
    )
    quiet, loud = (
        subprocess.run(
            [sys.executable, "-c", program, str(small), *more],
            capture_output=True,
            text=True,
            check=True,
        )
        for more in ((), ("verbose",))
    )
    assert quiet.stderr == quiet.stdout == ""
    assert "llama" in loud.stderr


def test_the_first_error_line_says_most() -> None:
    log.forget_errors()
    assert log.last_error() == ""


def test_an_abort_is_explained(small: Path) -> None:
    program = (
        "import ctypes, os, sys; from spec_cpu.llama import log;"
        "log.on_abort(lambda reason: (print(reason), sys.stdout.flush(), os._exit(7)));"
        "ggml = ctypes.CDLL('libggml-base.so.0', mode=os.RTLD_NOLOAD | os.RTLD_NOW);"
        "ggml.ggml_abort(b'file.c', 1, b'%s', b'the reason')"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 7
    assert "the reason" in done.stdout


# Models


def test_a_model_says_what_it_is(default_target: Model, default_path: Path) -> None:
    info = default_target.info
    assert info.file == default_path.name
    assert info.quantization == "Q4_1"
    assert info.parameters == 134_515_008
    assert 90e6 < info.bytes < 100e6
    assert default_target.architecture == "llama"
    assert default_target.n_embd == 576
    assert default_target.can_rollback
    assert default_target.kv_bytes(1) == 2 * 30 * 3 * (64 + 64)


def test_fingerprints_tell_files_apart(small: Path, tmp_path: Path) -> None:
    other = tiny.write_llama(tmp_path / "other.gguf", n_vocab=32, n_layer=2, seed=1)
    copy = tmp_path / "copy.gguf"
    copy.write_bytes(small.read_bytes())
    with Model(small) as a, Model(other) as b, Model(copy) as c:
        assert a.fingerprint == c.fingerprint != b.fingerprint


def test_a_closed_model_says_so(small: Path) -> None:
    model = Model(small)
    model.close()
    model.close()
    with pytest.raises(ModelError, match="closed"):
        _ = model.handle


def test_a_recurrent_model_cannot_roll_back(tmp_path: Path) -> None:
    with Model(tiny.write_mamba(tmp_path / "m.gguf")) as model:
        assert not model.can_rollback


def test_loading_reports_progress(small: Path) -> None:
    seen: list[float] = []
    Model(small, progress=seen.append).close()
    assert seen == sorted(seen)
    assert seen[-1] == 1.0


def test_quantize(default_target: Model, q4_0_path: Path, tmp_path: Path) -> None:
    with Model(q4_0_path) as model:
        assert model.info.quantization == "Q4_0"
        assert model.info.bytes < default_target.info.bytes
    with pytest.raises(UsageError, match="no format named Q9"):
        quantize(q4_0_path, tmp_path / "x.gguf", "Q9")
    with pytest.raises(ModelError, match="cannot quantize"):
        quantize(q4_0_path, tmp_path / "none" / "x.gguf", "Q4_0")


# Text


# The vocabulary lacks control characters and a few bytes that only occur in the highest planes.
characters = st.characters(max_codepoint=0x1FFFF, exclude_categories=["Cs", "Cc"])


@given(text=st.text(characters, max_size=200))
@settings(max_examples=200, deadline=None)
def test_text_survives_tokens(default_target: Model, text: str) -> None:
    vocab = default_target.vocab
    detokenizer = Detokenizer(vocab)
    tokens = vocab.tokenize(text, add_special=False)
    if any(not vocab.piece(token) for token in tokens):
        return  # text that spells a control token
    assert "".join(map(detokenizer.push, tokens)) + detokenizer.flush() == text


def test_special_tokens_are_recognised_and_show_no_text(default_target: Model) -> None:
    vocab = default_target.vocab
    (token,) = vocab.tokenize("<|im_end|>", add_special=False)
    assert vocab.text(token) == b"<|im_end|>"
    assert vocab.piece(token) == b""
    assert token in vocab.end_tokens
    assert vocab.text(-1) == vocab.text(vocab.n) == b""


def test_a_token_longer_than_the_first_buffer(tmp_path: Path) -> None:
    long = "x" * 500
    names = [*tiny.vocabulary(40), long]
    with Model(tiny.write_llama(tmp_path / "l.gguf", tokens=names)) as model:
        assert model.vocab.piece(40) == long.encode()


def test_vocabularies_that_only_differ_in_padding_are_the_same(tmp_path: Path) -> None:
    plain = tiny.write_llama(tmp_path / "a.gguf", n_vocab=40)
    padded = tiny.write_llama(tmp_path / "b.gguf", n_vocab=40, n_pad=7)
    with Model(plain) as a, Model(padded) as b:
        check_same_vocabulary(a.vocab, b.vocab)
        check_same_vocabulary(b.vocab, a.vocab)


def test_different_vocabularies_are_refused_with_the_first_difference(tmp_path: Path) -> None:
    names = tiny.vocabulary(40)
    changed = [*names[:20], "other", *names[21:]]
    plain = tiny.write_llama(tmp_path / "a.gguf", tokens=names)
    other = tiny.write_llama(tmp_path / "b.gguf", tokens=changed)
    with (
        Model(plain) as a,
        Model(other) as b,
        pytest.raises(VocabularyMismatchError, match="token 20 is 'other' in the draft"),
    ):
        check_same_vocabulary(a.vocab, b.vocab)


def test_different_special_tokens_are_refused(tmp_path: Path) -> None:
    plain = tiny.write_llama(tmp_path / "a.gguf", n_vocab=40)
    other = tiny.write_llama(tmp_path / "b.gguf", n_vocab=40, eos=9)
    with (
        Model(plain) as a,
        Model(other) as b,
        pytest.raises(VocabularyMismatchError, match="EOS token"),
    ):
        check_same_vocabulary(a.vocab, b.vocab)


@pytest.mark.parametrize("add_bos", [True, False])
@pytest.mark.parametrize("add_eos", [True, False])
@pytest.mark.parametrize("text", ["", "hello", "<s>hello", "hello</s>", "<s>", "</s>"])
def test_a_text_begins_with_one_bos_and_ends_as_it_is_written(
    tmp_path: Path, add_bos: bool, add_eos: bool, text: str
) -> None:
    """Rule: an answer follows it, so that nothing is put behind it, whatever the model wants."""
    path = tmp_path / "m.gguf"
    with Model(tiny.write_llama(path, n_vocab=320, add_bos=add_bos, add_eos=add_eos)) as model:
        tokens = model.vocab.tokenize(text)
        assert tokens.count(tiny.BOS) == (add_bos or text.startswith("<s>"))
        assert tokens.index(tiny.BOS) == 0 if tiny.BOS in tokens else True
        assert tokens.count(tiny.EOS) == text.count("</s>")
        as_text = model.vocab.tokenize(text, parse_special=False)
        assert as_text.count(tiny.BOS) == add_bos
        assert tiny.EOS not in as_text


@pytest.mark.parametrize("opening", ["{{ bos_token }}", "<s>", ""])
@pytest.mark.parametrize("add_bos", [True, False])
def test_a_prompt_begins_with_one_bos_and_does_not_end(
    tmp_path: Path, add_bos: bool, opening: str
) -> None:
    template = f"{opening}{{% for m in messages %}}{{{{ m.content }}}}{{% endfor %}}:"
    path = tiny.write_llama(
        tmp_path / "m.gguf",
        n_vocab=320,
        add_bos=add_bos,
        add_eos=True,
        chat_template=template,
    )
    with Model(path) as model:
        for prompt in ("hello", "<s>", "hello</s>"):
            rendered = render(model, [], prompt)
            assert rendered.tokens.count(tiny.BOS) == (add_bos or bool(opening))
            assert tiny.EOS not in rendered.tokens
            assert rendered.text == f"{prompt}:"
            raw = render(model, None, prompt)
            assert raw.tokens.count(tiny.BOS) == (add_bos or prompt == "<s>")
            assert raw.tokens.count(tiny.EOS) == prompt.count("</s>")


CONVERSATION = [Message(role="system", content="Be brief."), Message(role="user", content="Hi")]


def test_the_models_own_template(default_target: Model) -> None:
    prompt = default_target.chat_template.render(CONVERSATION)
    assert prompt.startswith("<|im_start|>system\nBe brief.<|im_end|>")
    assert prompt.endswith("<|im_start|>assistant\n")
    assert default_target.chat_template.notice is None


@pytest.mark.parametrize("source", [None, "{% broken", "{{ raise_exception('no') }}"])
def test_without_a_template_that_works_there_is_a_plain_one_and_a_notice(
    source: str | None,
) -> None:
    template = ChatTemplate(source, bos="<s>", eos="</s>")
    assert template.render(CONVERSATION) == "System: Be brief.\nUser: Hi\nAssistant:"
    assert template.notice
    assert "plain" in template.notice
    assert template.stops == ("\nUser:",)


def test_a_template_without_a_system_turn_gets_it_in_the_first_users() -> None:
    source = (
        "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}"
        "{% for m in messages %}[{{ m.role }}: {{ m.content }}]{% endfor %}"
    )
    template = ChatTemplate(source, bos="", eos="")
    assert template.render(CONVERSATION) == "[user: Be brief.\n\nHi]"
    assert template.notice is None


# Contexts and sequences


def test_rows_are_views_of_the_tokens_asked_for(small: Path) -> None:
    with Model(small) as model, Context(model, n_ctx=64, threads=1) as context:
        n = len(TOKENS)
        ids = [(0,)] * n
        every = context.decode(TOKENS, range(n), ids).copy()
        context.truncate(0)
        some = context.decode(TOKENS, range(n), ids, outputs=[i in (1, 4) for i in range(n)])
        assert every.shape == (n, 32)
        assert some.base is not None, "a copy, not a view"
        np.testing.assert_allclose(some, every[[1, 4]], atol=1e-5)


def test_sequences_do_not_see_each_other(small: Path) -> None:
    with Model(small) as model, Context(model, n_ctx=64, n_seq=2, threads=1) as context:
        one, two = KVSequence(context, 0), KVSequence(context, 1)
        alone = one.score(TOKENS).copy()
        one.reuse([])
        two.score([tiny.BOS, 30, 29, 28])
        np.testing.assert_allclose(one.score(TOKENS), alone, atol=1e-5)


def test_hidden_states_come_with_the_logits(small: Path) -> None:
    with Model(small) as model:
        with Context(model, n_ctx=64, hidden=True) as context:
            rows = KVSequence(context).score(TOKENS).copy()
            hidden = context.hidden_rows(len(TOKENS)).copy()
        with Context(model, n_ctx=64) as context:
            plain = KVSequence(context).score(TOKENS).copy()
            with pytest.raises(ContextError, match="hidden=True"):
                context.hidden_rows(1)
    assert hidden.shape == (len(TOKENS), 32)
    np.testing.assert_allclose(rows, plain, atol=1e-4)
    # After the last norm (whose weight is one) every state has a mean square of one.
    np.testing.assert_allclose((hidden**2).mean(axis=1), 1, atol=1e-2)


def test_prompts_are_read_in_batches_with_progress(small: Path) -> None:
    tokens = [tiny.BOS, *(3 + i % 25 for i in range(40))]
    with Model(small) as model:
        with Context(model, n_ctx=64, n_batch=16, threads=1) as context:
            sequence, seen = KVSequence(context), []
            sequence.prefill(tokens, lambda done, total: seen.append((done, total)))
            batched = sequence.score([7]).copy()
        with Context(model, n_ctx=64, threads=1) as context:
            whole = KVSequence(context)
            whole.prefill(tokens)
            np.testing.assert_allclose(batched, whole.score([7]), atol=0.02)
    assert seen == [(16, 41), (32, 41), (41, 41)]


def test_reuse_keeps_the_common_prefix(small: Path) -> None:
    with Model(small) as model, Context(model, n_ctx=64, threads=1) as context:
        sequence = KVSequence(context)
        sequence.prefill(TOKENS)
        assert sequence.reuse([*TOKENS[:4], 30, 30]) == 4
        assert sequence.tokens == TOKENS[:4]
        rest = sequence.score(TOKENS[4:]).copy()
        sequence.reuse([])
        np.testing.assert_allclose(rest, sequence.score(TOKENS)[4:], atol=0.02)


def test_reuse_forgets_what_an_interrupted_pass_left_behind(small: Path) -> None:
    with Model(small) as model, Context(model, n_ctx=64, threads=1) as context:
        sequence = KVSequence(context)
        sequence.prefill(TOKENS)
        del sequence.tokens[5:]  # as if the pass had been broken off before it was booked
        sequence.reuse(TOKENS)
        sequence.score(TOKENS[5:])
        assert sequence.tokens == TOKENS


def test_a_recurrent_memory_is_forgotten_as_a_whole(tmp_path: Path) -> None:
    path = tiny.write_mamba(tmp_path / "m.gguf")
    with Model(path) as model, Context(model, n_ctx=64, threads=1) as context:
        sequence = KVSequence(context)
        sequence.prefill(TOKENS)
        assert sequence.reuse(TOKENS) == len(TOKENS)
        assert sequence.reuse(TOKENS[:3]) == 0
        assert sequence.tokens == []
        sequence.score(TOKENS)


def test_what_does_not_fit_is_said(small: Path) -> None:
    with Model(small) as model, Context(model, n_ctx=256, n_batch=8, threads=1) as context:
        with pytest.raises(ContextError, match="9 tokens in one pass, but the batch holds 8"):
            KVSequence(context).score([5] * 9)
        sequence = KVSequence(context)
        with pytest.raises(ContextError, match="no room"):
            sequence.prefill([5] * 300)
        assert len(sequence) == 256


def test_too_large_a_context_is_refused_before_it_is_touched(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Model(small) as model:
        with pytest.raises(ContextError, match="GB"):
            Context(model, n_ctx=2**31 - 1)
        monkeypatch.setattr(hardware, "available_memory", lambda: None)
        with pytest.raises(UsageError, match="threads"):
            Context(model, n_ctx=64, threads=0)
        with pytest.raises(UsageError, match="ctx"):
            Context(model, n_ctx=0)


def test_the_machine_has_cores_and_memory() -> None:
    assert hardware.physical_cores() >= 1
    memory = hardware.available_memory()
    assert memory is None or memory > 1e8
