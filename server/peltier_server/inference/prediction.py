"""An answer, and the facts about it that are known before it is complete."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from peltier_client.protocol import AdapterRef, TextPrediction, Tier
from pydantic_core import to_json

# A text, or the fields of any other prediction of the protocol. To create and serialise a model takes four times as
# long as a dict.
OnePrediction = dict[str, Any] | TextPrediction


class StreamStart(NamedTuple):
    """The adapter that answers, its tier, the number of tokens of the inputs, and the number of truncated inputs."""

    adapter: AdapterRef
    tier: Tier
    num_tokens: int
    num_truncated: int


class Timings(NamedTuple):
    """The server's time by phase, in milliseconds."""

    queue: float
    load: float
    compute: float
    total: float


class Prediction(NamedTuple):
    """The answer to a request, and the maximum of bytes of its body. `num_new_tokens` is None unless texts were
    generated."""

    opening: StreamStart
    predictions: Sequence[OnePrediction]
    num_new_tokens: int | None
    timings: Timings
    batch_rows: int
    batch_adapters: int
    max_bytes: int

    @property
    def provenance(self) -> dict[str, Any]:
        """The fields of its `PredictResponse` except the predictions."""
        adapter, tier, num_tokens, num_truncated = self.opening
        queue, load, compute, total = self.timings
        usage = {"tokens": num_tokens, "truncated_inputs": num_truncated}
        if self.num_new_tokens is not None:
            usage["completion_tokens"] = self.num_new_tokens
        return {
            "task": adapter.name,
            "adapter": adapter,
            "tier": tier,
            "usage": usage,
            "timings_ms": {"queue": queue, "load": load, "compute": compute, "total": total},
            "batch": {"rows": self.batch_rows, "adapters": self.batch_adapters},
        }

    def json(self) -> bytes:
        """Its `PredictResponse`."""
        return to_json({**self.provenance, "predictions": self.predictions})
