"""The steps of a training are those of transformers' model in a plain loop of torch, in float64."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from peltier_backbone import load
from peltier_backbone.backbone import Backbone
from peltier_training.config.preparation import prepare
from peltier_training.config.run import Run
from peltier_training.data.dataset import QuerySampler
from peltier_training.fit.passes import PassMemory
from peltier_training.fit.trainer import AdapterTrainer
from peltier_training.learners import AdapterLearner
from torch import Tensor, nn
from transformers import AutoTokenizer, BertForSequenceClassification, T5ForConditionalGeneration
from transformers.models.t5.modeling_t5 import T5LayerNorm

from tests.training.conftest import MakeRun

RATE, DECAY, ALPHA = 0.02, 0.1, 16.0
# Adam's epsilon of 1e-8 lets the rounding of a gradient, 1e-16 or less, move a weight by less than 1e-8 of the rate. A
# step of the wrong loss or labels differs by more than 1e-3.
CLOSE = 1e-8
NUMBERS = {
    "epochs": 2, "batch_size": 16, "learning_rate": RATE, "weight_decay": DECAY, "warmup": 2,
    "dropout": 0.0, "backbone_dropout": 0.0, "dtype": "float64",
}  # fmt: skip


class Lora(nn.Module):
    """A frozen map with a trainable product of two thin matrices."""

    def __init__(self, frozen: nn.Linear, down: Tensor, up: Tensor) -> None:
        super().__init__()
        self.frozen, self.gain = frozen, ALPHA / len(up)
        self.down, self.up = nn.Parameter(down.clone()), nn.Parameter(up.clone())

    def forward(self, x: Tensor) -> Tensor:
        return cast(Tensor, self.frozen(x)) + self.gain * (x @ self.down @ self.up)


def losses_of(run: Run, monkeypatch: pytest.MonkeyPatch) -> tuple[list[float], dict[str, Tensor]]:
    """The loss of each step of a training, and the tensors that it starts from."""
    prepared, found = prepare(run), list[float]()
    step, softmax = AdapterTrainer.training_step, torch.Tensor.softmax
    monkeypatch.setitem(load.DTYPES, "float64", torch.float64)
    learner = AdapterLearner(prepared.run, prepared.data)
    learner.model.double()
    # What is float32 in every model is float64 too.
    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)
    monkeypatch.setattr(torch.Tensor, "softmax", lambda x, dim, dtype=None: softmax(x, dim))
    monkeypatch.setattr(PassMemory, "check", lambda *_: None)  # one row needs more than the least bound
    start = {name: tensor.detach().clone() for name, tensor in learner.model.served().items()}

    def record(*given: Any) -> Tensor:
        loss = step(*given)
        found.append(loss.item())
        return loss

    monkeypatch.setattr(AdapterTrainer, "training_step", record)
    monkeypatch.setattr(learner, "_judge", lambda *_: {run.metric: 0.0, "loss": 0.0})  # artifacts are in float32
    learner.fit(prepared.data.train.examples, prepared.data.validation.examples)
    return found, start


def reference_losses(model: nn.Module, batches: Sequence[dict[str, Tensor]]) -> Iterator[float]:
    """Those of AdamW with a linear schedule of two steps of warm-up, and gradients of a norm of at most 1."""
    trained = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    groups = [
        {"params": [p for name, p in trained.items() if not name.endswith("bias")], "weight_decay": DECAY},
        {"params": [p for name, p in trained.items() if name.endswith("bias")], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=RATE)
    rates = [1 / 3, 2 / 3, *((len(batches) - step) / (len(batches) - 2) for step in range(2, len(batches)))]
    for batch, factor in zip(batches, rates, strict=True):
        for group in optimizer.param_groups:
            group["lr"] = factor * RATE
        loss = model(**batch).loss
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(trained.values(), 1.0)
        optimizer.step()
        yield loss.item()


def batches_of(run: Run, directory: Path, targets: Any) -> list[dict[str, Tensor]]:
    """Padded texts with the labels that `targets` makes, in the order of the run's seed."""
    rows = [json.loads(line) for line in run.data.train.read_text().splitlines()]
    tokenizer, order = AutoTokenizer.from_pretrained(directory), QuerySampler(range(len(rows)), 0)
    found = []
    for epoch in range(run.epochs):
        order.set_epoch(epoch)
        chosen = [rows[place] for place in order]
        for first in range(0, len(chosen), run.batch_size):
            batch = chosen[first : first + run.batch_size]
            texts = tokenizer([row["text"] for row in batch], padding=True, return_tensors="pt")
            found.append({**texts, "labels": targets(tokenizer, [row["label"] for row in batch])})
    return found


