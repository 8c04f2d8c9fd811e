"""The files of a sentence-transformers checkpoint beside its model."""

import json
from pathlib import Path
from typing import Any

import pytest
from peltier_backbone.checkpoint.checkpoint import find_checkpoint
from peltier_backbone.checkpoint.config import BertConfig, load_config
from peltier_backbone.checkpoint.sentence_files import (
    MODULES_FILE,
    POOLING_FILE,
    PROMPTS_FILE,
    read_default_prompt,
    read_sentence_pooling,
    read_sentence_prompts,
    read_unserved_module,
)
from peltier_backbone.errors import BackboneError

PROMPTS = {"query": "query: ", "document": "passage: "}


def _write(directory: Path, content: Any) -> Path:
    path = directory / POOLING_FILE
    path.parent.mkdir()
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return directory


@pytest.mark.parametrize(
    ("content", "pooling"),
    [
        ({"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}, "mean"),
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, "first"),
        ({"embedding_dimension": 384, "pooling_mode": "mean"}, "mean"),
        ({"embedding_dimension": 384, "pooling_mode": "cls"}, "first"),
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True}, None),
        ({"pooling_mode_max_tokens": True}, "max"),
        ({"pooling_mode": "max"}, "max"),
        ({"pooling_mode": ["cls", "mean"]}, None),
        ({}, None),
    ],
    ids=str,
)
def test_a_head_has_the_pooling_that_the_file_names(tmp_path: Path, content: Any, pooling: str | None):
    """In the older form and in the newer one; poolings that no head has are left aside."""
    assert read_sentence_pooling(_write(tmp_path, content)) == pooling


def test_most_checkpoints_have_no_such_file(tmp_path: Path):
    """They were not trained for sentences."""
    assert read_sentence_pooling(tmp_path) is None


@pytest.mark.parametrize(("content", "rule"), [("{", "cannot be read as JSON"), ("[]", "holds no JSON object")])
def test_a_damaged_file_is_refused(tmp_path: Path, content: str, rule: str):
    """It is not taken for a missing one: adapters would be trained with another pooling."""
    with pytest.raises(BackboneError, match=rule):
        read_sentence_pooling(_write(tmp_path, content))


def test_the_configuration_carries_it():
    """MiniLM is a sentence encoder whose file says mean."""
    config = load_config(find_checkpoint("minilm"))
    assert isinstance(config, BertConfig)
    assert config.sentence_pooling == "mean"


def _write_modules(directory: Path, *kinds: str) -> Path:
    """Modules in the folders of sentence-transformers' own names."""
    names = [kind.rpartition(".")[2] for kind in kinds]
    modules = [
        {"idx": place, "name": str(place), "path": f"{place}_{name}" if place else "", "type": kind}
        for place, (kind, name) in enumerate(zip(kinds, names, strict=True))
    ]
    (directory / MODULES_FILE).write_text(json.dumps(modules))
    return directory


@pytest.mark.parametrize(
    ("kinds", "found"),
    [
        (["Transformer", "Pooling", "Normalize"], None),
        (["Transformer", "Pooling", "Dropout"], None),
        (["Transformer", "Pooling", "Dense", "Normalize"], "'2_Dense' (sentence_transformers.models.Dense)"),
        (["Transformer", "Dense"], "'1_Dense' (sentence_transformers.models.Dense)"),
        (["WordEmbeddings", "Pooling"], "'' (sentence_transformers.models.WordEmbeddings)"),
        (["Transformer", "CNN", "Pooling"], "'1_CNN' (sentence_transformers.models.CNN)"),
        (["Transformer", "Dropout", "Pooling"], "'2_Pooling' (sentence_transformers.models.Pooling)"),
    ],
    ids=str,
)
def test_a_module_that_is_not_computed_has_a_name(tmp_path: Path, kinds: list[str], found: str | None):
    """With its folder and its type. A pooling in another folder would be missed."""
    assert (
        read_unserved_module(_write_modules(tmp_path, *(f"sentence_transformers.models.{kind}" for kind in kinds)))
        == found
    )


