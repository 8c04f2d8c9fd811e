"""Fuzzes the reader of JSON bodies, with the model of every route that takes one.

    python tests/fuzz/fuzz_bodies.py CORPUS -dict=tests/fuzz/bodies.dict -max_total_time=600

The first byte chooses the model, the rest is the body. Any exception but those that the route answers, a refusal
without a documented status and reason, and a body that takes a minute or two gigabytes end it.
"""

import json
import sys
from contextlib import suppress
from functools import partial

import atheris
from pydantic import BaseModel

with atheris.instrument_imports(include=["peltier_server", "peltier_client.protocol", "peltier_adapters.artifact"]):
    from peltier_client.errors import PeltierError
    from peltier_client.protocol import (
        AdapterChange,
        AliasRequest,
        ComparisonRequest,
        DeprecationRequest,
        KeyRequest,
        MixedPredictRequest,
        PredictRequest,
        RerankRequest,
        TenantQuotas,
        TenantRequest,
    )
    from peltier_server.http.bodies import read_json, unique
    from peltier_server.protocols.embed import TextEmbedRequest
    from peltier_server.protocols.openai.embeddings import EmbeddingRequest
    from peltier_server.protocols.openai.messages import CompletionRequest
    from peltier_server.protocols.rerank import TextRerankRequest

PREDICTING = (
    *(PredictRequest, MixedPredictRequest, ComparisonRequest, RerankRequest),
    *(TextEmbedRequest, EmbeddingRequest, CompletionRequest, TextRerankRequest),
)
CHANGING = (AdapterChange, AliasRequest, DeprecationRequest, KeyRequest, TenantQuotas, TenantRequest)
READERS = [
    *(partial(read_json, model=model, hook=None, max_inputs=64) for model in PREDICTING),
    *(partial(read_json, model=model, hook=unique, max_inputs=64) for model in CHANGING),
    partial(read_json, model=None, hook=None, max_inputs=64),
]


def fuzz(data: bytes) -> None:
    """One body. `JSONRequest.json` answers the exceptions that this suppresses with 400."""
    if not data:
        return
    read = READERS[data[0] % len(READERS)]
    with suppress(json.JSONDecodeError, ValueError, RecursionError):
        try:
            found = read(data[1:])
        except PeltierError as error:
            refusal = error
        else:
            if isinstance(found, BaseModel):
                found.model_dump_json()  # what was read can be written
            return
        assert 400 <= refusal.status < 500, refusal
        assert str(refusal), "a refusal without a reason"
        json.dumps(str(refusal)).encode()


if __name__ == "__main__":
    atheris.Setup([*sys.argv, "-timeout=60", "-rss_limit_mb=2048"], fuzz)
    atheris.Fuzz()
