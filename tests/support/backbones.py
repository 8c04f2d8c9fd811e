"""Fixtures of loaded backbones: the small random ones, and the real MiniLM."""

from collections.abc import Callable

import pytest
from peltier_backbone.backbone import Backbone
from peltier_backbone.load import load_backbone
from peltier_backbone.native.choice import kernels_in_use


def _load(directory: str, dtype: str) -> Callable[..., Backbone]:
    """A fixture: the backbone in the folder of the fixture `directory`, with the kernels that a server would choose."""

    @pytest.fixture(scope="session")
    def backbone(request: pytest.FixtureRequest) -> Backbone:
        folder = str(request.getfixturevalue(directory))
        with kernels_in_use("auto"):
            return load_backbone(folder, dtype=dtype)

    return backbone


_DIRECTORIES = {
    "float32": "bert camembert deberta deberta_v2 distilbert electra eurobert gte jina modernbert mpnet mt5 nomic_bert "
    "roberta t5 t5_gated umt5 xlm_roberta",
    "bfloat16": "bert deberta deberta_v2 eurobert gte jina modernbert mpnet nomic_bert t5",
    "int8": "bert deberta deberta_v2 electra eurobert gte jina modernbert mpnet nomic_bert t5 t5_gated umt5",
}
# Fixtures such as `bert`, `bert_bfloat16` and `bert_int8`.
for _dtype, _names in _DIRECTORIES.items():
    for _name in _names.split():
        globals()[_name if _dtype == "float32" else f"{_name}_{_dtype}"] = _load(f"{_name}_directory", _dtype)


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