def target_grid(tokenizer: Any, texts: Sequence[str]) -> Tensor:
    """The tokens of texts with their end, of which those that only fill the grid are ignored."""
    padded = tokenizer(list(texts), padding=True, return_tensors="pt")
    grid: Tensor = padded["input_ids"].masked_fill(padded["attention_mask"] == 0, -100)
    return grid


@pytest.fixture
def uneven(make_run: MakeRun, t5: Backbone, tmp_path: Path) -> MakeRun:
    """`make_run` on a T5 with targets of one to eight words, in batches of which the last is small."""
    path = tmp_path / "uneven.jsonl"
    rows = [{"text": f"{'a ' * (place % 5)}film", "label": "good " * (place % 7) + "bad"} for place in range(40)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))

    def make(**changes: Any) -> Run:
        run = make_run("text2text", "lora", backbone=t5.name, **{**NUMBERS, **changes})
        return replace(run, data=replace(run.data, train=path, validation=path))

    return make


# A step of rows in several passes adds the shares of each in the tokens of all.
@pytest.mark.parametrize("pass_bytes", [None, 1])
def test_a_text_to_text_training_is_transformers_own(uneven, t5_directory, monkeypatch, pass_bytes):
    """The decoder reads the target shifted by one, its end counts, what fills a grid does not, and the loss is the mean
    over the tokens of a batch."""
    run = uneven(pass_bytes=pass_bytes)
    found, start = losses_of(run, monkeypatch)
    monkeypatch.setattr(T5LayerNorm, "forward", root_mean_square)  # its own squares are float32
    model = T5ForConditionalGeneration.from_pretrained(t5_directory).double().eval().requires_grad_(False)
    attentions = [
        *(block.layer[0].SelfAttention for block in model.encoder.block),
        *(block.layer[0].SelfAttention for block in model.decoder.block),
        *(block.layer[1].EncDecAttention for block in model.decoder.block),
    ]
    add_lora(attentions, ("q", "v"), start)
    expected = list(reference_losses(model, batches_of(run, t5_directory, target_grid)))
    assert found == pytest.approx(expected, rel=CLOSE)
    assert expected[-1] < expected[0]


@pytest.mark.parametrize("pass_bytes", [None, 1])
def test_a_training_of_a_classifier_is_transformers_own(make_run, bert_directory, monkeypatch, pass_bytes):
    """The loss is the mean over the rows of a batch, and biases do not decay."""
    run = make_run("classification", "lora", pass_bytes=pass_bytes, **NUMBERS)
    found, start = losses_of(run, monkeypatch)
    model = BertForSequenceClassification.from_pretrained(bert_directory, num_labels=2).double().eval()
    model.requires_grad_(False)
    add_lora([layer.attention.self for layer in model.bert.encoder.layer], ("query", "value"), start)
    model.classifier.weight = nn.Parameter(start["head.weight"].T.clone())
    model.classifier.bias = nn.Parameter(start["head.bias"].clone())
    expected = list(reference_losses(model, batches_of(run, bert_directory, label_positions)))
    assert found == pytest.approx(expected, rel=CLOSE)


def root_mean_square(norm: T5LayerNorm, x: Tensor) -> Tensor:
    return norm.weight * x * (x.pow(2).mean(-1, keepdim=True) + norm.variance_epsilon).rsqrt()


def label_positions(_: Any, labels: Sequence[str]) -> Tensor:
    return torch.tensor([("negative", "positive").index(label) for label in labels])


def add_lora(attentions: Sequence[nn.Module], names: tuple[str, str], start: dict[str, Tensor]) -> None:
    """Give the query and the value of each attention the products that a training starts from."""
    for number, attention in enumerate(attentions):
        for place, name in enumerate(names):
            down, up = start["lora.down"][place, number], start["lora.up"][place, number]
            setattr(attention, name, Lora(getattr(attention, name), down, up))
