"""A llama.cpp context: the KV cache, and one way to run tokens through a model."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import TypeAlias

import llama_cpp
import numpy as np
from llama_cpp.llama_cpp import _lib
from numpy.typing import NDArray

from spec_cpu import defaults
from spec_cpu.errors import ContextError, UsageError
from spec_cpu.llama import log
from spec_cpu.llama.model import STOCK, Model
from spec_cpu.machine import hardware
from spec_cpu.machine.processors import processors

_MOST_CONTEXT = 2**31 - 1
_NO_SLOT = 1  # llama_decode: the tokens do not fit into the KV cache

Rows = NDArray[np.float32]
Saved: TypeAlias = "ctypes.Array[ctypes.c_uint8]"

# Own prototypes that give a plain address: llama_cpp's make a pointer object on each call.
_logits_address = _lib["llama_get_logits"]
_hidden_address = _lib["llama_get_embeddings"]
for _function in (_logits_address, _hidden_address):
    _function.argtypes = [ctypes.c_void_p]
    _function.restype = ctypes.c_void_p


class Context:
    """Runs tokens of a model; holds the keys and values of one or more sequences.

    Attributes:
        parks: are cells of what was forgotten left alone, until `clear`?
        taken: cells that were used since then, if so.
    """

    def __init__(
        self,
        model: Model,
        *,
        n_ctx: int,
        n_batch: int = defaults.BATCH,
        n_seq: int = 1,
        max_outputs: int = defaults.MAX_DRAFT_TOKENS + 1,
        threads: int | None = None,
        hidden: bool = False,
        unified: bool = True,
        flash: bool = True,
        parks: bool = False,
    ) -> None:
        """Allocate the memory for `n_ctx` tokens.

        Args:
            n_ctx: tokens that the sequences hold together.
            n_batch: tokens that one `decode` takes at most.
            n_seq: sequences, with ids 0 .. `n_seq` - 1.
            max_outputs: rows of logits that one `decode` gives at most.
            threads: default: one a physical core, fewer while others keep the processors busy.
            hidden: keep the final hidden state of every output row, for `hidden_rows`. A pass then
                gives all of its rows, or none.
            unified: one cache that sequences may share tokens in. Else each has an equal part to
                itself, which is faster where they have nothing in common.
            flash: let llama.cpp fuse the steps of attention. Without it a tiny model is faster.
            parks: cells of tokens that are forgotten are not used again until `clear`, so that
                each of several texts has its cells in order. Attention adds up in that order.

        Raises:
            UsageError: a size out of range.
            ContextError: not enough memory.
        """
        if not 1 <= n_ctx <= _MOST_CONTEXT:
            raise UsageError(
                f"`ctx` must be from 1 to {_MOST_CONTEXT:,}, or 0 for all that the model can, "
                f"not {n_ctx}"
            )
        self.model = model
        self.n_ctx = n_ctx
        self.n_batch = min(n_batch, n_ctx)
        self.n_seq = n_seq
        self.max_outputs = min(max_outputs, self.n_batch)
        self.asked_threads = threads
        self.threads = hardware.threads(threads)
        self._running = self.threads
        _check_memory(model, n_ctx, self.n_batch)
        self.hidden = hidden
        shared = unified and n_seq > 1
        # A sequence of its own, for `save` and `restore`, or for cells that are not to be used.
        self._carrier = n_seq if shared else 0
        self.parks = parks
        self.taken = 0
        self._handle: int | None = self._create(n_seq + shared, unified, flash)
        self._gives_hidden = hidden
        model.add_context(self)
        self._memory_handle = llama_cpp.llama_get_memory(self._handle)
        self._batch = _Batch(self.n_batch, n_seq)
        self._embedding_batch: _Batch | None = None
        self._logits = _Output(_logits_address, self.max_outputs, model.vocab.n)
        self._hidden = _Output(_hidden_address, self.max_outputs, model.n_embd)

    def _create(self, n_seq: int, unified: bool, flash: bool) -> int:
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = self.n_ctx
        params.n_batch = params.n_ubatch = self.n_batch
        params.n_seq_max = n_seq
        params.n_outputs_max = max(self.max_outputs, n_seq)  # llama.cpp takes no less
        params.n_threads = params.n_threads_batch = self.threads
        params.kv_unified = unified
        params.swa_full = True  # without it a sliding-window model cannot take tokens back
        params.embeddings = self.hidden
        params.pooling_type = llama_cpp.LLAMA_POOLING_TYPE_NONE
        params.no_perf = True
        if not flash:
            params.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED
        elif self.model.kernels != STOCK:
            # Left to itself llama.cpp gives it up where another backend than the CPU's runs it.
            params.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_ENABLED
        log.forget_errors()
        handle = llama_cpp.llama_init_from_model(self.model.handle, params)
        if not handle:
            self._check_remote()
            cause = log.last_error() or "llama.cpp gave no reason"
            raise ContextError(
                f"cannot make a context of {self.n_ctx:,} tokens for {self.model.path.name} "
                f"({cause}): try a smaller `ctx`"
            )
        return int(handle)

    @property
    def handle(self) -> int:
        """llama.cpp's pointer, while it is open. Raises ContextError once it was closed."""
        if self._handle is None:
            raise ContextError(f"this context of {self.model.path.name} was closed: make a new one")
        return self._handle

    @property
    def _memory(self) -> object:
        """llama.cpp's pointer to the cache, which lives as long as the context."""
        _ = self.handle
        return self._memory_handle

    def close(self) -> None:
        """Free the cache. A second call does nothing."""
        if self._handle is not None:
            self._logits.forget()
            self._hidden.forget()
            llama_cpp.llama_free(self._handle)
            self._handle = None

    def __enter__(self) -> Context:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def decode(
        self,
        tokens: Sequence[int],
        positions: Sequence[int],
        seq_ids: Sequence[Sequence[int]],
        *,
        outputs: Sequence[bool] | None = None,
    ) -> Rows:
        """Run `tokens` through the model in one pass.

        Args:
            tokens: n ids, n at most `n_batch`.
            positions: n positions in their sequences.
            seq_ids: for each token the sequences it belongs to (several at a shared tree node).
            outputs: which tokens give a row; default all.

        Returns:
            Logits, float32, (rows, n_vocab), in the order of the tokens. A view of llama.cpp's
            own buffer: valid until the next `decode`, not to be written to.

        Raises:
            ContextError: the tokens do not fit, or llama.cpp failed. The cache is as before.
            RemoteError: a machine that holds layers was lost. The context is of no more use.
        """
        rows = self._rows(len(tokens), outputs)
        return self._run(self._batch.fill(tokens, positions, seq_ids, outputs), rows)

    def decode_embeddings(
        self,
        embeddings: Rows,
        positions: Sequence[int],
        seq_ids: Sequence[Sequence[int]],
        *,
        outputs: Sequence[bool] | None = None,
    ) -> Rows:
        """As `decode`, with what the first layer takes in place of tokens.

        Args:
            embeddings: float32, (n, n_embd).
        """
        if self._embedding_batch is None:
            self._embedding_batch = _Batch(self.n_batch, self.n_seq, self.model.n_embd)
        rows = self._rows(len(embeddings), outputs)
        batch = self._embedding_batch.fill_embeddings(embeddings, positions, seq_ids, outputs)
        return self._run(batch, rows)

    def _rows(self, n: int, outputs: Sequence[bool] | None) -> int:
        """The rows that a pass over n tokens gives, if it can."""
        if n > self.n_batch:
            raise ContextError(f"{n} tokens in one pass, but the batch holds {self.n_batch}")
        rows = n if outputs is None else sum(outputs)
        if rows > self.max_outputs:
            raise ContextError(f"{rows} rows in one pass, but the context gives {self.max_outputs}")
        if self.hidden and 0 < rows < n:
            raise ContextError("a context with hidden states gives all rows of a pass, or none")
        return rows

    def _run(self, batch: llama_cpp.llama_batch, rows: int) -> Rows:
        if self._gives_hidden != (self.hidden and rows > 0):
            # With them llama.cpp works out the logits of every token, asked for or not.
            self._gives_hidden = not self._gives_hidden
            llama_cpp.llama_set_embeddings(self.handle, self._gives_hidden)
        self._share_processors()
        log.forget_errors()
        status = llama_cpp.llama_decode(self.handle, batch)
        if status:
            self._check_remote()
            raise ContextError(self._failure(status, batch.n_tokens))
        self.taken += batch.n_tokens
        logits = self._logits.rows(self.handle, rows)  # waits for them
        self._check_remote()
        return logits

    def _check_remote(self) -> None:
        if self.model.remote is not None:
            self.model.remote.check()

    def _share_processors(self) -> None:
        """Run on fewer threads while others are busy, unless a number was asked for."""
        if self.asked_threads is not None:
            return
        threads = processors.threads(self.threads)
        if threads != self._running:
            llama_cpp.llama_set_n_threads(self.handle, threads, threads)
            self._running = threads

    def _failure(self, status: int, n: int) -> str:
        if status == _NO_SLOT:
            return f"the context of {self.n_ctx:,} tokens has no room for {n} more: raise `ctx`"
        return f"llama.cpp failed to decode ({log.last_error() or f'status {status}'})"

    def hidden_rows(self, rows: int) -> Rows:
        """The final hidden states (after the last norm) of the first `rows` output rows.

        Returns:
            float32, (rows, n_embd): a view with the same lifetime as `decode`'s. Only for a
            context made with `hidden=True`.
        """
        if not self._gives_hidden:
            raise ContextError("this context keeps no hidden states: make it with hidden=True")
        return self._hidden.rows(self.handle, rows)

    def truncate(self, n: int, *, seq_id: int = 0) -> bool:
        """Forget every token of a sequence from position `n` on.

        Returns:
            Whether it was done: a recurrent memory can only be forgotten as a whole (`n` = 0).
        """
        if self.parks:
            self.copy(seq_id, self._carrier, n, -1)
        return bool(llama_cpp.llama_memory_seq_rm(self._memory, seq_id, n, -1))

    def clear(self) -> None:
        """Forget all sequences; every cell is free again."""
        llama_cpp.llama_memory_clear(self._memory, False)
        self.taken = 0

    def copy(self, source: int, to: int, begin: int, end: int) -> None:
        """Make positions `begin` .. `end` - 1 of sequence `source` part of `to`, without a copy.

        With an `end` of -1 all from `begin` on.
        """
        llama_cpp.llama_memory_seq_cp(self._memory, source, to, begin, end)

    def save(self, source: int, begin: int, end: int) -> Saved:
        """What the cache holds of positions `begin` .. `end` - 1 of sequence `source`: a copy.

        Only for a context of several sequences in one cache.
        """
        self.copy(source, self._carrier, begin, end)
        saved = self.state(self._carrier)
        self.truncate(0, seq_id=self._carrier)
        return saved

    def restore(self, saved: Saved, to: int, begin: int, end: int) -> None:
        """Put what `save` gave for `begin` .. `end` - 1 into the first free cells, as part of `to`.

        Raises:
            ContextError: there are not as many.
        """
        size = len(saved)
        if not llama_cpp.llama_state_seq_set_data(self.handle, saved, size, self._carrier):
            raise ContextError(self._failure(_NO_SLOT, end - begin))
        self.copy(self._carrier, to, begin, end)
        self.truncate(0, seq_id=self._carrier)

    def state(self, seq_id: int) -> Saved:
        """All that the cache holds of a sequence: a copy, for `set_state` of a context like this.

        That is one of the same model, with the same types of keys and values.
        """
        size = llama_cpp.llama_state_seq_get_size(self.handle, seq_id)
        saved: Saved = (ctypes.c_uint8 * size)()
        llama_cpp.llama_state_seq_get_data(self.handle, saved, size, seq_id)
        self._check_remote()
        return saved

    def set_state(self, saved: Saved, seq_id: int) -> bool:
        """Put what `state` gave in place of what the cache holds of a sequence.

        Returns:
            Whether it fits; the sequence is empty where not.
        """
        self.truncate(0, seq_id=seq_id)
        log.forget_errors()
        if llama_cpp.llama_state_seq_set_data(self.handle, saved, len(saved), seq_id):
            return True
        self.truncate(0, seq_id=seq_id)
        return False

    def shift(self, begin: int, end: int, *, seq_id: int = 0) -> bool:
        """Forget positions `begin` .. `end` - 1 and move what follows down to close the gap.

        Returns:
            Whether it was done: some memories cannot move (nothing is changed then).
        """
        if not llama_cpp.llama_memory_can_shift(self._memory):
            return False
        if not llama_cpp.llama_memory_seq_rm(self._memory, seq_id, begin, end):
            return False
        llama_cpp.llama_memory_seq_add(self._memory, seq_id, end, -1, begin - end)
        return True


