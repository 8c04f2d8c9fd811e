"""What a prediction is asked for."""

import math
from typing import NamedTuple

from peltier_client.protocol import Input, Parameters

from peltier_server.inference.answer_size import AnswerBudget
from peltier_server.inference.resolved_task import ResolvedTask
from peltier_server.inference.text_stream import TextStream
from peltier_server.inference.tokenizing import InputReader


class PredictionRequest(NamedTuple):
    """The inputs and parameters for one version. `deadline` is in seconds of `time.monotonic`, and `stream` gets the
    text while it is generated. The `reader` also serves other tasks of the same HTTP request."""

    target: ResolvedTask
    inputs: tuple[Input, ...]
    parameters: Parameters
    budget: AnswerBudget
    deadline: float = math.inf
    stream: TextStream | None = None
    reader: InputReader | None = None

    @property
    def tenant(self) -> str:
        """The tenant that is charged."""
        return self.target.context.tenant
