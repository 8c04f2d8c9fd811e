"""The health, description and metrics of the server."""

import json
from importlib.metadata import version as release_of

from fastapi import Request, Response
from peltier_adapters.artifact.manifest import Manifest
from peltier_adapters.gpu.capture import can_capture
from peltier_adapters.ops.choice import choose_backend
from peltier_backbone.backbone import Backbone
from peltier_backbone.checkpoint.config import T5Config
from peltier_client.errors import Draining, Forbidden, NotReady, QuotaExceeded, Unauthorized
from peltier_client.protocol.operations import BackboneInfo, HealthResponse, InfoResponse, ReadyResponse

from peltier_server.errors import describe_errors
from peltier_server.http.application import Accepted, AnyTime, Context, state_of
from peltier_server.http.scoped_route import open_router, scoped_router
from peltier_server.metrics.metrics import CONTENT_TYPE, merge_pages
from peltier_server.service import Service
from peltier_server.settings import CoreSettings

_SHARED = (Unauthorized, Forbidden, QuotaExceeded)
_LIMITS = (
    "max_batch_tokens", "max_batch_rows", "max_queue_tokens", "max_decode_rows", "max_new_tokens", "max_inputs",
    "max_body_bytes", "max_answer_bytes", "default_top_k", "max_artifact_bytes", "device_bytes", "host_bytes",
)  # fmt: skip

router = scoped_router("predict", "operations")
# The metrics name every tenant and the adapters in use.
measures = scoped_router("metrics", "operations")
# The probes of orchestrators, which have no key.
probes = open_router(tags=["operations"])


@probes.get("/health")
async def health() -> HealthResponse:
    """Alive, also while loading and draining."""
    return HealthResponse()


@probes.get("/ready", responses=describe_errors(NotReady, Draining))
async def ready(lifecycle: AnyTime) -> ReadyResponse:
    """Ready to predict; 503 while loading, before and while stopping, and while the runner is stuck."""
    lifecycle.require_ready()
    return ReadyResponse()


@router.get("/info", responses=describe_errors(*_SHARED, NotReady, Draining))
async def info(context: Context, service: Accepted) -> InfoResponse:
    """Release, backbone, kernels, limits, and the caller's adapters: how many, and which are in quarantine."""
    backbone, settings = service.backbone, service.settings
    return InfoResponse(
        model_id=backbone.name,
        model_sha=backbone.fingerprint,
        model_dtype=backbone.precision,
        max_input_length=backbone.config.max_tokens,
        max_batch_tokens=settings.queue.max_batch_tokens,
        max_client_batch_size=settings.limits.max_inputs,
        max_concurrent_requests=settings.limits.max_connections,
        version=release_of("peltier"),
        backbone=_describe(service.backbone),
        kernels=service.backbone.kernels | _batch_kernels(service),
        experimental=list(service.experimental),
        limits=_limits(service.settings),
        num_adapters=service.catalog.count(context.tenant),
        quarantined=service.quarantine.of(context.tenant),
    )


@measures.get("/metrics", response_class=Response, responses=describe_errors(Unauthorized, Forbidden, NotReady))
async def metrics(request: Request) -> Response:
    """Prometheus' page. On Ray it has the metrics of all replicas, with the label `replica`."""
    state = state_of(request)
    if state.metrics_pages is not None:
        return Response(merge_pages(await state.metrics_pages()), headers={"content-type": CONTENT_TYPE})
    page, content_type = state.metrics.exposition(request.headers.get("accept", ""))
    return Response(page, headers={"content-type": content_type})


@router.get("/v1/schema/artifact", response_class=Response, responses=describe_errors(*_SHARED, NotReady))
async def artifact_schema() -> Response:
    """The JSON schema of an artifact's manifest."""
    return Response(_SCHEMA, media_type="application/schema+json")


def _limits(settings: CoreSettings) -> dict[str, int]:
    values = dict(settings.queue) | dict(settings.limits) | dict(settings.memory)
    return {name: values[name] for name in _LIMITS}


def _batch_kernels(service: Service) -> dict[str, str]:
    """The names of the kernels, by purpose, that compute batches in addition to the backbone's own kernels."""
    graphs = {"graphs": "cuda"} if service.settings.compute.cuda_graphs and can_capture(service.backbone) else {}
    chosen = choose_backend(service.backbone.device, service.backbone.dtype).name
    attention = {"attention": chosen} if chosen == "triton" else {}
    return {"adapters": chosen} | attention | graphs


_SCHEMA = json.dumps(Manifest.model_json_schema(), indent=2)


def _describe(backbone: Backbone) -> BackboneInfo:
    config = backbone.config
    return BackboneInfo(
        name=backbone.name,
        family=config.family,
        fingerprint=backbone.fingerprint,
        hidden_size=config.hidden_size,
        num_layers=config.num_layers,
        num_decoder_layers=config.num_decoder_layers if isinstance(config, T5Config) else None,
        num_heads=config.num_heads,
        max_length=config.max_tokens,
        device=str(backbone.device),
        dtype=backbone.precision,
    )