class _Batch:
    """A llama_batch over arrays of our own, filled anew for each pass.

    Right after a pass the processor's caches hold weights, so every Python object touched here is a
    trip to memory: what did not change since the last pass is left alone.
    """

    def __init__(self, n_batch: int, n_seq: int, n_embd: int = 0) -> None:
        """For tokens; with `n_embd` for rows of embeddings of that width."""
        self._token = (ctypes.c_int32 * n_batch)()
        self._embeddings = np.zeros((n_batch, n_embd), np.float32)
        self._position = (ctypes.c_int32 * n_batch)()
        self._n_seq_id = (ctypes.c_int32 * n_batch)()
        self._seq_id = [(ctypes.c_int32 * n_seq)() for _ in range(n_batch)]
        self._output = (ctypes.c_int8 * n_batch)()
        id_pointer = ctypes.POINTER(ctypes.c_int32)
        self._struct = llama_cpp.llama_batch(
            token=None if n_embd else self._token,
            embd=self._embeddings.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
            if n_embd
            else None,
            pos=self._position,
            n_seq_id=self._n_seq_id,
            seq_id=(id_pointer * n_batch)(*(ctypes.cast(ids, id_pointer) for ids in self._seq_id)),
            logits=self._output,
        )
        self._known_ids: list[Sequence[int]] = [()] * n_batch

    def fill(
        self,
        tokens: Sequence[int],
        positions: Sequence[int],
        seq_ids: Sequence[Sequence[int]],
        outputs: Sequence[bool] | None,
    ) -> llama_cpp.llama_batch:
        for i, token in enumerate(tokens):
            self._token[i] = token
            self._position[i] = positions[i]
            self._output[i] = outputs is None or outputs[i]
            if seq_ids[i] != self._known_ids[i]:
                self._set_ids(i, seq_ids[i])
        self._struct.n_tokens = len(tokens)
        return self._struct

    def fill_embeddings(
        self,
        embeddings: Rows,
        positions: Sequence[int],
        seq_ids: Sequence[Sequence[int]],
        outputs: Sequence[bool] | None,
    ) -> llama_cpp.llama_batch:
        self._embeddings[: len(embeddings)] = embeddings
        return self.fill(range(len(embeddings)), positions, seq_ids, outputs)

    def _set_ids(self, i: int, ids: Sequence[int]) -> None:
        self._n_seq_id[i] = len(ids)
        self._seq_id[i][: len(ids)] = list(ids)
        self._known_ids[i] = tuple(ids)


