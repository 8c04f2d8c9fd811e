"""The limits of a request for predictions."""

from dataclasses import dataclass

from peltier_server.fairness.preparation import Preparation
from peltier_server.inference.quarantine import Quarantine
from peltier_server.metrics.metrics import Metrics


@dataclass(frozen=True)
class Limits:
    """The limits of one request: inputs, windows of long texts, new tokens per input, bytes of the answer, and scores
    if the caller sets no `top_k`. `preparation` limits each tenant, and `quarantine` each version. `metrics` counts
    truncated inputs."""

    max_inputs: int
    max_windows: int
    max_new_tokens: int
    max_answer_bytes: int
    default_top_k: int
    preparation: Preparation
    quarantine: Quarantine
    metrics: Metrics
