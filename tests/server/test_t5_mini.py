"""The committed T5 checkpoint, from training data to an answer over HTTP."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from peltier_backbone.load import load_backbone
from peltier_training.config.run import Hyperparameters, Run
from peltier_training.config.task_options import TextOptions
from peltier_training.data.data import Data
from peltier_training.data.examples import read_examples
from peltier_training.evaluate.texts import evaluate_texts
from peltier_training.train import train

from tests.server.conftest import Serve

ROOT = Path(__file__).parents[2]
BANKING = ROOT / "examples/data/banking77"
T5_MINI = ROOT / "examples/backbones/t5-mini"
INTENTS = ("card_payment_fee_charged", "request_refund", "exchange_rate", "change_pin")


def some_intents(split: str, path: Path) -> list[dict[str, Any]]:
    with gzip.open(BANKING / f"{split}.jsonl.gz", "rt") as file:
        rows = [row for line in file if (row := json.loads(line))["label_text"] in INTENTS]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return rows


@pytest.mark.slow  # test_train_t5.py stays, with adapters that learn and are proved
async def test_it_learns_real_intents_and_serves_them(serve: Serve, tmp_path: Path) -> None:
    """A Compacter tells four intents apart that the bare checkpoint guesses at, and the server answers as training
    measured."""
    some_intents("train", tmp_path / "train.jsonl")
    asked = some_intents("validation", tmp_path / "validation.jsonl")
    data = Data(tmp_path / "train.jsonl", tmp_path / "validation.jsonl", ("text",), "label_text")
    run = Run(
        task="intents",
        task_type="classification",
        preset="compacter",
        backbone=str(T5_MINI),
        data=data,
        output=tmp_path / "intents.safetensors",
        directory=tmp_path / "run",
        hyperparameters=Hyperparameters(epochs=6, learning_rate=3e-2, batch_size=16, max_length=64),
        text=TextOptions(targets="digits"),
        overrides={"bottleneck": "64", "n": "4", "rank": "8"},
    )
    manifest = train(run).manifest
    bare = evaluate_texts(
        load_backbone(str(T5_MINI)), manifest.task, None, read_examples(data.validation, ("text",), "label_text")
    ).metrics
    assert bare["accuracy"] < 0.6  # four intents of about the same size
    assert manifest.training.metrics["accuracy"] > 0.9
    async with serve(backbone=str(T5_MINI)) as running:
        assert (await running.upload(run.output.read_bytes())).status_code == 201
        answer = (await running.predict("intents", [row["text"] for row in asked])).json()
        right = [one["label"] == row["label_text"] for one, row in zip(answer["predictions"], asked, strict=True)]
        assert sum(right) / len(right) == pytest.approx(manifest.training.metrics["accuracy"])
