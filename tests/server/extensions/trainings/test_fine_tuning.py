"""OpenAI's own client trains adapters, over a socket. The worker is played."""

import json
from collections.abc import AsyncIterator

import openai
import pytest
from peltier_backbone.backbone import Backbone
from peltier_client import Client
from peltier_server.extensions.trainings.fine_tuning_messages import FineTuningRequest
from peltier_server.extensions.trainings.jobs import training_request

from tests.server.conftest import Listening
from tests.support.played_worker import NAME, PlayedWorker

CHATS = [
    {"messages": [{"role": "user", "content": text}, {"role": "assistant", "content": label}]}
    for text, label in (("a gem", "good"), ("a bore", "bad"))
]


@pytest.fixture
async def client(world: Listening, key: str) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{world.url}/v1", api_key=key, max_retries=0) as opened:
        yield opened
        async for job in opened.fine_tuning.jobs.list():
            if job.finished_at is None:
                await opened.fine_tuning.jobs.cancel(job.id)


@pytest.fixture
async def file_id(client: openai.AsyncOpenAI) -> str:
    """The uploaded chats."""
    data = "".join(f"{json.dumps(chat)}\n" for chat in CHATS).encode()
    return (await client.files.create(file=("Film reviews.jsonl", data), purpose="fine-tune")).id


async def test_chats_become_a_model(client, world, key, worker, file_id, artifact):
    """With the suffix as its name; the job has what was asked, and the events are those of the training."""
    job = await client.fine_tuning.jobs.create(
        model="bitfit",
        training_file=file_id,
        suffix="film",
        seed=7,
        metadata={"team": "reviews"},
        method={
            "type": "supervised",
            "supervised": {"hyperparameters": {"n_epochs": 3, "batch_size": "auto", "learning_rate_multiplier": 2}},
        },
    )
    assert (job.object, job.status, job.model, job.seed) == ("fine_tuning.job", "queued", "bitfit", 7)
    assert (job.training_file, job.metadata, job.fine_tuned_model) == (file_id, {"team": "reviews"}, None)
    assert job.hyperparameters.model_dump() == {"n_epochs": 3, "batch_size": "auto", "learning_rate_multiplier": 2.0}
    training = await worker.begin()
    assert training.request == {
        "task": "film",
        "task_type": "classification",
        "format": "chat",
        "file_id": file_id,
        "preset": "bitfit",
        "settings": {"epochs": 3},
        "learning_rate_multiplier": 2.0,
        "seed": 7,
        "metadata": {"team": "reviews"},
    }
    await worker.report(training, "Step 1 of 4.")
    assert (await client.fine_tuning.jobs.retrieve(job.id)).estimated_finish is not None
    await worker.leave(training, artifact)
    with Client(world.url, key) as ordinary:
        assert ordinary.trainings.wait(job.id).status == "succeeded"
        done = await client.fine_tuning.jobs.retrieve(job.id)
        assert (done.status, done.fine_tuned_model, done.error) == ("succeeded", "film@1", None)
        assert ordinary.predict("film@1", "a gem")[0].label is not None
    events = [event async for event in client.fine_tuning.jobs.list_events(job.id, limit=2)]
    assert events[-1].message == "The training is queued."
    (metrics,) = [event for event in events if event.type == "metrics"]
    assert (metrics.message, metrics.level) == ("Step 1 of 4.", "info")
    assert "film" in [model.id async for model in client.models.list()]


async def test_checkpoints_are_the_validated_steps(client, world, key, worker, file_id, artifact):
    """Newest first, in pages. At the end that which the worker kept, of two that are as good, has the name of the
    published version."""
    jobs = client.fine_tuning.jobs
    job = await jobs.create(model="bitfit", training_file=file_id, suffix="steps")
    assert (await jobs.checkpoints.list(job.id)).data == []
    training = await worker.begin()
    for step, value, best, kept in (
        (1, 0.5, 0.5, 1), (2, 0.7, 0.7, 2), (3, 0.7, 0.7, 3), (2, 0.7, 0.7, 2), (3, 0.7, 0.7, 3), (4, 0.6, 0.7, 3)
    ):  # fmt: skip
        await worker.report(training, "A step.", step, value, best, kept)
    running = [one async for one in jobs.checkpoints.list(job.id, limit=2)]
    assert [(one.step_number, one.fine_tuned_model_checkpoint) for one in running] == [
        (4, ""),
        (3, ""),
        (2, ""),
        (1, ""),
    ]
    assert running[0].metrics.model_dump(exclude_none=True) == {"step": 4.0, "train_loss": 0.5, "accuracy": 0.6}
    await worker.leave(training, artifact)
    with Client(world.url, key) as ordinary:
        assert ordinary.trainings.wait(job.id).adapter == "steps@1"
        done = [one async for one in jobs.checkpoints.list(job.id)]
        named = {one.step_number: one.fine_tuned_model_checkpoint for one in done}
        assert named == {4: "", 3: "steps@1", 2: "", 1: ""}
        assert ordinary.predict(named[3], "a gem")[0].label is not None
    assert {one.fine_tuning_job_id for one in done} == {job.id}