class _Output:
    """A buffer of llama.cpp's own that passes leave their rows in."""

    def __init__(self, address_of: Callable[[int], int], most: int, columns: int) -> None:
        """Up to `most` rows of `columns` floats; `address_of` finds them for a context."""
        self._address_of = address_of
        self._shape = most, columns
        self.forget()

    def forget(self) -> None:
        """It is not there any more."""
        self._address = 0
        self._view: Rows = np.empty((0, self._shape[1]), np.float32)

    def rows(self, handle: int, n: int) -> Rows:
        """The first `n` rows that the last pass of the context `handle` left: a view."""
        address = self._address_of(handle)
        if address and address != self._address:
            most, columns = self._shape
            buffer = (ctypes.c_float * (most * columns)).from_address(address)
            self._view = np.ctypeslib.as_array(buffer).reshape(self._shape)
            self._address = address
        return self._view[:n]


def _check_memory(model: Model, n_ctx: int, n_batch: int) -> None:
    # llama.cpp touches the whole cache at once: without this check Linux would kill the process.
    needed = model.kv_bytes(n_ctx) + 2 * n_ctx * n_batch  # and the attention mask of a pass
    remote = model.remote  # which holds the cache of its layers
    available = hardware.available_memory() if remote is None else remote.free_memory
    if available is not None and needed > available:
        raise ContextError(
            f"a context of {n_ctx:,} tokens for {model.path.name} needs about "
            f"{needed / 1e9:,.1f} GB, but {available / 1e9:,.1f} GB of memory are free: "
            "try a smaller `ctx`"
        )
