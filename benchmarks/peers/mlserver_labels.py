"""MLServer's part of `protocols.py`: a model that answers two labels at once."""

import numpy as np
from mlserver import MLModel
from mlserver.codecs import NumpyCodec, StringCodec
from mlserver.types import InferenceRequest, InferenceResponse


class Labels(MLModel):
    """The same label and scores for every text."""

    async def load(self) -> bool:
        """There is nothing to load."""
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        """The tensors of a classification."""
        count = len(StringCodec.decode_input(payload.inputs[0]))
        scores = np.tile(np.float32([0.25, 0.75]), (count, 1))
        outputs = [
            StringCodec.encode_output("label", ["1"] * count),
            NumpyCodec.encode_output("score", scores[:, 1]),
            NumpyCodec.encode_output("scores", scores),
        ]
        return InferenceResponse(model_name=self.name, model_version="1", outputs=outputs)
