"""A whole pretraining run, on a tiny model."""

import json
import shutil
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from peltier_training.errors import TrainingError
from peltier_training.pretraining import trainer
from peltier_training.pretraining.dataset import TokenStream
from peltier_training.pretraining.pretrain import PretrainingOutcome, pretrain
from peltier_training.pretraining.run import Optimization, Pretraining, PretrainingBudget, T5Shape
from peltier_training.pretraining.word_vectors import begin_with_word_vectors
from safetensors import safe_open
from safetensors.torch import load_file
from transformers import AutoTokenizer, T5ForConditionalGeneration

from tests.training.pretraining.conftest import MakePretraining, create_pretraining


@pytest.fixture(scope="module")
def finished(text: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Pretraining, PretrainingOutcome]:
    """A run that is over, and how it ended."""
    run = create_pretraining(text, tmp_path_factory.mktemp("finished"))
    return run, pretrain(run)


def test_the_output_is_a_transformers_checkpoint(finished: tuple[Pretraining, PretrainingOutcome]):
    """Model, tokenizer, generation settings, card and curve; weights are bfloat16; nothing else is left beside it."""
    run, outcome = finished
    assert (outcome.finished, outcome.steps) == (True, 6)
    assert sorted(path.name for path in run.output.iterdir()) == [
        "README.md", "config.json", "generation_config.json", "loss.jsonl", "model.safetensors", "tokenizer.json",
        "tokenizer_config.json",
    ]  # fmt: skip
    assert sorted(path.name for path in run.output.parent.iterdir()) == ["run", "tiny"]
    model = T5ForConditionalGeneration.from_pretrained(run.output)
    assert model.dtype == torch.bfloat16
    assert model.config.vocab_size == run.shape.vocab_size
    tokenizer = AutoTokenizer.from_pretrained(run.output)
    answer = model.generate(**tokenizer("the quiet <extra_id_0> river", return_tensors="pt"), max_new_tokens=5)
    assert answer[0, 0] == 0
    assert "6 steps of 4 texts" in (run.output / "README.md").read_text()


def test_the_curve_has_both_losses(finished: tuple[Pretraining, PretrainingOutcome]):
    """One JSON line a point; the last is the held-out loss that the call reports."""
    run, outcome = finished
    points = [json.loads(line) for line in (run.output / "loss.jsonl").read_text().splitlines()]
    assert [point["step"] for point in points if "held_out_loss" in point] == [1, 2, 3, 4, 5, 6]
    assert any("learning_rate" in point for point in points)
    assert points[-1] == {"step": 6, "held_out_loss": outcome.held_out_loss}


@pytest.mark.slow
def test_it_learns(make_pretraining: MakePretraining):
    """The held-out loss falls below that of knowing only how often each token occurs."""
    run = make_pretraining(
        budget=PretrainingBudget(steps=120),
        shape=T5Shape(700, d_model=32, layers=1, heads=2, d_ff=64, d_kv=16),
        optimization=Optimization(batch_size=16, input_length=32, learning_rate=5e-3),
    )
    pretrain(run)
    points = [json.loads(line) for line in (run.output / "loss.jsonl").read_text().splitlines()]
    losses = [point["held_out_loss"] for point in points if "held_out_loss" in point]
    assert losses[-1] < losses[0] - 1.0


def test_resumed_is_as_if_never_stopped(
    make_pretraining: MakePretraining, finished: tuple[Pretraining, PretrainingOutcome], tmp_path: Path
):
    """A call that ends after its first step, then one that goes on: the same weights as in one call."""
    whole, _ = finished
    # The training of a tokenizer is not the same twice, that of the model on its tokens is.
    shutil.copytree(whole.directory, tmp_path / "run", ignore=shutil.ignore_patterns("checkpoint-*", "runs"))
    first = pretrain(make_pretraining(budget=PretrainingBudget(steps=6, call_minutes=1e-6)))
    assert (first.finished, first.steps) == (False, 1)
    assert not (tmp_path / "tiny").exists()
    (resumed := make_pretraining(resume=True)).directory.joinpath("train.tokens").stat()
    assert pretrain(resumed).steps == 6
    expected, found = (load_file(output / "model.safetensors") for output in (whole.output, resumed.output))
    assert all(torch.equal(expected[name], found[name]) for name in expected)


