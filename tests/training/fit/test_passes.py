"""Steps that are divided into several passes."""

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from peltier_adapters.presets.presets import find_preset
from peltier_backbone.backbone import Backbone
from peltier_training.config.preparation import prepare
from peltier_training.config.run import Run
from peltier_training.config.task_options import EmbeddingOptions
from peltier_training.data.data import Data
from peltier_training.fit.objective import HeadObjective, Objective, SpanObjective, TextObjective
from peltier_training.fit.passes import PassMemory, Size
from peltier_training.fit.trainer import AdapterTrainer
from peltier_training.train import learn

from tests.training.conftest import MIXTURE, write_data

MakeRun = Callable[..., Run]
# One item alone: every other bound divides a step less.
_SMALLEST = 1


def memory(bert: Backbone, preset: str = "lora", **settings: str) -> PassMemory:
    chosen = find_preset(preset)
    return PassMemory(bert.config, chosen.compose(chosen.settings(settings, bert.config), bert.config, outputs=2))


def test_rows_stay_in_their_order_and_below_the_bound(bert: Backbone):
    """A row alone may be beyond it; a pair stays together."""
    found, draw = memory(bert), random.Random(0)
    items = [[Size(draw.randint(1, 40)) for _ in range(2)] for _ in range(50)]
    most = 4 * found.num_bytes([Size(40)] * 2)
    slices = list(found.divide(items, most))
    assert [place for own in slices for place in range(own.start, own.stop)] == list(range(50))
    assert all(found.num_bytes([size for item in items[own] for size in item]) <= most for own in slices)
    assert len(list(found.divide(items, _SMALLEST))) == 50


def test_what_needs_more_memory_counts_more(bert: Backbone, t5: Backbone):
    """Longer rows by their square, a wide adapter, a prefix, two passes, and written tokens with their vocabulary."""
    own = memory(bert).num_bytes([Size(16)])
    assert memory(bert).num_bytes([Size(32)]) > 2 * own
    assert memory(bert, "houlsby", bottleneck="4096").num_bytes([Size(16)]) > 10 * own
    assert memory(bert, "prefix", length="512").num_bytes([Size(16)]) > 2 * own
    assert replace(memory(bert), copies=2).num_bytes([Size(16)]) == 2 * own
    written = [memory(t5).num_bytes([Size(16, number)]) for number in (1, 2)]
    assert written[1] - written[0] > 12 * t5.config.vocab_size


OBJECTIVES: dict[str, tuple[Objective, Callable[[list[int]], torch.Tensor], bool]] = {
    "classification": (HeadObjective("classification", 0.5), lambda rows: torch.arange(len(rows)) % 3, False),
    "multilabel": (HeadObjective("multilabel", 0.5), lambda rows: torch.eye(len(rows), 3).double(), False),
    "regression": (HeadObjective("regression"), lambda rows: torch.arange(len(rows)).double(), False),
    "text2text": (TextObjective(0.5), lambda rows: torch.arange(sum(rows)) % 3, True),
    "span": (SpanObjective(0.5), lambda rows: torch.tensor([[0, row - 1, row] for row in rows]), True),
}


@pytest.mark.parametrize("kind", OBJECTIVES)
def test_shares_of_pieces_add_up_to_the_loss_of_the_step(kind: str):
    """In float64 the loss and the gradient of the outputs are the same, with the consistency of two passes."""
    objective, make_labels, has_tokens = OBJECTIVES[kind]
    rows = [3, 1, 4, 2, 5]
    labels, num = make_labels(rows), sum(rows) if has_tokens else len(rows)
    outputs = torch.randn(
        2, num, 2 if kind == "span" else 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)
    )
    if isinstance(objective, TextObjective):  # which computes in float32
        outputs = outputs.float()
    trainer = SimpleTrainer(objective)
    whole = trainer.grade(outputs, labels, rows, [slice(0, 5)], has_tokens)
    divided = trainer.grade(outputs, labels, rows, [slice(0, 2), slice(2, 3), slice(3, 5)], has_tokens)
    torch.testing.assert_close(divided, whole, rtol=1e-6 if outputs.dtype == torch.float32 else 1e-14, atol=1e-7)


class SimpleTrainer:
    """Adds the losses of pieces as `AdapterTrainer` does, without a model."""

    _loss, _add = AdapterTrainer._loss, AdapterTrainer._add

    def __init__(self, objective: Objective) -> None:
        self._objective = objective
        self.accelerator = self
        self._pieces: list[list[torch.Tensor]] = []

    def backward(self, loss: torch.Tensor) -> None:
        loss.backward()

    def _outputs(self, model: Any, piece: Any, number: int) -> list[torch.Tensor]:
        return self._pieces[number]

    def grade(self, outputs, labels, rows, slices, has_tokens) -> tuple[torch.Tensor, torch.Tensor]:
        """The loss, and the gradient of the outputs."""
        leaf, pieces, self._pieces = outputs.clone().requires_grad_(), [], []
        is_text = isinstance(self._objective, TextObjective)
        for own in slices:
            places = slice(sum(rows[: own.start]), sum(rows[: own.stop])) if has_tokens else own
            self._pieces.append(list(leaf[:, places].unbind()))
            pieces.append({"rows": [range(row) for row in rows[own]], "labels": labels[places if is_text else own]})
        whole = self._objective.num_terms(labels, rows)
        loss = self._add(None, pieces, whole)  # type: ignore[arg-type]
        return loss, leaf.grad


