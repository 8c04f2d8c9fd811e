"""OpenAI's own client trains models with a real worker, and asks them."""

import json
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import openai
import pytest
from peltier_training.service.command import worker

from tests.server.conftest import Listen, Listening
from tests.training.service.conftest import praise

pytestmark = pytest.mark.slow
_COMMAND = f"import typer; from {worker.__module__} import {worker.__name__}; typer.run({worker.__name__})"


def train(listening: Listening, rows: Iterable[Mapping[str, Any]], **options: Any) -> str | None:
    """The name of the model that a job with these rows gives, once a worker has trained it and the server published
    it."""
    settings = listening.service.settings
    data = "".join(f"{json.dumps(row)}\n" for row in rows).encode()
    numbers: Any = {"n_epochs": 1, "batch_size": 16}
    with openai.OpenAI(base_url=f"{listening.url}/v1", api_key="none", max_retries=0) as client:
        file = client.files.create(file=("film.jsonl", data), purpose="fine-tune")
        job = client.fine_tuning.jobs.create(
            model="lora", training_file=file.id, seed=0, hyperparameters=numbers, **options
        )
        place = ("--store", str(Path(str(settings.store.blobs)).parent), "--backbone", listening.service.backbone.name)
        own = ("--device", "cpu", "--threads", "1", "--once")
        subprocess.run([sys.executable, "-c", _COMMAND, *place, *own], check=True, capture_output=True)
        while job.finished_at is None:
            job = client.fine_tuning.jobs.retrieve(job.id)
    assert job.error is None or job.error.message is None
    return job.fine_tuned_model


def test_chats_train_a_t5_that_completes(listen: Listen, t5_directory: Path) -> None:
    chats = [
        {"messages": [{"role": "user", "content": row["text"]}, {"role": "assistant", "content": row["label"]}]}
        for row in praise(40)
    ]
    with listen(backbone=t5_directory) as listening:
        assert train(listening, chats, suffix="film") == "film@1"
        with openai.OpenAI(base_url=f"{listening.url}/v1", api_key="none", max_retries=0) as client:
            answer = client.completions.create(model="film", prompt="a very good film", max_tokens=4)
            assert answer.model == "film"
            assert answer.usage is not None
            assert answer.usage.completion_tokens > 0


def test_pairs_train_a_model_that_embeds(listen: Listen) -> None:
    """What OpenAI's jobs lack is in `extra_body`."""
    rows = [
        {"first": row["text"], "second": f"so {row['text']}", "score": 0.5 + i % 2 / 2}
        for i, row in enumerate(praise(40))
    ]
    extra = {"task_type": "embedding", "text_columns": ["first", "second"], "label_column": "score"}
    with listen(backbone="minilm") as listening:
        assert train(listening, rows, suffix="near", extra_body=extra) == "near@1"
        with openai.OpenAI(base_url=f"{listening.url}/v1", api_key="none", max_retries=0) as client:
            vectors = client.embeddings.create(model="near", input=["a good film", "a bad film"]).data
            assert len(vectors) == 2
            assert vectors[0].embedding != vectors[1].embedding
