"""What the process of a training does."""

import json
import os
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from peltier_adapters.artifact.artifact import load_artifact
from peltier_adapters.artifact.manifest import read_manifest
from peltier_adapters.golden.golden import check_golden
from peltier_backbone.backbone import Backbone
from peltier_training.report.report import Report
from peltier_training.service import job
from peltier_training.service.callbacks import Deadline, Observer
from peltier_training.service.child import ARCHIVE, ASKED, Checked, Completed, Evaluating, Progressed, Refused, Saved

from tests.training.service.conftest import Desk, jsonl, praise, request


def delivered(desk: Desk, data: bytes, asked: dict[str, Any], **options: Any) -> Completed:
    found = desk.do(desk.job(data, asked, **options))
    assert isinstance(found, Completed), found
    return found


def test_rows_become_an_artifact_with_its_report(desk: Desk, bert: Backbone):
    """In the order of the messages, and the metrics of the report."""
    found = delivered(desk, jsonl(praise()), request())
    kinds = [type(message) for message in desk.messages]
    assert [kind for kind in kinds if kind is not Progressed] == [Checked, Saved, Saved, Evaluating]
    assert kinds.index(Checked) < kinds.index(Progressed)
    assert load_artifact(desk.folder / found.artifact, bert).manifest.name == "praise"
    report = Report.model_validate_json((desk.folder / found.report).read_bytes())
    assert report.metrics == found.metrics
    assert found.seconds_per_token
    assert str(desk.folder) not in (desk.folder / found.report).read_text()


def test_progress_is_in_numbers(desk: Desk):
    """After a validation there is a value, and the best until now."""
    delivered(desk, jsonl(praise()), request())
    last = [message for message in desk.told(Progressed) if message.is_validation][-1].progress
    assert (last["step"], last["max_steps"], last["epoch"], last["metric"]) == (6, 6, 2.0, "accuracy")
    assert last["best"] >= last["value"] >= 0
    validated = [message.progress for message in desk.told(Progressed) if message.is_validation]
    kept = next(progress for progress in validated if progress["step"] == last["best_step"])
    assert kept["value"] == last["best"]
    assert last["loss"] > 0
    assert last["seconds_left"] == 0.0


def test_a_csv_file_and_a_validation_file_are_read(desk: Desk):
    """The rows of the validation file are those that are measured."""
    text = "text,label\n" + "".join(f"{row['text']},{row['label']}\n" for row in praise(40))
    (desk.folder / "validation.jsonl").write_bytes(jsonl(praise(12, seed=5)))
    job = replace(desk.job(text.encode(), request(), name="train.csv"), validation=Path("validation.jsonl"))
    assert isinstance(desk.do(job), Completed)
    assert desk.told(Checked)[0].preflight["rows"] == {"train": 40, "validation": 12}


def test_a_budget_of_steps_ends_the_schedule(desk: Desk):
    """Within an epoch, at a rate near 0, and the best epoch until then is delivered."""
    found = delivered(desk, jsonl(praise()), request(budget={"steps": 4}, settings={"epochs": 50}))
    last = desk.told(Progressed)[-1].progress
    assert (last["step"], last["max_steps"]) == (4, 4)
    assert last["learning_rate"] < 0.01 / 2
    resolved = Report.model_validate_json((desk.folder / found.report).read_bytes()).resolved
    assert (resolved.steps, resolved.ended) == (4, "the budget of 4 steps is used up")


@pytest.mark.parametrize("preset", ["lora", "compacter", "ia3", "bitfit"])
def test_a_budget_of_one_step_ends_in_an_adapter(desk: Desk, bert: Backbone, preset: str):
    """With presets that start without an effect, and whatever else was asked for: the step changes them."""
    for settings in ({"epochs": 1}, {"epochs": 50}, {"epochs": None}, {"epochs": 3, "warmup": 30}):
        asked = request(preset=preset, budget={"steps": 1}, settings=settings)
        found = delivered(desk, jsonl(praise()), asked)
        assert check_golden(bert, load_artifact(desk.folder / found.artifact, bert)) == []


@pytest.mark.parametrize("epochs", [1, 3, pytest.param(None, marks=pytest.mark.slow)])
@pytest.mark.parametrize("family", ["bert", "t5"])
def test_ten_chats_end_in_an_adapter(desk: Desk, request: pytest.FixtureRequest, family: str, epochs: int | None):
    """The least that clients of OpenAI send, with the settings of their jobs."""
    backbone: Backbone = request.getfixturevalue(family)
    rows = [(f"the film {place} is {word}", word) for place, word in enumerate(("good", "bad") * 5)]
    chats = [{"messages": [{"role": "user", "content": a}, {"role": "assistant", "content": b}]} for a, b in rows]
    desk.machine = replace(desk.machine, backbone=backbone.name)
    asked = {
        "task": "praise", "format": "chat", "task_type": "text2text" if family == "t5" else "classification",
        "settings": {"max_length": 32} | ({} if epochs is None else {"epochs": epochs}),
    }  # fmt: skip
    found = delivered(desk, jsonl(chats), asked | {"preset": "lora"})
    assert check_golden(backbone, load_artifact(desk.folder / found.artifact, backbone)) == []


