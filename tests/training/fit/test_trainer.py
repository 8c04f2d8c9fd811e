"""How the Trainer is told to do it."""

from typing import Any

import pytest
import torch
from peltier_backbone.text.packing import Encoded
from peltier_training.config.preparation import prepare
from peltier_training.fit import objective, trainer
from peltier_training.train import learn

from tests.training.conftest import MakeRun, Trained


@pytest.mark.parametrize(
    ("family", "task_type", "preset", "consistency", "calls"),
    [
        ("bert", "classification", "adamix", 0.25, 3),
        ("bert", "multilabel", "adamix", 1.0, 3),
        ("bert", "classification", "adamix", 0.0, 0),
        ("bert", "regression", "adamix", None, 0),  # a single number is no distribution
        ("bert", "classification", "houlsby", None, 0),
        ("t5", "regression", "adamix", 1.0, 3),  # the text of a number is one
        ("t5", "text2text", "adamix", 3.0, 3),
        ("t5", "text2text", "adamix", 0.0, 0),
    ],
)
def test_consistency_is_added_in_every_training_step(
    make_run: MakeRun, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, family: str, task_type: str,
    preset: str, consistency: float | None, calls: int,
):  # fmt: skip
    """A step's loss is the task's, and so many times the divergence of its two routed passes. There is none in
    evaluation, nor where there is nothing to route."""
    diverge, compute = objective.consistency_loss, trainer.AdapterTrainer.compute_loss
    apart: list[torch.Tensor] = []
    added: list[float] = []

    def record(first: torch.Tensor, second: torch.Tensor, **options: Any) -> torch.Tensor:
        apart.append(diverge(first, second, **options))
        return apart[-1]

    def watch(self: trainer.AdapterTrainer, model: Any, inputs: Any, return_outputs: bool = False, **_: Any) -> Any:
        loss, outputs = compute(self, model, inputs, return_outputs=True)
        if model.training:
            added.append(loss.item() - self._objective.task_loss(outputs["logits"], inputs["labels"]).item())
        return (loss, outputs) if return_outputs else loss

    monkeypatch.setattr(objective, "consistency_loss", record)
    monkeypatch.setattr(trainer.AdapterTrainer, "compute_loss", watch)
    overrides = {"bottleneck": "8"} | ({} if consistency is None else {"consistency": str(consistency)})
    backbone = request.getfixturevalue(family).name
    run = make_run(task_type, preset, backbone=backbone, epochs=1, learning_rate=0.05, overrides=overrides)
    learn(prepare(run))
    assert (len(apart), len(added)) == (calls, 3)
    assert all(loss.item() > 0 and loss.requires_grad for loss in apart)
    expected = [(consistency or 0.0) * loss.item() for loss in apart] or [0.0] * 3
    assert added == pytest.approx(expected, rel=0.01, abs=1e-6)
    assert not apart or max(loss.item() for loss in apart) > 1e-3


def test_the_seed_decides_the_order(make_run: MakeRun, monkeypatch: pytest.MonkeyPatch):
    """Rows come in an order of the seed's own; the same seed brings it again."""
    orders, original = [], trainer.collate
    for seed in (1, 1, 2):
        seen: list[Encoded] = []
        monkeypatch.setattr(
            trainer, "collate", lambda items, seen=seen: seen.extend(row for row, _ in items) or original(items)
        )
        learn(prepare(make_run(epochs=1, seed=seed)))
        orders.append(seen[:48])  # the rest is the evaluation
    assert orders[0] == orders[1]
    assert orders[0] != orders[2]
    assert sorted(row.ids for row in orders[0]) == sorted(row.ids for row in orders[2])


def test_the_learning_rate_warms_up_and_fades(compacter: Trained):
    """`warmup` is a fraction of the steps: half of six reaches the whole rate after three, and it ends at 0."""
    rates = [_state(compacter, step, "scheduler")["_last_lr"] for step in (3, 6)]
    assert rates == [[3e-3, 3e-3], [0.0, 0.0]]  # of the two groups, with and without weight decay


def test_norms_and_biases_do_not_decay(compacter: Trained):
    """A Compacter's maps, rule and head weight decay; its norms and biases keep to what they learn."""
    groups = _state(compacter, 3, "optimizer")["param_groups"]
    # down left and right, up left and right, rule, head; two bottleneck biases, two norm tensors, the head's bias
    assert [(group["weight_decay"], len(group["params"])) for group in groups] == [(0.1, 6), (0.0, 5)]


def _state(done: Trained, step: int, name: str) -> dict[str, Any]:
    return torch.load(done.run.directory / f"checkpoint-{step}" / f"{name}.pt", weights_only=True)


@pytest.mark.parametrize("writes_events", [True, False])
def test_events_are_written_if_the_run_wants_them(make_run: MakeRun, writes_events: bool):
    """By every trainer, those of baselines too."""
    arguments = trainer.create_arguments(make_run(writes_events=writes_events, epochs=1, learning_rate=0.1, warmup=0.0))
    assert arguments.report_to == (["tensorboard"] if writes_events else [])
