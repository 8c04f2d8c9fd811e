"""The prompts of a sentence-transformers checkpoint."""

import json
from pathlib import Path
from typing import Any

import pytest
from peltier_backbone.checkpoint.sentence_pooling import POOLING_FILE
from peltier_backbone.checkpoint.sentence_prompts import PROMPTS_FILE, read_sentence_prompts
from peltier_backbone.errors import BackboneError

PROMPTS = {"query": "query: ", "document": "passage: "}


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
