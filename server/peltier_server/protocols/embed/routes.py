"""The route `/embed` of text-embeddings-inference."""

from fastapi import Request, Response

from peltier_server.errors import TASK_ERRORS, describe_errors
from peltier_server.http.application import accept
from peltier_server.http.disconnects import cancel_on_disconnect
from peltier_server.http.scoped_route import scoped_router
from peltier_server.inference.prediction import (
    BYTES_ON_THE_LOOP,
    TRUNCATION_HEADER,
    JSONBytes,
    truncation_header,
    write_pieces,
)
from peltier_server.protocols.embed.messages import TextEmbedRequest, embedding_pieces
from peltier_server.protocols.embedding_task import resolve_embedding

_RESPONSES = {200: {"headers": TRUNCATION_HEADER}, **describe_errors(*TASK_ERRORS)}

router = scoped_router("predict", "embed")


@router.post("/embed", response_model=list[list[float]], responses=_RESPONSES)
async def embed(body: TextEmbedRequest, request: Request) -> Response:
    """Embed texts in the shape of text-embeddings-inference, by the backbone alone or by a task."""
    service = accept(request)
    target = resolve_embedding(request, service, body.adapter_id)
    done = await cancel_on_disconnect(request, service.predictor.predict(target, body.texts, body.parameters))
    pieces = embedding_pieces(done, normalize=body.normalize and not target.entry.task.normalized)
    if done.max_bytes <= BYTES_ON_THE_LOOP:
        answer = b"".join(pieces)
    else:
        answer = await write_pieces(request.app.state.preparation, target.context.tenant, pieces)
    return JSONBytes(answer, truncation_header(done.opening.num_truncated))
