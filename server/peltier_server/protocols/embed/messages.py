"""Bodies of embeddings in the shape of text-embeddings-inference."""

from collections.abc import Iterator
from typing import Annotated

import numpy as np
from peltier_client.protocol import BACKBONE_TASK, Parameters, RequestModel, Text
from peltier_client.protocol.predict import state_rule
from pydantic import Field, StrictBool, StrictInt
from pydantic_core import to_json

from peltier_server.inference.prediction import Prediction
from peltier_server.protocols.truncation_direction import TruncationDirection

# An embedding of unit length has no larger values than 1.
_DIGITS = 9


class TextEmbedRequest(RequestModel):
    """The request of text-embeddings-inference. `adapter_id` is a task reference, by default the backbone's own task.

    With `normalize` the vectors have unit length, whatever the task says, and without it they never do. A text that is
    too long is refused, unless `truncate` is set. `prompt_name` must be null, because tasks have no prompts.
    """

    inputs: Annotated[
        Text | Annotated[list[Text], Field(min_length=1)],
        state_rule("must be a text or a non-empty list of texts, in valid Unicode; token ids are not served"),
    ]
    adapter_id: str = BACKBONE_TASK
    normalize: StrictBool = True
    truncate: StrictBool | None = False
    truncation_direction: TruncationDirection = "right"
    dimensions: Annotated[StrictInt, Field(ge=1)] | None = None
    prompt_name: Annotated[None, state_rule("must be null: tasks have no prompts")] = None

    @property
    def texts(self) -> list[str]:
        """One or many."""
        return [self.inputs] if isinstance(self.inputs, str) else self.inputs

    @property
    def parameters(self) -> Parameters:
        """Those of a prediction."""
        return Parameters(dimensions=self.dimensions, truncate=bool(self.truncate), raw_scores=not self.normalize)


def embedding_pieces(prediction: Prediction, *, normalize: bool) -> Iterator[bytes]:
    """The JSON of a list of embeddings. With `normalize` they are divided by their lengths."""
    before = b"["
    for one in prediction.predictions:
        assert isinstance(one, dict), "only generated texts are models"
        yield before + to_json(_unit(one["embedding"]) if normalize else one["embedding"])
        before = b","
    yield b"]"


def _unit(embedding: list[float]) -> list[float]:
    values = np.array(embedding)
    length = float(np.linalg.norm(values))
    found: list[float] = (values / length).round(_DIGITS).tolist() if length else embedding
    return found
