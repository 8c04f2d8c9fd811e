"""Model cards."""

import json
from collections.abc import Callable

import pytest
from huggingface_hub import ModelCard
from peltier_adapters.artifact.manifest import Golden, Manifest, TrainingRecord, read_header
from peltier_backbone.backbone import Backbone
from peltier_store.sources.card import create_card

HOSTILE = "a ``` <script> | `x`\n# heading\n---"


@pytest.fixture
def manifest(bert: Backbone, make_artifact: Callable[..., bytes]) -> Manifest:
    """That of a small artifact with a record of its training."""
    record = TrainingRecord(
        data={"validation": "validation.jsonl", "note": HOSTILE},
        hyperparameters={"learning_rate": 0.005},
        metrics={"accuracy": 0.925, "broken": float("nan"), HOSTILE: 0.5},
    )
    found, _ = read_header(make_artifact(bert))
    golden = found.golden[0].model_copy(update={"input": HOSTILE, "output": (0.1, 2.0)})
    return found.model_copy(update={"training": record, "golden": (golden, *found.golden[1:])})


def test_a_card_has_the_hubs_own_metadata(manifest: Manifest) -> None:
    """Library, task, backbone and finite figures in front, as huggingface_hub reads them again."""
    data = ModelCard(str(create_card(manifest, "acme/demo", "acme/backbone"))).data
    assert (data.library_name, data.pipeline_tag, data.base_model) == (
        "peltier",
        "text-classification",
        "acme/backbone",
    )
    assert data.base_model_relation == "adapter"
    assert manifest.preset in data.tags
    figures = {one.metric_type: one.metric_value for one in data.eval_results}
    assert figures["accuracy"] == 0.925
    assert "broken" not in figures
    assert {one.dataset_name for one in data.eval_results} == {"validation.jsonl"}


def test_a_card_shows_recipe_and_golden_examples(manifest: Manifest) -> None:
    """The settings as JSON, and each recorded input with the label that it gives."""
    text = create_card(manifest, "acme/demo").text
    assert '"learning_rate": 0.005' in text
    assert "| `accuracy` | 0.9250 |" in text
    assert "# heading ---`: `positive`" in text
    blocks = text.split("```json\n")[1:]
    assert json.loads(blocks[0].split("\n```")[0])["note"] == HOSTILE


def test_texts_of_the_manifest_are_no_markup(manifest: Manifest) -> None:
    """They are within code, which they cannot end, on one line."""
    text = create_card(manifest, "acme/demo").text
    lines = [line for line in text.splitlines() if "script" in line and '"note"' not in line]
    assert len(lines) == 2
    assert all(line.count("`") in (2, 4) for line in lines)
    assert "\n# heading" not in text


def test_a_directory_is_no_base_model(manifest: Manifest) -> None:
    """The backbone's name is its repository on the hub only if it can be one; minilm's is known."""

    def base(name: str) -> str | None:
        renamed = manifest.backbone.model_copy(update={"name": name})
        return create_card(manifest.model_copy(update={"backbone": renamed}), "acme/demo").data.base_model

    names = (
        "minilm",
        "bert-base-uncased",
        "FacebookAI/roberta-base",
        "/models/bert",
        "../bert",
        "tests/adapters_store",
    )
    assert [base(name) for name in names] == [
        "sentence-transformers/all-MiniLM-L6-v2", "bert-base-uncased", "FacebookAI/roberta-base", None, None, None,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("task_type", "shown"), [("multilabel", "positive"), ("regression", "1.5"), ("span", "2 values")]
)
def test_answers_are_short(task_type: str, shown: str, bert: Backbone, make_artifact: Callable[..., bytes]) -> None:
    """Labels above the threshold, a number, or how many values there are."""
    labels = ("score",) if task_type == "regression" else ("negative", "positive")
    manifest, _ = read_header(make_artifact(bert, task_type=task_type, labels=labels,
                                            inputs="pair" if task_type == "span" else "single"))  # fmt: skip
    golden = Golden(input=manifest.golden[0].input, output=(1.5,) if task_type == "regression" else (-1.0, 1.5))
    card = create_card(manifest.model_copy(update={"golden": (golden,)}), "acme/demo")
    assert f": `{shown}`" in card.text
