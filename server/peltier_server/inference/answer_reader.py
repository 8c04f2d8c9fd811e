"""Reads the outputs of a request as predictions: few of them at once, many in pieces that take turns with the work of
other tenants."""

from collections.abc import Sequence
from functools import partial

from peltier_backbone.backbone import Backbone

from peltier_server.fairness.preparation import MAX_PIECE_COST, Preparation
from peltier_server.inference.answer_body import BYTES_ON_THE_LOOP, PIECE_BYTES
from peltier_server.inference.answer_size import AnswerSize, bytes_of_names
from peltier_server.inference.prediction import OnePrediction
from peltier_server.inference.prediction_request import PredictionRequest
from peltier_server.inference.response import Output, read_answers
from peltier_server.inference.windowed_output import num_rows

# Below this, handing the work to a thread costs more than the work.
_ANSWERS_ON_THE_LOOP = 64


class AnswerReader:
    """Reads outputs of one backbone. The names that apply in predictions take their bytes from the request's budget."""

    def __init__(self, backbone: Backbone, preparation: Preparation) -> None:
        self._backbone = backbone
        self._preparation = preparation

    async def read(
        self, outputs: Sequence[Output], request: PredictionRequest, size: AnswerSize
    ) -> tuple[list[OnePrediction], int]:
        """All predictions, and the maximum of bytes of the answer. Raises what `AnswerBudget.take_names` raises."""
        row_bytes = size.prediction_bytes + size.names_bytes * max(map(num_rows, outputs))
        if len(outputs) <= _ANSWERS_ON_THE_LOOP and len(outputs) * row_bytes <= BYTES_ON_THE_LOOP:
            predictions, num_bytes = self._read(request, outputs)
            request.budget.take_names(num_bytes, size)
            return predictions, size.num_bytes + num_bytes
        predictions, num_bytes = [], 0
        num_outputs = max(1, PIECE_BYTES // row_bytes)
        for start in range(0, len(outputs), num_outputs):
            piece = partial(self._read, request, outputs[start : start + num_outputs])
            some, more_bytes = await self._preparation.run(request.tenant, MAX_PIECE_COST, piece)
            request.budget.take_names(more_bytes, size)
            predictions += some
            num_bytes += more_bytes
        return predictions, size.num_bytes + num_bytes

    def _read(self, request: PredictionRequest, outputs: Sequence[Output]) -> tuple[list[OnePrediction], int]:
        task, parameters = request.target.entry.task, request.parameters
        predictions = read_answers(self._backbone, task, outputs, parameters, base64=request.budget.base64)
        return predictions, bytes_of_names(predictions)
