"""Fixtures of loaded backbones: the small random ones, and the real MiniLM."""

from collections.abc import Callable

import pytest
from peltier_backbone.backbone import Backbone
from peltier_backbone.load import load_backbone
from peltier_backbone.native.choice import kernels_in_use


def _load(directory: str, dtype: str = "float32") -> Callable[..., Backbone]:
    """A fixture: the backbone in the folder of the fixture `directory`, with the kernels that a server would choose."""

    @pytest.fixture(scope="session")
    def backbone(request: pytest.FixtureRequest) -> Backbone:
        folder = str(request.getfixturevalue(directory))
        with kernels_in_use("auto"):
            return load_backbone(folder, dtype=dtype)

    return backbone


bert = _load("bert_directory")
bert_bfloat16 = _load("bert_directory", "bfloat16")
bert_int8 = _load("bert_directory", "int8")
camembert = _load("camembert_directory")
deberta = _load("deberta_directory")
deberta_bfloat16 = _load("deberta_directory", "bfloat16")
deberta_int8 = _load("deberta_directory", "int8")
deberta_v2 = _load("deberta_v2_directory")
deberta_v2_bfloat16 = _load("deberta_v2_directory", "bfloat16")
deberta_v2_int8 = _load("deberta_v2_directory", "int8")
distilbert = _load("distilbert_directory")
electra = _load("electra_directory")
electra_int8 = _load("electra_directory", "int8")
eurobert = _load("eurobert_directory")
eurobert_bfloat16 = _load("eurobert_directory", "bfloat16")
eurobert_int8 = _load("eurobert_directory", "int8")
gte = _load("gte_directory")
gte_bfloat16 = _load("gte_directory", "bfloat16")
gte_int8 = _load("gte_directory", "int8")
jina = _load("jina_directory")
jina_bfloat16 = _load("jina_directory", "bfloat16")
jina_int8 = _load("jina_directory", "int8")
modernbert = _load("modernbert_directory")
modernbert_bfloat16 = _load("modernbert_directory", "bfloat16")
modernbert_int8 = _load("modernbert_directory", "int8")
mpnet = _load("mpnet_directory")
mpnet_bfloat16 = _load("mpnet_directory", "bfloat16")
mpnet_int8 = _load("mpnet_directory", "int8")
mt5 = _load("mt5_directory")
nomic_bert = _load("nomic_bert_directory")
nomic_bert_bfloat16 = _load("nomic_bert_directory", "bfloat16")
nomic_bert_int8 = _load("nomic_bert_directory", "int8")
roberta = _load("roberta_directory")
t5 = _load("t5_directory")
t5_bfloat16 = _load("t5_directory", "bfloat16")
t5_gated = _load("t5_gated_directory")
t5_gated_int8 = _load("t5_gated_directory", "int8")
t5_int8 = _load("t5_directory", "int8")
umt5 = _load("umt5_directory")
umt5_int8 = _load("umt5_directory", "int8")
xlm_roberta = _load("xlm_roberta_directory")


@pytest.fixture(scope="session")
def minilm() -> Backbone:
    """The real pretrained 6-layer BERT, loaded once."""
    with kernels_in_use("auto"):
        return load_backbone("minilm")


@pytest.fixture(scope="session")
def minilm_int8() -> Backbone:
    """The real pretrained 6-layer BERT in int8."""
    with kernels_in_use("auto"):
        return load_backbone("minilm", dtype="int8")
