"""The readers of JSON bodies for `fuzz_bodies.py`; `test_body_readers.py` compares them with the routes."""

from collections.abc import Callable
from functools import partial
from typing import Any

from peltier_client.protocol.adapters import AdapterChange, DeprecationRequest, PinRequest
from peltier_client.protocol.administration import KeyRequest, TenantQuotas, TenantRequest
from peltier_client.protocol.batches import BatchRequest
from peltier_client.protocol.comparison import ComparisonRequest
from peltier_client.protocol.predict import MixedPredictRequest, PredictRequest
from peltier_client.protocol.rerank import RerankRequest
from peltier_client.protocol.rollouts import FeedbackRequest, GuardedAliasRequest
from peltier_client.protocol.trainings import TrainingRequest
from peltier_server.extensions.trainings.fine_tuning_messages import FineTuningRequest
from peltier_server.http.bodies import BodyModel, read_json, unique
from peltier_server.protocols.oip.inputs import TEXTS, read_inputs, read_parameters
from peltier_server.protocols.oip.messages import InferRequest, LoadRequest, RepositoryIndexRequest, UnloadRequest
from peltier_server.protocols.openai.embeddings import EmbeddingRequest
from peltier_server.protocols.openai.messages import CompletionRequest
from peltier_server.protocols.rerank import TextRerankRequest
from peltier_server.protocols.tei import SimilarityRequest, SparseRequest, TextClassifyRequest, TextEmbedRequest
from peltier_server.protocols.vllm import ClassifyRequest, PoolingRequest

_MAX_INPUTS = 64
# The models, and whether an object that gives a name twice is refused. The inputs of the corpus name a model by its
# number, so new ones belong at the end.
MODELS: tuple[tuple[BodyModel, bool], ...] = (
    *((PredictRequest, False), (MixedPredictRequest, False), (ComparisonRequest, False), (RerankRequest, False)),
    *((TextEmbedRequest, False), (EmbeddingRequest, False), (CompletionRequest, False), (TextRerankRequest, False)),
    *((AdapterChange, True), (GuardedAliasRequest, True), (DeprecationRequest, True), (KeyRequest, True)),
    *((TenantQuotas, True), (TenantRequest, True), (None, False), (TrainingRequest, True), (FineTuningRequest, True)),
    *((BatchRequest, False), (FeedbackRequest, False), (PinRequest, True), (SparseRequest, False)),
    *((SimilarityRequest, False), (PoolingRequest, False), (TextClassifyRequest, False), (ClassifyRequest, False)),
    *((InferRequest, False), (LoadRequest, True), (UnloadRequest, True), (RepositoryIndexRequest, False)),
)
_LENGTH_BYTES = 2


def _read_tensors(body: bytes) -> InferRequest:
    """The request at the start of the body, whose length the first bytes say, and its texts and parameters."""
    length = int.from_bytes(body[:_LENGTH_BYTES], "little")
    whole = body[_LENGTH_BYTES:]
    found: InferRequest = read_json(whole[:length], model=InferRequest, hook=None, max_inputs=_MAX_INPUTS)
    read_parameters(found.parameters, None)
    read_inputs(found, TEXTS[: len(found.inputs)], memoryview(whole)[length:], _MAX_INPUTS)
    return found


READERS: tuple[Callable[[bytes], Any], ...] = (
    *(
        partial(read_json, model=model, hook=unique if refuses_twice else None, max_inputs=_MAX_INPUTS)
        for model, refuses_twice in MODELS
    ),
    _read_tensors,
)
