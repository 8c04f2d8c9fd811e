"""Trainings that share a backbone and their steps."""

import os
import shutil
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from peltier_backbone.backbone import Backbone
from peltier_training.config.preparation import prepare
from peltier_training.config.run import Run
from peltier_training.fit.objective import HeadObjective
from peltier_training.fit.shared_steps import Member, SharedSteps, Stopped
from peltier_training.learners import AdapterLearner
from peltier_training.train import learn
from torch import Tensor
from transformers import AutoConfig, AutoModel, AutoModelForSeq2SeqLM, TrainerCallback

MakeRun = Callable[..., Run]
Weights = dict[str, Tensor]


@pytest.fixture(autouse=True)
def _stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trainings change the current directory; the tests go back to theirs."""
    monkeypatch.chdir(os.getcwd())


@dataclass
class Training:
    """One training, `alone` or with others; `at_step` is called after each of its steps."""

    run: Run
    at_step: Callable[["Training", int], None] = lambda training, step: None
    member: Member | None = None
    weights: Weights = field(default_factory=dict)
    error: BaseException | None = None

    def alone(self) -> Weights:
        own = Training(replace(self.run, directory=self.run.directory / "alone"))
        own._learn(None)
        return own.weights

    def start(self, shared: SharedSteps) -> threading.Thread:
        thread = threading.Thread(target=self._take_part, args=(shared,))
        thread.start()
        return thread

    def _take_part(self, shared: SharedSteps) -> None:
        self.run.directory.mkdir(parents=True, exist_ok=True)
        try:
            with shared.join(self.run.directory) as self.member:
                self._learn(self.member)
        except BaseException as error:
            self.error = error

    def _learn(self, member: Member | None) -> None:
        learned = learn(prepare(self.run), (_AtStep(self),), member)
        assert isinstance(learned.learner, AdapterLearner)
        self.weights = learned.learner.model.merged()


class _AtStep(TrainerCallback):
    def __init__(self, training: Training) -> None:
        self._training = training

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._training.at_step(self._training, state.global_step)


def train_together(trainings: Sequence[Training]) -> None:
    shared = SharedSteps()
    threads = [one.start(shared) for one in trainings]
    for thread in threads:
        thread.join()


def assert_same(training: Training) -> None:
    """To the last bit."""
    assert training.error is None, training.error
    for name, tensor in training.alone().items():
        assert torch.equal(training.weights[name], tensor), name


@pytest.fixture(scope="module")
def even(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """A checkpoint like that in a folder, with an inner size that is a multiple of 16 as in all published models:
    torch computes the activation of the last elements of a tensor otherwise."""

    @cache
    def make(directory: str) -> str:
        folder = tmp_path_factory.mktemp("even")
        config = AutoConfig.from_pretrained(directory)
        setattr(config, "d_ff" if config.is_encoder_decoder else "intermediate_size", 96)
        kind = AutoModelForSeq2SeqLM if config.is_encoder_decoder else AutoModel
        torch.manual_seed(0)
        model = kind.from_config(config)
        if not getattr(config, "scale_decoder_outputs", True):  # the output layer of T5 v1.1 is not the embeddings
            model.lm_head.weight = torch.nn.Parameter(0.1 * torch.randn_like(model.shared.weight))
        model.save_pretrained(folder)
        for file in Path(directory).glob("tokenizer*"):
            shutil.copy(file, folder)
        return str(folder)

    return make


@pytest.fixture
def create(make_run: MakeRun, tmp_path: Path, bert: Backbone, even: Callable[[str], str]) -> Callable[..., Training]:
    made: list[Training] = []

    def make(task_type: str = "classification", preset: str = "compacter", **changes: Any) -> Training:
        directory = tmp_path / f"run-{len(made)}"
        own = {"backbone": even(bert.name), "learning_rate": 0.01, **changes}
        run = make_run(task_type, preset, directory=directory, **own)
        made.append(Training(run))
        return made[-1]

    return make


KINDS: Sequence[tuple[str, str, dict[str, str]]] = (
    ("classification", "compacter", {}),
    ("regression", "lora", {"rank": "2"}),
    ("classification", "lora", {"rank": "16", "targets": "query,key,value"}),
    ("multilabel", "unipelt-apl", {"mlp": "16"}),
    ("token-classification", "houlsby", {"bottleneck": "8"}),
    ("classification", "adamix", {"bottleneck": "8"}),
    ("classification", "adamix", {"bottleneck": "8", "routing": "sample"}),
    ("ranking", "bitfit", {}),
    ("classification", "prefix", {"mlp": "0"}),
    ("regression", "lora", {"first_block": "1"}),
    ("classification", "compacter", {"first_block": "1"}),
    ("classification", "bitfit", {"first_block": "2"}),
    ("classification", "pfeiffer", {"pooling": "pooler"}),
)


@pytest.mark.parametrize(
    ("kinds", "max_epochs"), [(KINDS[::3], 2), pytest.param(KINDS, 3, marks=pytest.mark.slow)], ids=["few", "all"]
)
def test_a_training_with_others_ends_as_alone(
    create: Callable[..., Training], kinds: Sequence[tuple[str, str, dict[str, str]]], max_epochs: int
):
    """Trainings of every kind of part, with other ranks, tasks, seeds, batches and lengths, together."""
    trainings = [
        create(
            task,
            preset,
            overrides=settings,
            seed=number,
            epochs=1 + number % max_epochs,
            batch_size=8 + 3 * (number % 4),
        )
        for number, (task, preset, settings) in enumerate(kinds)
    ]
    train_together(trainings)
    for one in trainings:
        assert_same(one)


@pytest.mark.slow  # BERT stays in the gate
@pytest.mark.parametrize("family", ["roberta", "modernbert", "eurobert"])
def test_every_encoder_shares_steps(
    create: Callable[..., Training], request: pytest.FixtureRequest, even: Callable[[str], str], family: str
):
    """Also one with other positions, one with windows of attention, and one with RMS norms."""
    original: Backbone = request.getfixturevalue(family)
    backbone = even(original.name)
    trainings = [create(preset=preset, backbone=backbone) for preset in ("compacter", "lora", "prefix")]
    train_together(trainings)
    for one in trainings:
        assert_same(one)


T5_KINDS: Sequence[tuple[str, str, dict[str, str]]] = (
    ("text2text", "compacter", {"bottleneck": "8"}),
    ("text2text", "lora", {"rank": "2"}),
    ("classification", "unipelt-apl", {"mlp": "16"}),
    ("text2text", "adamix", {"bottleneck": "8"}),
    ("text2text", "adamix", {"bottleneck": "8", "routing": "sample"}),
    ("classification", "bitfit", {}),
    ("text2text", "prefix", {"mlp": "0"}),
    ("text2text", "prompt-r", {}),
    ("classification", "houlsby", {"bottleneck": "8", "first_block": "1"}),
)


@pytest.mark.slow  # BERT stays in the gate
@pytest.mark.parametrize("family", ["t5", "t5_gated"])
def test_texts_of_a_t5_share_steps(
    create: Callable[..., Training], request: pytest.FixtureRequest, even: Callable[[str], str], family: str
):
    """Encoders, decoders and output layers of one pass, with every kind of part, other batches and lengths."""
    original: Backbone = request.getfixturevalue(family)
    backbone = even(original.name)
    trainings = [
        create(task, preset, backbone=backbone, overrides=own, seed=number, epochs=1, batch_size=6 + number % 4)
        for number, (task, preset, own) in enumerate(T5_KINDS)
    ]
    train_together(trainings)
    for one in trainings:
        assert_same(one)


def test_others_join_late_leave_early_and_fail(create: Callable[..., Training]):
    """One joins at a step of the first, one is stopped, one raises, one diverges: the rest end as alone."""
    shared, late, threads = SharedSteps(), create(preset="lora", seed=5), list[threading.Thread]()

    def admit(training: Training, step: int) -> None:
        if step == 2:
            threads.append(late.start(shared))

    def stop(training: Training, step: int) -> None:
        if step == 1:
            assert training.member is not None
            training.member.stopping.set()

    def fail(training: Training, step: int) -> None:
        if step == 3:
            raise ValueError("broken")

    first, other = create(), create(preset="houlsby", seed=2)
    first.at_step = admit
    stopped, failing = create(seed=3), create(preset="adamix", seed=4)
    stopped.at_step, failing.at_step = stop, fail
    diverging = create(preset="lora", learning_rate=1e30)
    threads += [one.start(shared) for one in (first, other, stopped, failing, diverging)]
    while threads:
        threads.pop(0).join()
    for one in (first, other, late):
        one.at_step = lambda training, step: None
        assert_same(one)
    assert isinstance(stopped.error, Stopped)
    assert str(failing.error) == "broken"
    assert "diverged" in str(diverging.error)


def test_a_step_that_fails_ends_its_training_alone(create: Callable[..., Training], monkeypatch: pytest.MonkeyPatch):
    """The others of that pass compute it again, with the same random numbers."""
    trainings = [create(), create(preset="lora", seed=1), create("regression", "houlsby", seed=2)]
    original = HeadObjective.task_loss

    def spoilt(self: HeadObjective, logits: Tensor, labels: Tensor) -> Tensor:
        if self.type == "regression" and torch.is_grad_enabled():
            raise MemoryError("no room")
        return original(self, logits, labels)

    monkeypatch.setattr(HeadObjective, "task_loss", spoilt)
    train_together(trainings)
    assert isinstance(trainings[2].error, MemoryError)
    for one in trainings[:2]:
        assert_same(one)
