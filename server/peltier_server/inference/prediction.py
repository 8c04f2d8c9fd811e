"""An answer, and the facts about it that are known before it is complete."""

from typing import NamedTuple

from peltier_client.protocol import AdapterRef, PredictResponse

from peltier_server.residency.slot_entry import Tier


class Prediction(NamedTuple):
    """The body of an answer, the tier in which the server found its adapter, and the maximum of bytes of the body."""

    response: PredictResponse
    tier: Tier
    max_bytes: int


class StreamStart(NamedTuple):
    """The adapter that answers, its tier, the number of tokens of the inputs, and the number of truncated inputs."""

    adapter: AdapterRef
    tier: Tier
    num_tokens: int
    num_truncated: int
