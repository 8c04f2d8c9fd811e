"""An answer, and what is known of it before it is there."""

from dataclasses import dataclass

from peltier_client.protocol import AdapterRef, PredictResponse

from peltier_server.residency.slot_entry import Tier


@dataclass(frozen=True)
class Prediction:
    """The body of an answer, the tier in which its adapter was found, and how many bytes the body has at most."""

    response: PredictResponse
    tier: Tier
    max_bytes: int


@dataclass(frozen=True)
class StreamStart:
    """Who answers, how many tokens the inputs have, and how many of the inputs were truncated."""

    adapter: AdapterRef
    tier: Tier
    num_tokens: int
    num_truncated: int
