"""What a head has from its target before it has learnt anything: sizes, outputs, embeddings."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from spec_cpu.errors import ModelError
from spec_cpu.llama.model import Model
from spec_cpu.llama.tensors import Tensor as FileTensor
from spec_cpu.llama.tensors import find_tensor
from spec_cpu.train.eagle import EagleNet, EagleShape
from spec_cpu.train.medusa import MedusaNet, MedusaPupil, MedusaShape
from spec_cpu.train.training import spread

_EMBEDDING, _OUTPUT, _NORM = "token_embd.weight", "output.weight", "output_norm.weight"
_HEAD_WIDTHS = (64, 128, 32, 16, 8, 4, 2)  # where the target's own does not divide its features
_EPSILON = 1e-5
_ROWS = 4096  # dequantised at a time


def shape_of(target: Model, n_vocab: int) -> EagleShape:
    """A head with one layer of the target's own sizes.

    Raises:
        ModelError: the target's width is odd.
    """
    n_embd = target.n_embd
    n_head = _number(target, "attention.head_count")
    n_head_kv = _number(target, "attention.head_count_kv") or n_head
    if not n_head or n_embd % (2 * n_head) or n_head % n_head_kv:
        width = next((width for width in _HEAD_WIDTHS if n_embd % width == 0), None)
        if width is None:
            raise ModelError(f"{target.path.name} is {n_embd} wide: a head needs an even width")
        n_head = n_head_kv = n_embd // width
    return EagleShape(
        n_embd=n_embd,
        n_vocab=n_vocab,
        n_head=n_head,
        n_head_kv=n_head_kv,
        n_ff=_number(target, "feed_forward_length") or 4 * n_embd,
        epsilon=_epsilon(target),
    )


def _epsilon(target: Model) -> float:
    known = target.metadata.get(f"{target.architecture}.attention.layer_norm_rms_epsilon")
    return float(known) if known else _EPSILON


def _number(target: Model, key: str) -> int:
    """0 where the target has none, or one a layer."""
    text = target.metadata.get(f"{target.architecture}.{key}", "")
    return int(text) if text.isdigit() else 0


def eagle_net(target: Model, shape: EagleShape, tokens: NDArray[np.int32], seed: int) -> EagleNet:
    """A network that begins with the target's outputs for `tokens`, and its last norm.

    Raises:
        ModelError: the target has no such tensors.
    """
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        net = EagleNet(shape)
    norm = find_tensor(target.path, _NORM).rows([0])[0]
    if len(norm) != shape.n_embd:
        raise _other_width(target)
    with torch.no_grad():
        net.output.weight.copy_(_output_rows(target, tokens))
        net.output_norm.weight.copy_(torch.from_numpy(norm))
    return net


def medusa_pupil(target: Model, tokens: NDArray[np.int32], features: Tensor) -> MedusaPupil:
    """Heads that all begin as the target's own output for `tokens`.

    Args:
        features: (N, n_embd): some of the target's.

    Raises:
        ModelError: the target has no such tensors.
    """
    scale = spread(features)
    net = MedusaNet(MedusaShape(target.n_embd, len(tokens), epsilon=_epsilon(target)))
    size = (features.float() / scale).square().mean(-1).sqrt().mean()
    with torch.no_grad():
        net.output.weight.copy_(_output_rows(target, tokens) * scale)
        net.output_norm.weight.fill_(size)  # on the whole the norm takes nothing away
    return MedusaPupil(net, scale)


def _output_rows(target: Model, tokens: NDArray[np.int32]) -> Tensor:
    rows = _output(target).rows(tokens)
    if rows.shape[1] != target.n_embd:
        raise _other_width(target)
    return torch.from_numpy(rows)


def _other_width(target: Model) -> ModelError:
    return ModelError(f"{target.path.name} has outputs of another width than its features")


def _output(target: Model) -> FileTensor:
    try:
        return find_tensor(target.path, _OUTPUT)
    except ModelError:  # it is the embedding, once more
        return find_tensor(target.path, _EMBEDDING)


def embeddings(target: Model) -> Tensor:
    """The target's embeddings: (n_vocab, n_embd) float16.

    Raises:
        ModelError: there are none, or of another width than its features.
    """
    tensor = find_tensor(target.path, _EMBEDDING)
    n, columns = tensor.shape
    if columns != target.n_embd:
        raise ModelError(
            f"{target.path.name} has embeddings of width {columns} and features of width "
            f"{target.n_embd}: there is no head for such a target yet"
        )
    table = torch.empty((n, columns), dtype=torch.float16)
    for begin in range(0, n, _ROWS):
        end = min(begin + _ROWS, n)
        table[begin:end] = torch.from_numpy(tensor.rows(range(begin, end)))
    return table