async def test_a_failed_job_has_its_reason(client: openai.AsyncOpenAI, worker: PlayedWorker, file_id: str) -> None:
    """As its error. Without a suffix the task has the name of the file."""
    job = await client.fine_tuning.jobs.create(model="bitfit", training_file=file_id)
    training = await worker.begin()
    assert training.task == "film-reviews"
    await worker.registry.trainings.settle(training.id, NAME, state="failed", reason="row 1 has no answer")
    failed = await client.fine_tuning.jobs.retrieve(job.id)
    assert failed.error is not None
    assert (failed.status, failed.error.message) == ("failed", "row 1 has no answer")
    newest = (await client.fine_tuning.jobs.list_events(job.id, limit=1)).data[0]
    assert newest.level == "error"


async def test_pause_resume_cancel_and_lists(client: openai.AsyncOpenAI, world: Listening, file_id: str) -> None:
    model = world.service.backbone.name
    first = await client.fine_tuning.jobs.create(model=model, training_file=file_id, suffix="one")
    second = await client.fine_tuning.jobs.create(model=model, training_file=file_id, suffix="two")
    assert first.model == model
    assert str((await client.fine_tuning.jobs.pause(first.id)).status) == "paused"
    assert (await client.fine_tuning.jobs.resume(first.id)).status == "queued"
    page = await client.fine_tuning.jobs.list(limit=1)
    assert ([job.id for job in page.data], page.has_next_page()) == ([second.id], True)
    assert [job.id async for job in client.fine_tuning.jobs.list(limit=1)][:2] == [second.id, first.id]
    cancelled = await client.fine_tuning.jobs.cancel(first.id)
    assert (cancelled.status, cancelled.finished_at is not None) == ("cancelled", True)
    with pytest.raises(openai.ConflictError):
        await client.fine_tuning.jobs.pause(first.id)


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"model": "gpt-4o"}, "model 'gpt-4o' is neither this server's backbone"),
        ({"suffix": "My model"}, "suffix 'My model' is not allowed: it becomes the task's name"),
        ({"method": {"type": "dpo"}}, "method.type is 'dpo': input should be 'supervised'"),
        ({"hyperparameters": {"n_epochs": 0}}, "hyperparameters.n_epochs"),
    ],
)
async def test_what_is_refused(client, file_id, asked, sentence):
    with pytest.raises(openai.BadRequestError, match=sentence):
        await client.fine_tuning.jobs.create(**{"model": "bitfit", "training_file": file_id, **asked})  # type: ignore[arg-type]


async def test_what_is_not_there(client: openai.AsyncOpenAI) -> None:
    """A file or a job of another tenant does not exist either."""
    with pytest.raises(openai.NotFoundError):
        await client.fine_tuning.jobs.create(model="bitfit", training_file="file_x")
    for call in (client.fine_tuning.jobs.retrieve, client.fine_tuning.jobs.cancel):
        with pytest.raises(openai.NotFoundError):
            await call("trn_x")
    with pytest.raises(openai.BadRequestError, match="cannot be filtered"):
        await client.fine_tuning.jobs.list(metadata={"team": "reviews"})


def test_on_a_t5_the_answers_are_texts(t5: Backbone) -> None:
    """A generating backbone learns the assistant's words."""
    body = FineTuningRequest(model="lora", training_file="file_1", suffix="film")
    assert training_request(body, "film.jsonl", t5).task_type == "text2text"


@pytest.mark.parametrize(
    ("name", "task"), [("Film.jsonl", "film"), ("_x y.csv", "x-y"), ("….jsonl", "job"), (f"{'a' * 99}.jsonl", "a" * 63)]
)
def test_a_file_names_the_task(bert: Backbone, name: str, task: str) -> None:
    body = FineTuningRequest(model="lora", training_file="file_1")
    assert training_request(body, name, bert).task == task
