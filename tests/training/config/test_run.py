"""What a run refuses before it reads any data or weight."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from peltier_adapters.errors import AdapterError
from peltier_backbone.backbone import Backbone
from peltier_training.config.run import Hyperparameters, Run
from peltier_training.config.task_options import TextOptions
from peltier_training.data.data import Data
from peltier_training.errors import TrainingError


def create_run(tmp_path: Path, **changes: Any) -> Run:
    data = Data(tmp_path / "no.jsonl", tmp_path / "no.jsonl", ("text",), "label")
    own: dict[str, Any] = {"task": "toy", "task_type": "classification", "preset": "lora", "backbone": "none"}
    return Run(**(own | {"data": data, "output": tmp_path / "toy.safetensors", "directory": tmp_path} | changes))


PAIRS = Data(Path("no.jsonl"), Path("no.jsonl"), ("text", "other"), "label")


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("epochs", 0, "epochs is 0; it must be a number of at least 1"),
        ("batch_size", -1, "batch_size is -1; it must be a number of at least 1"),
        ("max_length", 2, "max_length is 2; it must be a number of at least 3"),
        ("seed", -1, "seed is -1; it must be a number of at least 0"),
        ("seed", 2**32, "seed is 4294967296; it must be at most 4294967295"),
        ("warmup", 1.5, "warmup is 1.5; it must be a fraction below 1 or a whole number of steps"),
        ("warmup", math.nan, "warmup is nan; it must be a number of at least 0.0"),
        ("dropout", 1.0, "dropout is 1.0; it must be a fraction below 1"),
        ("dropout", -0.1, "dropout is -0.1; it must be a number of at least 0.0"),
        ("backbone_dropout", 1.0, "backbone_dropout is 1.0; it must be a fraction below 1"),
        ("backbone_dropout", -0.1, "backbone_dropout is -0.1; it must be a number of at least 0.0"),
        ("weight_decay", math.inf, "weight_decay is inf; it must be a number of at least 0.0"),
        ("eval_rows", 0, "eval_rows is 0; it must be a number of at least 1"),
        ("patience", 0, "patience is 0; it must be a number of at least 1"),
        ("learning_rate", 0.0, "learning_rate is 0.0; it must be a number above 0"),
        ("learning_rate", math.nan, "learning_rate is nan; it must be a number above 0"),
        ("learning_rate", math.inf, "learning_rate is inf; it must be a number above 0"),
    ],
)
def test_impossible_numbers_are_refused(name: str, value: float, rule: str):
    """The sentence names the setting, its value and its bound."""
    with pytest.raises(TrainingError) as refused:
        replace(Hyperparameters(), **{name: value}).check()
    assert str(refused.value) == rule


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"task": "../x"}, "task '../x' is not a name"),
        ({"task": "a\n"}, "task 'a\\n' is not a name"),
        (
            {"task_type": "sorting"},
            "task type 'sorting' is unknown; it is one of classification, multilabel, regression, text2text",
        ),
        (
            {"hyperparameters": Hyperparameters(metric="pearson")},
            "metric 'pearson' is not one of classification's: acc",
        ),
        (
            {"output": Path("nowhere/x.safetensors")},
            "output nowhere/x.safetensors cannot be written: its folder does not",
        ),
        ({"task_type": "ranking"}, "ranking has two text columns, the query and the document; 1 were given"),
        (
            {"hyperparameters": Hyperparameters(ranking_loss="pairwise")},
            "ranking_loss is for ranking; the task type is classification",
        ),
        (
            {"hyperparameters": Hyperparameters(ranking_loss="other")},
            "ranking_loss is 'other'; it must be listwise or pairwise",
        ),
        ({"output": Path("/tmp")}, "output /tmp cannot be written: it is a folder"),  # noqa: S108 - never written
    ],
)
def test_an_impossible_run_is_refused(tmp_path: Path, changes: dict[str, Any], rule: str):
    """Name, task type, metric and output are checked first."""
    with pytest.raises(TrainingError) as refused:
        create_run(tmp_path, **changes).check()
    assert str(refused.value).startswith(rule)


def test_the_preset_says_whether_the_task_is_named(tmp_path: Path, t5: Backbone):
    """BitFit and prompts read the task's name, adapters do not (docs/methods.md#task-name), unless they are told."""
    found = {
        name: create_run(tmp_path, preset=name).resolved(t5.config).text.task_prefix for name in ("bitfit", "lora")
    }
    assert found == {"bitfit": True, "lora": False}
    told = create_run(tmp_path, preset="bitfit", text=TextOptions(task_prefix=False))
    assert told.resolved(t5.config).text.task_prefix is False


def test_the_task_type_says_how_it_answers(tmp_path: Path, t5: Backbone):
    """Labels are scored, texts generated."""
    for task_type, answer in (("classification", "score"), ("regression", "score"), ("text2text", "generate")):
        assert create_run(tmp_path, task_type=task_type).resolved(t5.config).text.answer == answer


@pytest.mark.parametrize(
    ("family", "changes", "rule"),
    [
        ("bert", {"task_type": "text2text"}, "text2text needs a T5; backbone 'none' is of the family bert"),
        ("bert", {"text": TextOptions(num_beams=2)}, "num_beams is an option of T5; backbone 'none' is of the family"),
        ("t5", {"task_type": "multilabel"}, "multilabel is not possible on T5, where a text is one label; backbone"),
        ("t5", {"task_type": "ranking", "data": PAIRS}, "ranking needs an encoder; backbone 'none' is of the family"),
        ("bert", {"preset": "prompt-r"}, "preset 'prompt-r' is not defined on a bert backbone"),
    ],
)
def test_a_family_cannot_do_everything(tmp_path, family, changes, rule, request):
    run = create_run(tmp_path, **changes)
    run.check()
    with pytest.raises((TrainingError, AdapterError)) as refused:
        run.resolved(request.getfixturevalue(family).config)
    assert str(refused.value).startswith(rule)


def test_the_task_type_has_a_metric_of_its_own(tmp_path: Path):
    """The best epoch is chosen by it where none is given."""
    wanted = {"regression": "pearson", "ranking": "ndcg@10", "span": "f1"}
    assert {name: create_run(tmp_path, task_type=name).metric for name in wanted} == wanted
    assert create_run(tmp_path, hyperparameters=Hyperparameters(metric="f1")).metric == "f1"
