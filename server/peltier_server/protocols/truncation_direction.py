"""The end at which text-embeddings-inference cuts texts that are too long."""

from typing import Annotated, Literal

from peltier_client.protocol.predict import state_rule

TruncationDirection = Annotated[
    Literal["right", "Right"], state_rule("must be 'right': this server truncates texts at their ends")
]
