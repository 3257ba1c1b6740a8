"""Ways to damage a GGUF file."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Literal, get_args

import gguf

Damage = Literal["magic", "header", "metadata", "tensor-info", "tensor-data"]


def truncate(path: Path, out: Path, fraction: float) -> Path:
    """Copy the first `fraction` of a file, as a download that broke off leaves it."""
    data = path.read_bytes()
    out.write_bytes(data[: int(len(data) * fraction)])
    return out


def corrupt(path: Path, out: Path, what: Damage) -> Path:
    """Copy a GGUF file with damage to one part of it.

    - "magic": other first four bytes;
    - "header": a count of metadata entries beyond all reason;
    - "metadata": a value of a type that does not exist;
    - "tensor-info": a tensor of a type that does not exist;
    - "tensor-data": NaN at the start of the last matrix, which makes every logit NaN. llama.cpp
      loads this, and decodes with it, unless told to check tensors.
    """
    data = bytearray(path.read_bytes())
    reader = gguf.GGUFReader(path)
    match what:
        case "magic":
            data[:4] = b"LMGG"
        case "header":
            struct.pack_into("<Q", data, 16, 1 << 40)
        case "metadata":
            field = reader.fields["general.architecture"]
            # A field begins with the length of its key, and the key; then comes the type.
            struct.pack_into("<I", data, field.offset + 8 + len(field.name), 99)
        case "tensor-info":
            tensor = reader.tensors[0]
            # After the name come the number of dimensions and the dimensions; then the type.
            offset = tensor.field.offset + 8 + len(tensor.name) + 4 + 8 * len(tensor.shape)
            struct.pack_into("<I", data, offset, 999)
        case "tensor-data":
            tensor = [tensor for tensor in reader.tensors if len(tensor.shape) > 1][-1]
            # NaN as F32, as F16, and as the scale of a Q4_0 block.
            data[tensor.data_offset : tensor.data_offset + 32] = b"\xff\x7f" * 16
        case _:
            raise ValueError(f"{what!r} is none of {get_args(Damage)}")
    out.write_bytes(data)
    return out