class Compared(Exception):
    """The first step was taken in both ways."""


STEPS = [
    ("bert", "classification", "adamix", MIXTURE),
    ("bert", "multilabel", "compacter", {}),
    ("bert", "token-classification", "adamix", MIXTURE),
    ("bert", "ranking", "lora", {}),
    ("bert", "embedding", "lora", {}),
    ("bert", "sparse-embedding", "lora", {}),
    ("bert", "multi-vector-embedding", "lora", {}),
    ("t5", "text2text", "adamix", MIXTURE),
    ("t5", "classification", "prompt-t", {"length": "5"}),
]


@pytest.mark.parametrize(("family", "task_type", "preset", "overrides"), STEPS)
def test_a_divided_step_has_the_gradients_of_a_whole_one(
    make_run: MakeRun, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    family: str, task_type: str, preset: str, overrides: dict[str, str],
):  # fmt: skip
    """Each row alone, without dropout: the loss of all rows, and its gradients but for the order of sums in float32. An
    evaluation has the loss of all rows too."""
    changes: dict[str, Any] = {"data": _pairs(tmp_path)} if task_type.endswith("embedding") else {}
    if task_type == "sparse-embedding":
        changes["embedding"] = EmbeddingOptions(terms=32)
    run = make_run(
        task_type, preset, backbone=request.getfixturevalue(family).name, overrides=overrides, dropout=0.0,
        backbone_dropout=0.0, **changes,
    )  # fmt: skip
    found: list[tuple[torch.Tensor, torch.Tensor]] = []
    evaluated: list[torch.Tensor] = []
    step = AdapterTrainer.training_step

    def compare(self: AdapterTrainer, model: Any, inputs: dict[str, Any], _: Any = None) -> None:
        model.train()
        for bound in (None, _SMALLEST):
            self._run = replace(self._run, pass_bytes=bound)
            assert (len(self._divide(inputs)) > 1) == (bound is not None)
            model.zero_grad()
            loss = step(self, model, inputs)
            gradients = [parameter.grad.flatten() for parameter in model.parameters() if parameter.grad is not None]
            found.append((loss, torch.cat(gradients)))
            with torch.no_grad():
                evaluated.append(self.compute_loss(model.eval(), inputs, return_outputs=True)[0])
            model.train()
        raise Compared

    monkeypatch.setattr(AdapterTrainer, "training_step", compare)
    with pytest.raises(Compared):
        learn(prepare(run))
    (loss, whole), (sum_of_losses, divided) = found
    torch.testing.assert_close(sum_of_losses, loss, rtol=1e-5, atol=0)
    torch.testing.assert_close(evaluated[1], evaluated[0], rtol=1e-5, atol=0)
    # Each gradient is a sum over at most 2^9 tokens, whose terms have errors of 2^-24.
    assert (divided - whole).norm() <= 2**9 * 2**-24 * whole.norm()
    assert whole.norm() > 0


def test_blocks_below_the_first_one_keep_nothing(make_run, bert, monkeypatch):
    """The adapter's own values are all in the blocks above."""
    found = list[int]()

    def look(self: AdapterTrainer, *_: Any) -> None:
        found.append(self.memory.num_bytes([Size(16)]))
        raise Compared

    monkeypatch.setattr(AdapterTrainer, "training_step", look)
    for first in (0, 1):
        with pytest.raises(Compared):
            learn(prepare(make_run("classification", "lora", overrides={"first_block": str(first)})))
    assert found[0] == memory(bert).num_bytes([Size(16)])
    assert found[1] * bert.config.num_layers == found[0] * (bert.config.num_layers - 1)


def _pairs(folder: Path) -> Data:
    draw, words = random.Random(0), ("a", "film", "the", "plot", "is", "very", "actor", "and", "good", "bad")
    rows = [{"text": " ".join(draw.choices(words, k=5)), "pair": " ".join(draw.choices(words, k=7))} for _ in range(40)]
    return write_data(folder / "pairs.jsonl", rows, ("text", "pair"))


def test_a_step_below_the_bound_is_one_pass(make_run: MakeRun, monkeypatch: pytest.MonkeyPatch):
    """A training whose steps need less memory ends with the very tensors of one without a bound."""
    found = []
    for bound in (None, 2**32):
        run = make_run("classification", "lora", epochs=1, pass_bytes=bound)
        found.append(learn(prepare(run)).learner.candidate().tensors)  # type: ignore[attr-defined]
    assert all(torch.equal(found[0][name], tensor) for name, tensor in found[1].items())
