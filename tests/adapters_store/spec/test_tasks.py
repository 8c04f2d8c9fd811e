"""Settings of a task: templates, targets, ways to answer."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from peltier_adapters.errors import AdapterError
from peltier_adapters.spec.tasks import TaskSpec, parse_names
from pydantic import ValidationError

SCORE, GENERATE = {"answer": "score"}, {"answer": "generate", "max_new_tokens": 8}


def _task(**changes: Any) -> TaskSpec:
    given = {
        "type": "classification",
        "labels": ("no", "yes"),
        "inputs": "single",
        "max_length": 16,
        "template": "sst2 sentence: {text}",
        "targets": ("0", "1"),
        "decoding": SCORE,
    }
    return TaskSpec.model_validate(given | changes)


def test_a_template_is_filled_once():
    """Placeholders inside the texts are not replaced."""
    task = _task(inputs="pair", template="a: {text} b: {pair}")
    assert task.render("{pair} {x}", "{text}") == ("a: {pair} {x} b: {text}",)
    task = _task(inputs="triple", template="{third}, {pair}, {text}")
    assert task.render("{third}", "b", "c") == ("c, b, {third}",)


def test_without_a_template_texts_are_what_they_are():
    """An encoder reads one text or two texts unchanged."""
    task = _task(template=None, targets=(), decoding=None)
    assert task.render("a") == ("a",)
    assert task.render("a", "b") == ("a", "b")


def test_a_golden_example_has_a_value_a_target():
    """One value for each label on an encoder, for each label string on T5, and one for a text."""
    assert _task().num_outputs == 2
    steps = tuple(f"{step / 5:.1f}" for step in range(26))
    assert _task(type="regression", labels=("value",), targets=steps).num_outputs == 26
    assert _task(type="text2text", labels=(), targets=(), decoding=GENERATE).num_outputs == 1


HEADED: dict[str, Any] = {"template": None, "targets": (), "decoding": None}


def test_only_some_types_have_an_output_for_each_token():
    """Token classification and span have; a vector or a score belongs to the whole input."""
    given = {"token-classification": ("O", "x"), "span": ("start", "end"), "embedding": (), "ranking": ("score",)}
    tasks = [
        _task(**HEADED, type=kind, labels=labels, inputs="pair" if kind in ("span", "ranking") else "single")
        for kind, labels in given.items()
    ]
    assert [task.type for task in tasks if task.reads_tokens] == ["token-classification", "span"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"type": "token-classification", "labels": ("O",)}, "token-classification needs at least two labels"),
        ({"type": "span", "labels": ("a", "b"), "inputs": "pair"}, "span has the labels start and end, not a, b"),
        ({"type": "span", "labels": ("start", "end")}, "span has pair inputs, not single inputs"),
        ({"type": "ranking", "labels": ("a", "b"), "inputs": "pair"}, "ranking has one label, not 2"),
        ({"type": "embedding"}, "embedding has no labels; its answer is a vector"),
        ({"type": "token-classification", "normalized": True}, "normalized is for embeddings; the task is token-cl"),
        ({"stride": 2}, "stride is for tasks that read every token, span and token-classification"),
        ({"type": "token-classification", "stride": 40}, "stride is 40; it must be at most 8, half of the task's 16"),
    ],
)
def test_types_with_rules_of_their_own(changes: dict[str, Any], words: str):
    with pytest.raises(ValidationError, match=re.escape(words)):
        _task(**HEADED | changes)


def test_types_with_heads_are_not_for_t5():
    """A template is for T5, which has no head."""
    with pytest.raises(ValidationError, match="embedding is for encoders"):
        _task(type="embedding", labels=(), targets=())


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"template": "sentence:"}, "template 'sentence:' must name {text}"),
        ({"inputs": "pair"}, "must name {text} and {pair}"),
        ({"template": "{text} {pair}"}, "must name {text}"),
        ({"inputs": "triple", "template": "{text} {pair}"}, "must name {text} and {pair} and {third}"),
        ({"inputs": "triple", "template": None, "targets": (), "decoding": None}, "three texts need a template"),
        ({"decoding": None}, "template and decoding belong together"),
        ({"template": None, "decoding": None}, "text2text and targets need a template"),
        ({"targets": ("0",)}, "there are 1 targets for 2 labels"),
        ({"targets": ("0", "0")}, "two targets are the same text"),
        ({"targets": ("0", "")}, "at least 1 character"),
        ({"type": "multilabel"}, "multilabel is not served on T5"),
        ({"type": "text2text"}, "text2text has no labels"),
        ({"type": "regression", "labels": ("value",), "targets": ("0", "x")}, "target 'x' is not a number"),
        ({"type": "regression", "labels": ("value",), "targets": ("0",)}, "needs at least two numbers"),
        ({"type": "regression", "labels": ("value",), "targets": ("0", "nan")}, "target 'nan' is not a number"),
        ({"decoding": {"answer": "generate", "max_new_tokens": 0}}, "greater than or equal to 1"),
        ({"decoding": {"answer": "generate", "num_beams": 17}}, "less than or equal to 16"),
        ({"decoding": {"answer": "generate", "completion_temperature": 2.5}}, "less than or equal to 2"),
        ({"decoding": {"answer": "generate", "completion_temperature": -0.1}}, "greater than or equal to 0"),
        ({"padded": True}, "padded inputs are for encoders"),
        ({"decoding": {"answer": "guess"}}, "'score' or 'generate'"),
    ],
    ids=str,
)
def test_a_task_that_cannot_be_is_refused(changes: dict[str, Any], words: str):
    with pytest.raises(ValidationError) as caught:
        _task(**changes)
    assert words in str(caught.value)


def test_names_come_from_the_flag_or_a_json_file(tmp_path: Path):
    (tmp_path / "names.json").write_text(json.dumps(["a", "b, c"]))
    assert parse_names("labels", "a, b,c") == ("a", "b", "c")
    assert parse_names("labels", str(tmp_path / "names.json")) == ("a", "b, c")


@pytest.mark.parametrize("content", [None, "not json", '{"a": 1}', "[1, 2]", b"\xff"])
def test_a_bad_file_is_named(tmp_path: Path, content: str | bytes | None):
    """A missing file, one that is not JSON, and one that is not a list of texts."""
    path = tmp_path / "names.json"
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(AdapterError, match=r"^--labels .*names\.json (cannot be read as|must contain a) JSON"):
        parse_names("labels", str(path))
