"""Training of extracted answers, from files to an artifact."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from peltier_adapters.artifact.artifact import load_artifact
from peltier_adapters.artifact.manifest import read_manifest
from peltier_adapters.errors import AdapterError
from peltier_adapters.spec.tasks import SpanSpec
from peltier_backbone.backbone import Backbone
from peltier_training.data.data import Data, LabelReader
from peltier_training.data.examples import read_rows
from peltier_training.errors import TrainingError
from peltier_training.evaluate.adapters import evaluate
from peltier_training.train import train

from tests.training.conftest import MakeRun

COLUMNS = ("question", "context")
_FILLERS = ("a", "film", "the", "plot", "is", "very", "actor", "and")


def row(draw: random.Random, length: int) -> dict[str, Any]:
    """A context of which the only "good" or "bad" word is the answer; some have neither and no answer."""
    words = draw.choices(_FILLERS, k=length)
    answer = draw.choice(("good", "bad", "", "good", "bad"))
    if answer:
        words[draw.randrange(length)] = answer
    context = " ".join(words)
    start = context.split().index(answer) if answer else 0
    begin = len(" ".join(words[:start])) + (start > 0)
    answers = {"text": [answer], "answer_start": [begin]} if answer else {"text": [], "answer_start": []}
    return {"question": "is it good ?", "context": context, "answers": answers}


@pytest.fixture(scope="module")
def questions(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Files of 64 and 20 rows, most of them longer than a window of 24 tokens."""
    folder, files = tmp_path_factory.mktemp("span"), []
    for seed, (name, count) in enumerate((("train", 64), ("validation", 20))):
        draw = random.Random(seed)
        files.append(folder / f"{name}.jsonl")
        files[-1].write_text("".join(json.dumps(row(draw, draw.randint(6, 26))) + "\n" for _ in range(count)))
    return files


@pytest.mark.parametrize("preset", ["compacter", pytest.param("adamix", marks=pytest.mark.slow), "full"])
def test_answers_are_learnt(make_run: MakeRun, questions: list[Path], bert: Backbone, preset: str):
    """By adapters, whose artifact answers as measured, and by full fine-tuning."""
    rate = {"full": 3e-3}.get(preset, 2e-2)
    data, numbers = Data(*questions, COLUMNS, "answers"), {"max_length": 24, "learning_rate": rate, "epochs": 5}
    run = make_run("span", preset, data=data, dropout=0.0, backbone_dropout=0.0, **numbers)
    result = train(run)
    assert set(result.metrics) == {"exact_match", "f1"}
    assert result.metrics["f1"] > 0.5
    report = result.report
    assert (report.majority.answer, report.majority.metrics["exact_match"]) == ("no answer", report.majority.share)
    assert all(one.score is not None for one in report.mistakes or ())
    if preset == "full":
        return
    task = read_manifest(run.output).task
    assert (task.span, task.stride) == (SpanSpec(max_answer_length=30, no_answer=True), 8)
    examples = read_rows(questions[1], COLUMNS, "answers", LabelReader("span").read).examples
    assert evaluate(bert, load_artifact(run.output, bert), examples).metrics == result.metrics


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"columns": ("context",)}, r"span needs two text columns, the question and its context; context was given"),
        (
            {"overrides": {"pooling": "mean"}},
            r"setting 'pooling' is 'mean'; span needs 'tokens', a head of every token",
        ),
        ({"max_answer_length": 0}, r"max_answer_length is 0; it must be a number of at least 1"),
        ({"max_answer_length": 513}, r"max_answer_length is 513; it must be at most 512"),
        ({"answers": "context"}, r":1: answers '.*' cannot be read; they must be an object such as "),
    ],
)
def test_settings_that_do_not_fit_are_refused(make_run, questions, changes, rule):
    data = Data(*questions, changes.pop("columns", COLUMNS), changes.pop("answers", "answers"))
    with pytest.raises(TrainingError, match=rule):
        train(make_run("span", data=data, **changes))


def test_spans_are_for_encoders(make_run: MakeRun, questions: list[Path], t5: Backbone):
    data = Data(*questions, COLUMNS, "answers")
    with pytest.raises(
        (TrainingError, AdapterError), match=r"span needs an encoder; backbone '.*' is of the family t5"
    ):
        train(make_run("span", data=data, backbone=t5.name))
    with pytest.raises(TrainingError, match=r"max_answer_length is for span; the task type is classification"):
        train(make_run("classification", max_answer_length=3))
    with pytest.raises(TrainingError, match=r"pooling' is 'tokens', a head of every token; classification has one vec"):
        train(make_run("classification", overrides={"pooling": "tokens"}))
