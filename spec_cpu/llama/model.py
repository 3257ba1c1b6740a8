"""A GGUF model in memory: its weights (mapped), its vocabulary, what it says of itself."""

from __future__ import annotations

import ctypes
import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Protocol
from weakref import WeakSet

import llama_cpp

from spec_cpu.errors import ModelError, RemoteError
from spec_cpu.llama import log
from spec_cpu.llama.chat import ChatTemplate
from spec_cpu.llama.gguf import check_model_file
from spec_cpu.llama.kernels import accepting
from spec_cpu.llama.params import model_params
from spec_cpu.llama.quantize import FORMATS
from spec_cpu.llama.remote import Remote
from spec_cpu.llama.vocab import Vocab
from spec_cpu.rpc.servers import Server

_FORMAT_NAMES = {number: name for name, number in FORMATS.items()}
_FINGERPRINT_BYTES = 1 << 20
STOCK = "stock"  # llama.cpp's own kernels


class Closable(Protocol):
    """Something that must not be used once the model it belongs to was closed."""

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What a model is. `bytes` is the size of its weights, `parameters` their number."""

    name: str
    file: str
    bytes: int
    parameters: int
    quantization: str


class Model:
    """A loaded language model. Use as a context manager, or call `close`.

    What points into it (contexts, the vocabulary) says so if it is used once this was closed. It is
    for one thread at a time, with its contexts.

    Attributes:
        kernels: what multiplies its weights: `stock`, or the name of a build of our kernels.
            Layers on other machines are multiplied there by llama.cpp's own.
        library: that build's, if it is one of ours.
        servers: of the machines that hold its layers; none: this one does.
    """

    def __init__(
        self,
        path: Path,
        *,
        kernels: Path | None = None,
        threads: int | None = None,
        servers: Sequence[Server] = (),
        progress: Callable[[float], None] | None = None,
    ) -> None:
        """Load `path` (for a split model: its first part).

        Args:
            kernels: the library of kernels to pack the weights for (`load_kernels` was called with
                it); default: stock kernels.
            threads: that pack them; default: as many as OpenMP is set to.
            servers: of the machines that are to hold its layers; default: this one does.
            progress: told the fraction loaded, 0 to 1; what it raises ends the loading.

        Raises:
            UsageError: no such file.
            ModelError: not a model that can decode text here; llama.cpp's last error is included.
            RemoteError: one of the `servers` cannot be used, or they have too little memory.
        """
        check_model_file(path)
        self.path = path
        self.library = kernels
        self.kernels = STOCK if kernels is None else kernels.parent.name
        self._contexts: WeakSet[Closable] = WeakSet()
        self.servers = tuple(servers)
        self.remote = Remote(servers) if servers else None
        self._handle: int | None = None
        try:
            if self.remote is not None:
                _check_room(path, self.remote)
            with accepting(kernels, threads):
                self._handle = _load(path, self.remote, progress)
            self._check_usable()
        except BaseException:
            self.close()
            raise
        self.vocab = Vocab(self)

    def add_context(self, context: Closable) -> None:
        """`context` points into the model: closing the model closes it first."""
        self._contexts.add(context)

    @property
    def handle(self) -> int:
        """llama.cpp's pointer, while it is open. Raises ModelError once it was closed."""
        if self._handle is None:
            raise ModelError(f"{self.path.name} was closed: load it again")
        return self._handle

    @property
    def vocab_handle(self) -> int:
        """llama.cpp's pointer to the vocabulary. Raises as `handle`."""
        return int(llama_cpp.llama_model_get_vocab(self.handle) or 0)

    def close(self) -> None:
        """Free the weights, and what contexts of it hold. A second call does nothing."""
        if self._handle is not None:
            for context in list(self._contexts):
                context.close()
            llama_cpp.llama_model_free(self._handle)
            self._handle = None
        if self.remote is not None:
            self.remote.close()

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    @cached_property
    def metadata(self) -> dict[str, str]:
        """The key-value pairs of the file (arrays shortened by llama.cpp)."""
        return {
            self._metadata_text(llama_cpp.llama_model_meta_key_by_index, i): self._metadata_text(
                llama_cpp.llama_model_meta_val_str_by_index, i
            )
            for i in range(llama_cpp.llama_model_meta_count(self.handle))
        }

    def _metadata_text(self, read: Callable[..., int], index: int) -> str:
        buffer = ctypes.create_string_buffer(256)
        n = read(self.handle, index, buffer, len(buffer))
        if n >= len(buffer):
            buffer = ctypes.create_string_buffer(n + 1)
            read(self.handle, index, buffer, len(buffer))
        return buffer.value.decode("utf-8", "replace")

    @property
    def architecture(self) -> str:
        return self.metadata.get("general.architecture", "unknown")

    @property
    def n_ctx_train(self) -> int:
        """The longest text, in tokens, that the model was trained on."""
        return int(llama_cpp.llama_model_n_ctx_train(self.handle))

    @property
    def n_embd(self) -> int:
        """The width of its hidden state."""
        return int(llama_cpp.llama_model_n_embd_out(self.handle))

    @property
    def can_rollback(self) -> bool:
        """Can the last tokens be taken back? Not where the memory is a recurrent state."""
        return not (
            llama_cpp.llama_model_is_recurrent(self.handle)
            or llama_cpp.llama_model_is_hybrid(self.handle)
        )

    @property
    def why_no_drafts(self) -> str | None:
        """Why nothing can be drafted for it, in a person's words; None where something can."""
        if self.can_rollback:
            return None
        return (
            f"{self.path.name} keeps a recurrent memory ({self.architecture}), which cannot take "
            "back a rejected draft"
        )

    @cached_property
    def info(self) -> ModelInfo:
        return ModelInfo(
            name=self.metadata.get("general.name", self.path.stem),
            file=self.path.name,
            bytes=int(llama_cpp.llama_model_size(self.handle)),
            parameters=int(llama_cpp.llama_model_n_params(self.handle)),
            quantization=_FORMAT_NAMES.get(llama_cpp.llama_model_ftype(self.handle), "unknown"),
        )

    @cached_property
    def fingerprint(self) -> str:
        """Tells this file from any other."""
        return self.fingerprint_of(self.path)

    @staticmethod
    def fingerprint_of(path: Path) -> str:
        """16 hex digits from a file's size, start and end."""
        size = path.stat().st_size
        digest = hashlib.blake2b(str(size).encode(), digest_size=8)
        with path.open("rb") as file:
            digest.update(file.read(_FINGERPRINT_BYTES))
            file.seek(max(0, size - _FINGERPRINT_BYTES))
            digest.update(file.read())
        return digest.hexdigest()

    @cached_property
    def chat_template(self) -> ChatTemplate:
        """The model's own template; a plain one, with a notice, if it has none that works."""
        source = llama_cpp.llama_model_chat_template(self.handle, None)
        vocab = self.vocab
        return ChatTemplate(
            source.decode("utf-8", "replace") if source else None,
            bos=vocab.text(vocab.bos).decode("utf-8", "replace"),
            eos=vocab.text(vocab.eos).decode("utf-8", "replace"),
        )

    def kv_bytes(self, n_ctx: int) -> int:
        """An estimate of what the keys and values of `n_ctx` tokens take, in 16-bit floats."""
        n_head = max(1, int(llama_cpp.llama_model_n_head(self.handle)))
        head_width = int(llama_cpp.llama_model_n_embd(self.handle)) // n_head
        key = int(self._metadata_number("attention.key_length", head_width))
        value = int(self._metadata_number("attention.value_length", head_width))
        heads = int(llama_cpp.llama_model_n_head_kv(self.handle))
        layers = int(llama_cpp.llama_model_n_layer(self.handle))
        return 2 * n_ctx * layers * heads * (key + value)

    def _metadata_number(self, key: str, default: int) -> int:
        text = self.metadata.get(f"{self.architecture}.{key}", "")
        return int(text) if text.isdigit() else default

    def _check_usable(self) -> None:
        name = self.path.name
        causal = self.metadata.get(f"{self.architecture}.attention.causal", "true")
        if causal == "false" or not llama_cpp.llama_model_has_decoder(self.handle):
            raise ModelError(f"{name} only encodes text ({self.architecture}): it cannot write any")
        if llama_cpp.llama_model_has_encoder(self.handle):
            raise ModelError(f"{name} is an encoder-decoder ({self.architecture}): use a decoder")
        if llama_cpp.llama_model_is_diffusion(self.handle):
            raise ModelError(f"{name} is a diffusion model: it does not write token by token")
        if llama_cpp.llama_vocab_n_tokens(self.vocab_handle) == 0:
            raise ModelError(f"{name} has no vocabulary, so no text can go in or out of it")