def test_the_names_of_newer_files_are_known(tmp_path: Path):
    """Those that version 6 writes."""
    modules = [{"path": "", "type": "sentence_transformers.base.modules.transformer.Transformer"}]
    modules += [{"path": "1_Dense", "type": "sentence_transformers.base.modules.dense.Dense"}]
    (tmp_path / MODULES_FILE).write_text(json.dumps(modules))
    assert read_unserved_module(tmp_path) == "'1_Dense' (sentence_transformers.base.modules.dense.Dense)"


@pytest.mark.parametrize("mode", ["weightedmean", ["cls", "mean"]])
def test_a_pooling_that_no_head_has_is_such_a_module(tmp_path: Path, mode: Any):
    """The mean in its place would be another vector."""
    assert read_unserved_module(_write(tmp_path, {"pooling_mode": mode})) == (
        "'1_Pooling' (its pooling is neither cls, mean nor max)"
    )
    assert load_config(find_checkpoint("minilm")).unserved_module is None


@pytest.mark.parametrize(("content", "rule"), [("{", "cannot be read as JSON"), ("[1]", "is not a list of modules")])
def test_damaged_modules_are_refused(tmp_path: Path, content: str, rule: str):
    """They may name a module that is not computed."""
    (tmp_path / MODULES_FILE).write_text(content)
    with pytest.raises(BackboneError, match=rule):
        read_unserved_module(tmp_path)


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ({"prompts": PROMPTS, "default_prompt_name": None}, PROMPTS),
        ({"__version__": {}}, {}),
        ({"prompts": None}, {}),
        (None, {}),
    ],
    ids=str,
)
def test_prompts_have_names(tmp_path: Path, content: Any, found: dict[str, str]):
    """Of the checkpoint's own file; most checkpoints have none."""
    if content is not None:
        (tmp_path / PROMPTS_FILE).write_text(json.dumps(content))
    assert read_sentence_prompts(tmp_path) == found


def test_prompts_that_the_pooling_leaves_out_are_not_read(tmp_path: Path):
    """The checkpoint's vectors are means over the other tokens."""
    (tmp_path / PROMPTS_FILE).write_text(json.dumps({"prompts": PROMPTS}))
    (tmp_path / POOLING_FILE).parent.mkdir()
    (tmp_path / POOLING_FILE).write_text(json.dumps({"pooling_mode": "mean", "include_prompt": False}))
    assert read_sentence_prompts(tmp_path) == {}


@pytest.mark.parametrize("content", ['{"prompts": ["query: "]}', '{"prompts": {"query": 1}}'])
def test_prompts_that_are_no_texts_are_refused(tmp_path: Path, content: str):
    """With the file and the value."""
    (tmp_path / PROMPTS_FILE).write_text(content)
    with pytest.raises(BackboneError, match=r"config_sentence_transformers.json: prompts is .*; it must have a text"):
        read_sentence_prompts(tmp_path)


@pytest.mark.parametrize(
    ("name", "prompts", "found"), [("query", PROMPTS, "query"), (None, PROMPTS, None), ("query", {}, None)]
)
def test_one_of_the_prompts_is_the_default(tmp_path, name, prompts, found):
    """Where the checkpoint names one, and its prompts are in use."""
    (tmp_path / PROMPTS_FILE).write_text(json.dumps({"default_prompt_name": name}))
    assert read_default_prompt(tmp_path, prompts) == found


@pytest.mark.parametrize("name", ["title", 1])
def test_a_default_that_is_no_prompt_is_refused(tmp_path: Path, name: object):
    """With the file, the value and the prompts."""
    (tmp_path / PROMPTS_FILE).write_text(json.dumps({"default_prompt_name": name}))
    with pytest.raises(BackboneError, match=r"default_prompt_name is .*; it must be one of document, query"):
        read_default_prompt(tmp_path, PROMPTS)