def test_a_budget_of_time_is_kept_over_calls(make_pretraining: MakePretraining, monkeypatch: pytest.MonkeyPatch):
    """A call ends with a checkpoint and writes nothing; the next one spends the rest, however few steps it holds."""
    # Half a second goes by from look to look, however long a step takes here.
    clock = SimpleNamespace(monotonic=count(step=0.5).__next__)
    monkeypatch.setattr(trainer, "time", clock)
    outcome = pretrain(make_pretraining(budget=PretrainingBudget(minutes=0.1, call_minutes=1e-6)))
    assert not outcome.finished
    run = make_pretraining(budget=PretrainingBudget(minutes=0.1), resume=True)
    assert not run.output.exists()
    assert pretrain(run).finished
    assert run.output.joinpath("model.safetensors").is_file()


def test_bfloat16_trains(make_pretraining: MakePretraining):
    """Products in bfloat16, on the CPU too; the master weights of a checkpoint stay float32."""
    run = make_pretraining(dtype="bfloat16", budget=PretrainingBudget(steps=2))
    assert pretrain(run).finished
    with safe_open(run.directory / "checkpoint-2" / "model.safetensors", "pt") as file:
        assert file.get_slice("shared.weight").get_dtype() == "F32"


def test_gated_is_t5_1_1(make_pretraining: MakePretraining):
    """With two matrices in front of the gate."""
    shape = T5Shape(700, d_model=16, layers=1, heads=2, d_ff=32, d_kv=8, gated=True)
    run = make_pretraining(shape=shape, budget=PretrainingBudget(steps=1))
    pretrain(run)
    config = json.loads((run.output / "config.json").read_text())
    assert (config["feed_forward_proj"], config["tie_word_embeddings"]) == ("gated-gelu", True)


def test_word_vectors_begin_the_embeddings(make_pretraining: MakePretraining, monkeypatch: pytest.MonkeyPatch):
    """Once, not again when the run goes on; the card says so."""
    seen: list[int] = []

    def begin(embeddings: torch.Tensor, stream: TokenStream, seed: int) -> int:
        seen.append(begin_with_word_vectors(embeddings, stream, seed))
        return seen[-1]

    monkeypatch.setattr("peltier_training.pretraining.pretrain.begin_with_word_vectors", begin)
    numbers = Optimization(batch_size=4, input_length=32, word_vectors=True)
    budget = PretrainingBudget(steps=2, call_minutes=1e-6)
    assert not pretrain(make_pretraining(optimization=numbers, budget=budget)).finished
    assert seen[0] > 100
    run = make_pretraining(optimization=numbers, budget=PretrainingBudget(steps=2), resume=True)
    assert pretrain(run).finished
    assert len(seen) == 1
    assert "embeddings begun as word vectors" in (run.output / "README.md").read_text()


def test_resume_needs_the_same_run(make_pretraining: MakePretraining):
    """Another shape, another budget or no run at all is explained."""
    with pytest.raises(TrainingError, match="there is no run to resume in"):
        pretrain(make_pretraining(resume=True))
    pretrain(make_pretraining(budget=PretrainingBudget(steps=2)))
    with pytest.raises(TrainingError, match=r"has another budget: .*'steps': 2.*, not .*'steps': 6"):
        pretrain(make_pretraining(resume=True, output=Path("other")))


def test_an_empty_text_is_refused(make_pretraining: MakePretraining, tmp_path: Path):
    """Before anything is trained."""
    (tmp_path / "empty.txt").write_text("\n \n")
    with pytest.raises(TrainingError, match="the text is empty"):
        pretrain(make_pretraining(texts=(tmp_path / "empty.txt",)))
