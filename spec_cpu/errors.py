"""What can go wrong for a reason that a person can act on.

Every message is one clear sentence that names the thing and says what to do. The command line
prints it and exits with `exit_code`; a traceback means a bug in spec-cpu.
"""

from __future__ import annotations


class SpecCpuError(Exception):
    """The work could not be done: a file, a model, the network, memory."""

    exit_code = 1


class UsageError(SpecCpuError):
    """What was asked for makes no sense: an option out of range, an empty prompt, no such file."""

    exit_code = 2


class BusyError(UsageError):
    """A session is in use: by another thread, or by what calls it back."""


class ModelError(SpecCpuError):
    """A file is not a model that can be used here, or llama.cpp refused it."""


class LogitsError(ModelError):
    """A model gave logits that are no numbers."""


class ContextError(SpecCpuError):
    """A prompt, a batch or a context does not fit."""


class RemoteError(SpecCpuError):
    """Another machine, which is to hold layers of a model, cannot be used or was lost."""


class KernelsError(SpecCpuError):
    """The verify kernels cannot be used here; stock ones can."""


class CatalogError(SpecCpuError):
    """A catalogue entry is malformed, or its source could not be fetched or checked."""


class MemoryFileError(UsageError):
    """A file cannot be the memory of what was learnt of a target: another kind, another target."""


class VocabularyMismatchError(ModelError):
    """Draft and target do not share a vocabulary, so their tokens mean different text."""
