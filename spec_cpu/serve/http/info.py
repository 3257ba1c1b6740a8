"""What the server says of itself: models, health, properties, counters, and the engine's state."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from spec_cpu import __version__
from spec_cpu.serve.http.errors import ApiError
from spec_cpu.serve.http.service import Service, service_of


async def models(request: Request) -> Response:
    """The one model that is served."""
    return JSONResponse({"object": "list", "data": [_model(service_of(request))]})


async def model(request: Request) -> Response:
    """The model of this name."""
    service, name = service_of(request), request.path_params["name"]
    if name != service.settings.name:
        raise ApiError(
            404, f"there is no model {name!r} here", param="model", code="model_not_found"
        )
    return JSONResponse(_model(service))


def _model(service: Service) -> dict[str, Any]:
    return {
        "id": service.settings.name,
        "object": "model",
        "created": service.created,
        "owned_by": "spec-cpu",
        "context_length": service.engine.state.context,
    }


async def health(request: Request) -> Response:
    """Are requests taken?"""
    if service_of(request).closing:
        return JSONResponse({"status": "closing"}, 503)
    return JSONResponse({"status": "ok"})


async def props(request: Request) -> Response:
    """What holds where a request does not say, and what the model's template is."""
    service = service_of(request)
    sampling = asdict(service.settings.sampling)
    sampling["repeat_last_n"] = sampling.pop("penalty_last_n")
    del sampling["logit_bias"]
    state = service.engine.state
    return JSONResponse(
        {
            "model": service.settings.name,
            "total_slots": state.slots,
            "context": state.context,
            "sampling": sampling,
            "max_tokens": service.settings.max_tokens,
            "chat_template": service.engine.model.chat_template.source,
            "build_info": f"spec-cpu {__version__}",
        }
    )


async def state(request: Request) -> Response:
    """What the engine is doing at this moment."""
    service = service_of(request)
    now = asdict(service.engine.state)
    now["by_source"] = {
        name: {"drafted": drafted, "accepted": accepted}
        for name, (drafted, accepted) in now["by_source"].items()
    }
    return JSONResponse({"model": service.settings.name, **now})


async def metrics(request: Request) -> Response:
    """For Prometheus."""
    text = service_of(request).metrics.text()
    return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")
