"""What is told before the first step, and what is refused for its memory."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from peltier_training.fit import preflight
from peltier_training.service import memory_check as bounds
from peltier_training.service import request as requests
from peltier_training.service.child import Checked, Progressed, Refused
from peltier_training.service.memory_check import pass_bytes

from tests.training.service.conftest import Desk, jsonl, praise, request


def checked(desk: Desk, rows: list[dict[str, Any]], validation: list[dict[str, Any]], **asked: Any) -> dict[str, Any]:
    """The report, of a training that ends after its first step."""
    (desk.folder / "validation.jsonl").write_bytes(jsonl(validation))
    job = desk.job(jsonl(rows), request(**{"budget": {"steps": 1}, **asked}), seconds_per_token=0.001)
    desk.do(replace(job, validation=Path("validation.jsonl")))
    assert isinstance(desk.messages[0], Checked), desk.messages
    return dict(desk.messages[0].preflight)


def test_rows_are_counted_and_compared(desk: Desk):
    """Labels, repeated rows, contradictions, and rows that are in both files."""
    rows = [*praise(30), {"text": "a film", "label": "positive"}, {"text": "a film", "label": "positive"}]
    rows.append({"text": "a film", "label": "negative"})
    report = checked(desk, rows, [{"text": "a film", "label": "positive"}, {"text": "the plot", "label": "negative"}])
    assert report["rows"] == {"train": 33, "validation": 2}
    assert sum(report["labels"].values()) == 33
    assert (report["num_labels"], report["duplicates"], report["conflicts"], report["leaks"]) == (2, 1, 1, 1)
    assert report["warnings"] == [
        "Training rows: 33, which are few.",
        "Training rows that repeat an earlier one: 1.",
        "Inputs that have different labels in different training rows: 1.",
        "Validation rows whose input is also in training: 1. The metrics are too high.",
    ]


def test_long_inputs_are_measured_by_the_tokenizer(desk: Desk):
    """The share that is cut off, and the longest."""
    rows = [{"text": f"film {'very ' * (40 if n < 5 else 1)}", "label": "ab"[n % 2]} for n in range(20)]
    report = checked(desk, rows, praise(4) and rows[:2], settings={"max_length": 16})
    assert report["truncated"] == 0.25
    assert report["longest_input"] == 43
    told = "Inputs with more than 16 tokens, whose rest is not read: 5 of 20; the longest has 43."
    assert told in report["warnings"]


def test_steps_and_minutes_are_estimated(desk: Desk):
    """Minutes only by a rate that was measured."""
    report = checked(desk, praise(50), praise(10, seed=1), budget=None, settings={"epochs": 3})
    assert (report["steps_per_epoch"], report["max_steps"]) == (4, 12)
    assert report["minutes"] == pytest.approx(3 * 50 * 10 * 0.001 / 60, abs=0.01)
    assert report["minutes_note"] is None
    desk.messages.clear()
    desk.do(desk.job(jsonl(praise(20)), request(budget={"steps": 1})))
    assert isinstance(desk.messages[0], Checked)
    unknown = desk.messages[0].preflight
    assert unknown["minutes"] is None
    note = "The minutes are unknown until this worker has trained the preset once with this first_block."
    assert unknown["minutes_note"] == note


def test_a_flood_of_labels_is_refused(desk: Desk, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(preflight, "MAX_LABELS", 10)
    rows = [{"text": f"film {n}", "label": f"{n}"} for n in range(20)]
    refused = desk.do(desk.job(jsonl(rows), request()))
    assert refused == Refused("train-rows.jsonl has 20 labels; a training has at most 10")
    assert desk.told(Progressed) == []


@pytest.mark.parametrize(
    ("task_type", "rows"),
    [
        ("classification", praise(30)),
        ("token-classification", [{"text": ["a", "film"], "label": ["O", "B-work"]}] * 30),
        ("embedding", [{"text": f"a {n}", "pair": f"film {n}"} for n in range(30)]),
    ],
)
def test_a_validation_whose_outputs_fill_the_memory_is_refused(desk, monkeypatch, task_type, rows):
    """A classification has a number for each row and label, a text one for each token and tag or for each value."""
    monkeypatch.setattr(preflight, "MAX_OUTPUTS", 20)
    (desk.folder / "validation.jsonl").write_bytes(jsonl(rows))
    job = desk.job(jsonl(rows), request(task_type=task_type))
    refused = desk.do(replace(job, validation=Path("validation.jsonl")))
    assert isinstance(refused, Refused)
    assert refused.reason.startswith("validation.jsonl has 30 rows, whose outputs are about ")
    assert desk.messages == []


def test_labels_that_people_take_for_one_are_told(desk: Desk):
    """With all of them, before the first step."""
    rows = [row | {"label": row["label"] + (" " if place % 2 else "")} for place, row in enumerate(praise(40))]
    report = checked(desk, rows, rows)
    (told,) = [line for line in report["warnings"] if line.startswith("Labels that differ only in spaces")]
    assert "'negative', 'negative ', and 2 groups of labels are alike" in told


PAIRS = [{"text": f"a film {number}", "pair": f"the plot {number}"} for number in range(12)]
TOO_MUCH: dict[str, tuple[list[dict[str, str]], dict[str, Any], str]] = {
    "an adapter of many experts": (
        praise(), {"preset": "adamix", "settings": {"bottleneck": 4096, "experts": 64}},
        "the adapter of preset 'adamix' with these settings needs ",
    ),
    "a wide embedding": (
        PAIRS, {"task_type": "embedding", "settings": {"batch_size": 1024, "projection": 4096}},
        "batch_size is 1024; the loss of so many pairs needs about 0.188 GiB, and at most 0.0625 GiB are used",
    ),
    "many long pairs of token vectors": (
        PAIRS, {"task_type": "multi-vector-embedding", "settings": {"batch_size": 1024}},
        "batch_size is 1024; the loss of so many pairs needs about ",
    ),
    "one long row": (
        [*praise(), {"text": "film " * 200, "label": "negative"}], {"preset": "lora", "settings": {"max_length": 80}},
        "a row reads 80 tokens, which needs about ",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TOO_MUCH)
def test_what_needs_too_much_memory_is_refused(desk: Desk, monkeypatch: pytest.MonkeyPatch, name: str):
    """With the value and the bound, and no step is taken."""
    rows, asked, reason = TOO_MUCH[name]
    monkeypatch.setattr(requests, "pass_bytes", lambda device: 2**18 if name == "one long row" else 2**26)
    refused = desk.do(desk.job(jsonl(rows), request(**asked)))
    assert isinstance(refused, Refused)
    assert refused.reason.startswith(reason)
    assert [type(message) for message in desk.messages] in ([], [Checked])


GIB = 2**30


@pytest.mark.parametrize(("total", "bound"), [(None, 4), (2 * GIB, 4), (17 * GIB, 4), (127.5 * GIB, 31)])
def test_a_quarter_of_a_machine_but_4_gib_at_least(total: Any, bound: int, monkeypatch: pytest.MonkeyPatch):
    """In whole GiB, so that machines of a kind have the same."""
    monkeypatch.setattr(bounds, "total_bytes", lambda: total and int(total))
    assert pass_bytes("cpu") == bound * GIB


def test_half_of_what_is_free_on_a_gpu(monkeypatch: pytest.MonkeyPatch):
    """With what torch keeps and does not use."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (30 * GIB, 80 * GIB))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda: 12 * GIB)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda: 2 * GIB)
    assert pass_bytes("auto") == pass_bytes("cuda") == 20 * GIB
