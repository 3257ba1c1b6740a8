"""/v1/embeddings: texts as vectors, the mean of the model's final hidden states."""

from __future__ import annotations

import base64
from typing import Any

import anyio.to_thread
import numpy as np
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from spec_cpu.errors import UsageError
from spec_cpu.serve.http.errors import ApiError, closing, refused
from spec_cpu.serve.http.prompts import read_texts
from spec_cpu.serve.http.schema import EmbeddingRequest
from spec_cpu.serve.http.service import Service, service_of
from spec_cpu.serve.http.streaming import read


async def post(request: Request) -> Response:
    """A vector of length 1 for each text."""
    service = service_of(request)
    given = await read(request, service, EmbeddingRequest)
    if service.closing:
        raise closing()
    vocab = service.engine.model.vocab
    texts = await anyio.to_thread.run_sync(read_texts, vocab, given.input, "input")
    data = []
    for i, tokens in enumerate(texts):
        vector = await anyio.to_thread.run_sync(_embed, service, tokens, abandon_on_cancel=True)
        if given.dimensions not in (None, len(vector)):
            raise refused(f"'dimensions' is {len(vector)} for this model", "dimensions")
        embedding: Any = vector.tolist()
        if given.encoding_format == "base64":
            embedding = base64.b64encode(vector.astype("<f4").tobytes()).decode("ascii")
        data.append({"object": "embedding", "index": i, "embedding": embedding})
    n = sum(map(len, texts))
    usage = {"prompt_tokens": n, "total_tokens": n}
    name = service.settings.name
    return JSONResponse({"object": "list", "data": data, "model": name, "usage": usage})


def _embed(service: Service, tokens: list[int]) -> np.ndarray[Any, np.dtype[np.float32]]:
    try:
        vector = service.engine.embed(tokens)
    except UsageError as error:
        raise ApiError(501, str(error), kind="not_implemented") from error
    return vector / max(float(np.linalg.norm(vector)), 1e-12)
