"""How the Trainer is told to do it."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from peltier_backbone.text.packing import Encoded
from peltier_training.config.run import Run
from peltier_training.fit import objective, trainer
from peltier_training.train import train

MakeRun = Callable[..., Run]


@pytest.mark.parametrize(
    ("family", "task_type", "preset", "consistency", "calls"),
    [
        ("bert", "classification", "adamix", "1.0", 3),
        ("bert", "multilabel", "adamix", "1.0", 3),
        ("bert", "classification", "adamix", "0.0", 0),
        ("bert", "regression", "adamix", "1.0", 0),  # a single number is no distribution
        ("bert", "classification", "houlsby", None, 0),
        ("t5", "regression", "adamix", "1.0", 3),  # the text of a number is one
        ("t5", "text2text", "adamix", "0.0", 0),
    ],
)
def test_consistency_is_asked_of_every_training_step(
    make_run: MakeRun, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, family: str, task_type: str,
    preset: str, consistency: str | None, calls: int,
):  # fmt: skip
    """Two routed passes a step, three steps an epoch; never in evaluation, nor where there is nothing to route."""
    losses = []

    def record(first: torch.Tensor, second: torch.Tensor, **options: Any) -> torch.Tensor:
        losses.append(original(first, second, **options))
        return losses[-1]

    original = objective.consistency_loss
    monkeypatch.setattr(objective, "consistency_loss", record)
    overrides = {"bottleneck": "8"} | ({"consistency": consistency} if consistency else {})
    backbone = request.getfixturevalue(family).name
    train(make_run(task_type, preset, backbone=backbone, epochs=1, overrides=overrides))
    assert len(losses) == calls
    assert all(loss.item() > 0 and loss.requires_grad for loss in losses)


@pytest.mark.parametrize(
    ("family", "task_type", "weight"), [("bert", "classification", 0.25), ("t5", "text2text", 3.0)]
)
def test_consistency_has_its_weight_in_what_is_minimised(
    make_run: MakeRun, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, family: str, task_type: str,
    weight: float,
):  # fmt: skip
    """A step's loss is the task's, and so many times the divergence of its two passes."""
    diverge, compute = objective.consistency_loss, trainer.AdapterTrainer.compute_loss
    apart: list[float] = []
    added: list[float] = []

    def record(first: torch.Tensor, second: torch.Tensor, **options: Any) -> torch.Tensor:
        loss = diverge(first, second, **options)
        apart.append(loss.item())
        return loss

    def watch(self: trainer.AdapterTrainer, model: Any, inputs: Any, return_outputs: bool = False, **_: Any) -> Any:
        loss, outputs = compute(self, model, inputs, return_outputs=True)
        if model.training:
            added.append(loss.item() - self._objective.task_loss(outputs["logits"], inputs["labels"]).item())
        return (loss, outputs) if return_outputs else loss

    monkeypatch.setattr(objective, "consistency_loss", record)
    monkeypatch.setattr(trainer.AdapterTrainer, "compute_loss", watch)
    overrides = {"bottleneck": "8", "consistency": str(weight)}
    backbone = request.getfixturevalue(family).name
    train(make_run(task_type, "adamix", backbone=backbone, epochs=1, learning_rate=0.05, overrides=overrides))
    assert len(added) == 3
    assert added == pytest.approx([weight * one for one in apart], rel=0.01, abs=1e-6)
    assert max(apart) > 1e-3


def test_the_seed_decides_the_order(make_run: MakeRun, monkeypatch: pytest.MonkeyPatch):
    """Rows come in an order of the seed's own; the same seed brings it again."""
    orders, original = [], trainer.collate
    for seed in (1, 1, 2):
        seen: list[Encoded] = []
        monkeypatch.setattr(
            trainer, "collate", lambda items, seen=seen: seen.extend(row for row, _ in items) or original(items)
        )
        train(make_run(epochs=1, seed=seed))
        orders.append(seen[:48])  # the rest is the evaluation
    assert orders[0] == orders[1]
    assert orders[0] != orders[2]
    assert sorted(row.ids for row in orders[0]) == sorted(row.ids for row in orders[2])


def test_the_learning_rate_warms_up_and_fades(make_run: MakeRun):
    """`warmup` is a fraction of the steps: half of six reaches the whole rate after three, and it ends at 0."""
    run = make_run(learning_rate=0.02, warmup=0.5)
    train(run)
    rates = [_state(run, step, "scheduler")["_last_lr"] for step in (3, 6)]
    assert rates == [[0.02, 0.02], [0.0, 0.0]]  # of the two groups, with and without weight decay


def test_norms_and_biases_do_not_decay(make_run: MakeRun):
    """A Compacter's maps, rule and head weight decay; its norms and biases keep to what they learn."""
    run = make_run(epochs=1, weight_decay=0.1)
    train(run)
    groups = _state(run, 3, "optimizer")["param_groups"]
    # down left and right, up left and right, rule, head; two bottleneck biases, two norm tensors, the head's bias
    assert [(group["weight_decay"], len(group["params"])) for group in groups] == [(0.1, 6), (0.0, 5)]


def _state(run: Run, step: int, name: str) -> dict[str, Any]:
    return torch.load(run.directory / f"checkpoint-{step}" / f"{name}.pt", weights_only=True)