def test_a_budget_of_minutes_includes_earlier_processes(desk: Desk):
    """It ends at the first step, which is validated and delivered."""
    asked = request(budget={"minutes": 1}, settings={"epochs": 50, "warmup": 0})
    found = delivered(desk, jsonl(praise()), asked, spent=60.0)
    assert desk.told(Progressed)[-1].progress["step"] == 1
    assert read_manifest(desk.folder / found.artifact).training.metrics == found.metrics
    report = json.loads((desk.folder / found.report).read_text())
    assert report["resolved"]["ended"] == "the budget of 1 minutes is used up"


class PowerCut(BaseException):
    """The machine goes off."""


@pytest.mark.parametrize("saved_at", [6, 7])  # at the end of an epoch, and within one
@pytest.mark.parametrize(
    "asked", [request(settings={"epochs": 4}), request(budget={"steps": 14}, settings={"epochs": 9})]
)
def test_a_resumed_training_ends_with_the_same_weights(desk, monkeypatch, asked, saved_at):
    """From the archive of a checkpoint, in another directory, with the same schedule."""
    data = jsonl(praise())
    whole = delivered(desk, data, asked)
    expected = (desk.folder / whole.artifact).read_bytes()
    other = Desk(desk.folder.parent / "other", desk.machine)
    other.folder.mkdir()
    monkeypatch.chdir(other.folder)
    with monkeypatch.context() as patch:
        patch.setattr(Deadline, "on_step_end", partial(cut_off, saved_at))
        with pytest.raises(PowerCut):
            other.do(other.job(data, asked))
    assert other.told(Saved)[-1].step == saved_at
    third = Desk(desk.folder.parent / "third", desk.machine)
    third.folder.mkdir()
    (other.folder / ARCHIVE).rename(third.folder / ARCHIVE)
    monkeypatch.chdir(third.folder)
    resumed = delivered(third, data, asked)
    assert third.told(Saved)[0].step == 9
    assert (third.folder / resumed.artifact).read_bytes() == expected


def cut_off(saved_at: int, args: Any, state: Any, control: Any, **_: Any) -> None:
    if state.global_step == saved_at:
        ASKED.touch()
    if state.global_step == 8:
        raise PowerCut


def test_a_damaged_checkpoint_begins_anew(desk: Desk, capfd: pytest.CaptureFixture[str]):
    (desk.folder / ARCHIVE).write_bytes(b"damaged" * 1000)
    delivered(desk, jsonl(praise()), request())
    assert desk.told(Saved)[0].step == 3
    assert "the checkpoint cannot be read" in capfd.readouterr().err


INFINITY = b'{"text": "a", "label": 1e999}\n{"text": "b", "label": 1.5}\n'
HOSTILE: dict[str, tuple[bytes, dict[str, Any], str]] = {
    "wrong columns": (jsonl([{"body": "a", "class": "b"}]), {}, "train.jsonl has no column 'text'; it has 'body', "),
    "infinity": (INFINITY, {"task_type": "regression"}, "train.jsonl:1: label inf"),
    "an endless line": (b'{"text": "' + b"a" * 2**21 + b'"}\n', {}, "train.jsonl:1 has more than 1,048,576 bytes"),
    "brackets": (b'{"text": ' + b"[" * 100_000 + b"\n", {}, "train.jsonl:1 is not JSON: "),
    "labels that are lists": (b'{"text": "a", "label": ["b"]}\n' * 3, {}, "3 rows cannot be used: train.jsonl:1, 2, 3"),
    "a label that steers a terminal": (
        jsonl([*praise(9), {"text": "film", "label": "good\x1b[2J"}]),
        {},
        "train.jsonl:10: label 'good\\x1b[2J' contains the invisible character U+001B",
    ),
    "a rate that diverges": (
        jsonl(praise()), {"settings": {"learning_rate": 1e38, "epochs": 3, "max_length": 32}}, "training diverged at"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_data_end_in_one_sentence(desk: Desk, name: str):
    """Which names the file and the rule, without a folder of the machine."""
    data, asked, reason = HOSTILE[name]
    refused = desk.do(desk.job(data, {**request(), **asked}))
    assert isinstance(refused, Refused)
    assert refused.reason.startswith(reason), refused
    assert refused.trace is None
    assert "\n" not in refused.reason
    assert len(refused.reason) < 2_000
    assert str(desk.folder) not in refused.reason


def test_an_error_of_ours_is_not_shown(desk: Desk, monkeypatch: pytest.MonkeyPatch):
    """The tenant reads that there was one, and the operator its traceback."""
    monkeypatch.setattr(Observer, "on_train_begin", lambda self, *_, **__: os.stat("/secret"))
    refused = desk.do(desk.job(jsonl(praise()), request()))
    assert isinstance(refused, Refused)
    assert refused.reason == (
        "an error of the worker, FileNotFoundError, ended the training; the worker's log has its details"
    )
    assert "/secret" in refused.trace


def test_an_allocation_that_fails_is_one_sentence(desk: Desk, monkeypatch: pytest.MonkeyPatch):
    """Torch raises no `MemoryError` on a CPU."""
    monkeypatch.setattr(job, "learn", lambda *_, **__: torch.empty(2**50))
    refused = desk.do(desk.job(jsonl(praise()), request()))
    assert refused == Refused("memory ran out; train with a smaller batch_size or max_length")


@pytest.mark.skipif(not Path("/proc/self/oom_score_adj").exists(), reason="it is Linux's")
def test_the_kernel_ends_a_training_before_its_server():
    """The process says so itself, and a system that refuses it harms nothing."""
    if (pid := os.fork()) == 0:
        job._die_first()
        os._exit(int(Path("/proc/self/oom_score_adj").read_text()) // 10)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 100
