"""Fixtures of loaded backbones: the small random ones, and the real MiniLM."""

import functools
from collections.abc import Iterator
from pathlib import Path

import pytest
from peltier_backbone import load
from peltier_backbone.load import Backbone, load_backbone


@pytest.fixture(scope="session", autouse=True)
def _kernels_are_tried_once() -> Iterator[None]:
    """Tries the linear kernels once per dtype instead of at each load of a backbone."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("choose_linear", "slowdown"):
            patch.setattr(load, name, functools.cache(getattr(load, name)))
        yield


@pytest.fixture(scope="session")
def bert(bert_directory: Path) -> Backbone:
    """The small random BERT."""
    return load_backbone(str(bert_directory))


@pytest.fixture(scope="session")
def roberta(roberta_directory: Path) -> Backbone:
    """The small random RoBERTa; it has no pooler, as masked-language-model checkpoints do."""
    return load_backbone(str(roberta_directory))


@pytest.fixture(scope="session")
def xlm_roberta(xlm_roberta_directory: Path) -> Backbone:
    """The small random XLM-RoBERTa."""
    return load_backbone(str(xlm_roberta_directory))


@pytest.fixture(scope="session")
def camembert(camembert_directory: Path) -> Backbone:
    """The small random CamemBERT."""
    return load_backbone(str(camembert_directory))


@pytest.fixture(scope="session")
def distilbert(distilbert_directory: Path) -> Backbone:
    """The small random DistilBERT."""
    return load_backbone(str(distilbert_directory))


@pytest.fixture(scope="session")
def electra(electra_directory: Path) -> Backbone:
    """The small random ELECTRA."""
    return load_backbone(str(electra_directory))


@pytest.fixture(scope="session")
def electra_int8(electra_directory: Path) -> Backbone:
    """The small random ELECTRA in int8."""
    return load_backbone(str(electra_directory), dtype="int8")


@pytest.fixture(scope="session")
def modernbert(modernbert_directory: Path) -> Backbone:
    """The small random ModernBERT; it has no pooler and no biases."""
    return load_backbone(str(modernbert_directory))


@pytest.fixture(scope="session")
def t5(t5_directory: Path) -> Backbone:
    """The small random T5 v1.0."""
    return load_backbone(str(t5_directory))


@pytest.fixture(scope="session")
def t5_gated(t5_gated_directory: Path) -> Backbone:
    """The small random T5 v1.1."""
    return load_backbone(str(t5_gated_directory))


@pytest.fixture(scope="session")
def mt5(mt5_directory: Path) -> Backbone:
    """The small random mT5."""
    return load_backbone(str(mt5_directory))


@pytest.fixture(scope="session")
def umt5(umt5_directory: Path) -> Backbone:
    """The small random umT5."""
    return load_backbone(str(umt5_directory))


@pytest.fixture(scope="session")
def umt5_int8(umt5_directory: Path) -> Backbone:
    """The small random umT5 in int8."""
    return load_backbone(str(umt5_directory), dtype="int8")


@pytest.fixture(scope="session")
def minilm() -> Backbone:
    """The real pretrained 6-layer BERT, loaded once."""
    return load_backbone("minilm")


@pytest.fixture(scope="session")
def bert_bfloat16(bert_directory: Path) -> Backbone:
    """The small random BERT in bfloat16."""
    return load_backbone(str(bert_directory), dtype="bfloat16")


@pytest.fixture(scope="session")
def t5_bfloat16(t5_directory: Path) -> Backbone:
    """The small random T5 v1.0 in bfloat16."""
    return load_backbone(str(t5_directory), dtype="bfloat16")


@pytest.fixture(scope="session")
def bert_int8(bert_directory: Path) -> Backbone:
    """The small random BERT in int8."""
    return load_backbone(str(bert_directory), dtype="int8")


@pytest.fixture(scope="session")
def modernbert_bfloat16(modernbert_directory: Path) -> Backbone:
    """The small random ModernBERT in bfloat16."""
    return load_backbone(str(modernbert_directory), dtype="bfloat16")


@pytest.fixture(scope="session")
def modernbert_int8(modernbert_directory: Path) -> Backbone:
    """The small random ModernBERT in int8."""
    return load_backbone(str(modernbert_directory), dtype="int8")


@pytest.fixture(scope="session")
def t5_int8(t5_directory: Path) -> Backbone:
    """The small random T5 v1.0 in int8."""
    return load_backbone(str(t5_directory), dtype="int8")


@pytest.fixture(scope="session")
def t5_gated_int8(t5_gated_directory: Path) -> Backbone:
    """The small random T5 v1.1 in int8."""
    return load_backbone(str(t5_gated_directory), dtype="int8")


@pytest.fixture(scope="session")
def minilm_int8() -> Backbone:
    """The real pretrained 6-layer BERT in int8."""
    return load_backbone("minilm", dtype="int8")