def _check_room(path: Path, remote: Remote) -> None:
    size, free = path.stat().st_size, remote.free_memory
    if size > free:
        raise RemoteError(
            f"{path.name} needs about {size / 1e9:,.1f} GB, but the machines that `rpc` names have "
            f"{free / 1e9:,.1f} GB of memory free: name more of them"
        )


def _load(
    path: Path, remote: Remote | None, progress: Callable[[float], None] | None
) -> int | None:
    params = model_params()
    if remote is not None:
        remote.take_layers(params)

    raised: list[BaseException] = []

    @llama_cpp.llama_progress_callback  # type: ignore[untyped-decorator]
    def report(fraction: float, _data: ctypes.c_void_p) -> bool:
        try:
            if progress is not None:
                progress(fraction)
        except BaseException as error:
            raised.append(error)
        return not raised  # False stops the loading

    params.progress_callback = report
    log.forget_errors()
    handle = llama_cpp.llama_model_load_from_file(os.fsencode(path), params)
    if raised:
        if handle:
            llama_cpp.llama_model_free(handle)
        raise raised[0]
    if remote is not None and not handle:
        remote.check()
    if not handle:
        cause = log.last_error() or "llama.cpp gave no reason"
        raise ModelError(f"cannot load {path}: {cause}")
    return int(handle)
