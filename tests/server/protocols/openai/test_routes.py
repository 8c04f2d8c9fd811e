"""OpenAI's routes, called by OpenAI's client over a real socket."""

import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import openai
import pytest
from peltier_adapters.generation import Generator
from peltier_backbone.backbone import Backbone
from peltier_server.queue.ticket import Ticket

from tests.server.conftest import Listen, Listening, Running, Serve, take_steps
from tests.server.routes.test_texts import longer, with_decoding

MakeArtifact = Callable[..., bytes]


@pytest.fixture(scope="module")
def artifacts(t5: Backbone, make_artifact: MakeArtifact) -> list[bytes]:
    return [
        make_artifact(t5, "compacter", task_type="text2text", name="say"),
        longer(make_artifact(t5, "bitfit", task_type="text2text", name="long", seed=3), t5, 200),
        with_decoding(
            make_artifact(t5, "bitfit", task_type="text2text", name="greedy", seed=3), t5, completion_temperature=0.0
        ),
        make_artifact(t5, "lora", name="film"),
        make_artifact(t5, "lora", task_type="text2text", name="pairs", inputs="pair"),
    ]


@pytest.fixture(scope="module")
def listening(listen: Listen, t5_directory: Path, artifacts: list[bytes]) -> Iterator[Listening]:
    with listen(backbone=str(t5_directory)) as started:
        for data in artifacts:
            started.upload(data)
        yield started


@pytest.fixture
def client(listening: Listening) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{listening.url}/v1", api_key="none", max_retries=0) as opened:
        yield opened


def until_idle(listening: Listening) -> None:
    wait_until(lambda: not listening.service._supervisor._worker.decode_rows)


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_completion_is_the_prediction(client: openai.OpenAI, listening: Listening) -> None:
    native = listening.post("/v1/tasks/say/predict", inputs="a good film").json()
    done = client.completions.create(model="say", prompt="a good film", temperature=0)
    assert done.object == "text_completion"
    assert done.id.startswith("cmpl-")
    assert (done.model, done.created > 0) == ("say", True)
    assert done.choices[0].text == native["predictions"][0]["text"]
    assert done.choices[0].finish_reason == native["predictions"][0]["finish_reason"]
    assert done.usage.prompt_tokens == native["usage"]["tokens"]
    assert done.usage.completion_tokens == native["usage"]["completion_tokens"]
    assert done.usage.total_tokens == done.usage.prompt_tokens + done.usage.completion_tokens


def test_many_prompts_have_many_choices(client: openai.OpenAI) -> None:
    prompts = ["a good film", "bad", "the plot"]
    done = client.completions.create(model="say@1", prompt=prompts, temperature=0, max_tokens=6)
    alone = [client.completions.create(model="say", prompt=one, temperature=0, max_tokens=6) for one in prompts]
    assert [choice.index for choice in done.choices] == [0, 1, 2]
    assert [choice.text for choice in done.choices] == [one.choices[0].text for one in alone]
    assert done.usage.completion_tokens == sum(one.usage.completion_tokens for one in alone)


def test_the_default_is_to_sample(client: openai.OpenAI) -> None:
    drawn = {client.completions.create(model="long", prompt="bad").choices[0].text for _ in range(3)}
    assert len(drawn) == 3
    seeded = [client.completions.create(model="long", prompt="bad", seed=7, top_p=0.9).choices[0].text for _ in "ab"]
    assert seeded[0] == seeded[1]
    greedy = [client.completions.create(model="say", prompt="bad", temperature=0, seed=n) for n in (1, 2)]
    assert greedy[0].choices[0].text == greedy[1].choices[0].text


def test_a_task_may_have_another_default(client: openai.OpenAI, listening: Listening) -> None:
    """A greedy one is what it is on the native route, whole and streamed; a caller's own temperature goes before it."""
    native = listening.predictions("greedy", "bad")[0]["text"]
    assert client.completions.create(model="greedy", prompt="bad", top_p=0.5).choices[0].text == native
    chunks = client.completions.create(model="greedy", prompt="bad", stream=True)
    assert "".join(chunk.choices[0].text for chunk in chunks) == native
    asked = {"model": "greedy", "prompt": "bad", "temperature": 2}
    drawn = {client.completions.create(**asked, seed=seed).choices[0].text for seed in range(3)}
    assert len(drawn) == 3


def test_a_stream_is_the_text_in_chunks(client: openai.OpenAI) -> None:
    """The last has the reason to end; usage comes only to those who ask."""
    whole = client.completions.create(model="long", prompt="bad", temperature=0, max_tokens=30)
    asked = {"model": "long", "prompt": "bad", "temperature": 0, "max_tokens": 30, "stream": True}
    chunks = list(client.completions.create(**asked, stream_options={"include_usage": True}))
    *pieces, last, usage = chunks
    assert "".join(chunk.choices[0].text for chunk in chunks[:-1]) == whole.choices[0].text
    assert {chunk.choices[0].finish_reason for chunk in pieces} == {None}
    assert last.choices[0].finish_reason == whole.choices[0].finish_reason
    assert (usage.choices, usage.usage) == ([], whole.usage)
    assert len({chunk.id for chunk in chunks}) == 1
    assert all(chunk.usage is None for chunk in client.completions.create(**asked))


def test_stops_end_a_text(client: openai.OpenAI, listening: Listening) -> None:
    whole = client.completions.create(model="long", prompt="bad", temperature=0, max_tokens=200)
    text = whole.choices[0].text
    stop = text[12:15]
    asked = {"model": "long", "prompt": "bad", "temperature": 0, "stop": ["qqqq", stop]}
    cut = client.completions.create(**asked)
    assert cut.choices[0].text == text[: text.index(stop)]
    assert cut.choices[0].finish_reason == "stop"
    assert cut.usage.completion_tokens < whole.usage.completion_tokens
    *chunks, last = client.completions.create(**asked, stream=True)
    assert "".join(chunk.choices[0].text for chunk in chunks) == cut.choices[0].text
    assert last.choices[0].finish_reason == "stop"
    both = client.completions.create(**{**asked, "prompt": ["bad", "bad"], "stop": "qqqq"}, max_tokens=5)
    assert [choice.finish_reason for choice in both.choices] == ["length", "length"]
    until_idle(listening)


def test_a_completion_has_a_priority(client, listening, monkeypatch):
    batcher, priorities = listening.service.batcher, []
    put = batcher.put

    def see(tickets: Sequence[Ticket]) -> None:
        priorities.extend(ticket.priority for ticket in tickets)
        put(tickets)

    monkeypatch.setattr(batcher, "put", see)
    client.completions.create(model="say", prompt=["a film", "a cat"], extra_body={"priority": -4})
    assert priorities == [-4, -4]


def test_closed_tasks_are_written(client: openai.OpenAI) -> None:
    assert (
        client.completions.create(model="film", prompt="bad", temperature=0, max_tokens=4).usage.completion_tokens <= 4
    )


@pytest.mark.parametrize(
    ("asked", "param", "sentence"),
    [
        ({"n": 2}, "n", "n is 2: only 1 is served"),
        ({"best_of": 3}, "best_of", "best_of is 3: only 1 is served"),
        ({"echo": True}, "echo", "echo is True: only False is served"),
        ({"logprobs": 2}, "logprobs", "logprobs is 2: it is not served"),
        ({"suffix": "x"}, "suffix", "suffix is 'x': only '' is served"),
        ({"presence_penalty": 1}, "presence_penalty", "only 0 is served"),
        ({"max_tokens": 13}, "max_tokens", "max_tokens is 13: say allows at most 12"),
        ({"max_tokens": 0}, "max_tokens", "max_tokens is 0"),
        ({"temperature": 3}, "temperature", "temperature is 3"),
        ({"stop": ["a"] * 5}, "stop", "stop: it must be a text or a list of at most 4 texts"),
        ({"prompt": [[1, 2]]}, "prompt", "prompt"),
        ({"prompt": ""}, None, "an input text is empty"),
        ({"prompt": "good " * 80}, None, "the input has 85 tokens; this task takes at most 64"),
        ({"prompt": "good " * 80, "stream": True}, None, "the input has 85 tokens; this task takes at most 64"),
        ({"prompt": "good " * 80, "stop": "a"}, None, "the input has 85 tokens; this task takes at most 64"),
        ({"prompt": ["a", "good " * 80]}, None, "input 1: the input has 85 tokens; this task takes at most 64"),
        ({"prompt": ["a", "good " * 80], "stop": "a"}, None, "input 1: the input has 85 tokens; this task"),
        ({"prompt": ["a", "b"], "stream": True}, "prompt", "prompt has 2 texts; stream is for one"),
        ({"stream_options": {"include_usage": True}}, "stream_options", "it is for streams"),
        ({"extra_body": {"priority": 11}}, "priority", "priority is 11"),
        ({"extra_body": {"nonsense": 1}}, None, "nonsense is unknown here"),
        ({"model": "pairs"}, None, "this task takes a pair of texts"),
        ({"model": "Bad Name"}, None, "task 'Bad Name' is not allowed"),
    ],
)
def test_what_is_not_served_is_refused(client, asked, param, sentence):
    """400 in OpenAI's shape, which its client raises as its own error."""
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(**{"model": "say", "prompt": "a film", **asked})
    assert sentence in caught.value.body["message"]
    assert (caught.value.param, caught.value.code) == (param, "invalid_input")
    assert caught.value.type == "invalid_request_error"


def test_a_model_that_is_not_there(client: openai.OpenAI) -> None:
    for ask in (lambda: client.completions.create(model="nope", prompt="a"), lambda: client.models.retrieve("say@9")):
        with pytest.raises(openai.NotFoundError) as caught:
            ask()
        assert (caught.value.code, caught.value.param) == ("model_not_found", "model")


def test_models_are_all_adapters(client: openai.OpenAI) -> None:
    """Closed-label ones too; a version is a model of its own to those who name it."""
    models = client.models.list().data
    assert [model.id for model in models] == ["film", "greedy", "long", "pairs", "say"]
    assert {(model.object, model.owned_by) for model in models} == {("model", "default")}
    assert client.models.retrieve("say@1").id == "say@1"


def test_an_error_in_the_middle_of_a_stream_is_raised(client: openai.OpenAI, monkeypatch: pytest.MonkeyPatch) -> None:
    step = Generator.step

    def failing(self: Generator) -> object:
        if any(len(draft.ids) > 4 for draft in self.live):
            raise RuntimeError("the kernel is gone")
        return step(self)

    monkeypatch.setattr(Generator, "step", failing)
    stream = client.completions.create(model="long", prompt="bad", temperature=0, stream=True)
    heard: list[str] = []
    with pytest.raises(openai.APIError, match="the model failed on this input"):
        heard.extend(chunk.choices[0].text for chunk in stream)


def test_a_caller_who_hangs_up_frees_the_slots(client, listening, monkeypatch):
    turns, lifecycle = take_steps(monkeypatch), listening.app.state.lifecycle
    turns.release(20)
    with client.completions.create(model="long", prompt="bad", temperature=0, stream=True) as stream:
        next(iter(stream))
    wait_until(lambda: lifecycle.idle)
    turns.release(20)  # together fewer than the tokens of the text
    until_idle(listening)


def test_a_wrong_key_is_openais_error(listen: Listen, t5_directory: Path) -> None:
    with (
        listen(backbone=str(t5_directory), admin_key="plt_of_the_operator") as listening,
        openai.OpenAI(base_url=f"{listening.url}/v1", api_key="plt_wrong", max_retries=0) as client,
        pytest.raises(openai.AuthenticationError, match="is not one of this server's"),
    ):
        client.models.list()


@pytest.fixture
async def encoder(serve: Serve, bert: Backbone, make_artifact: MakeArtifact) -> AsyncIterator[Running]:
    async with serve() as running:
        await running.upload(make_artifact(bert, "lora", name="film"))
        yield running


async def test_an_encoder_lists_models_and_completes_nothing(encoder: Running) -> None:
    models = (await encoder.client.get("/v1/models")).json()
    assert [(model["id"], model["object"]) for model in models["data"]] == [("_backbone", "model"), ("film", "model")]
    for stream in (False, True):
        body = {"model": "film", "prompt": "bad", "stream": stream}
        answer = await encoder.client.post("/v1/completions", json=body)
        assert answer.status_code == 400
        assert "task 'film' does not generate texts" in answer.json()["error"]["message"]


async def test_models_come_in_pages(encoder: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("peltier_server.protocols.openai.routes._PAGE", 3)
    catalog = encoder.service.catalog
    names = [f"m{number:02}" for number in range(10)]
    for name in names:
        catalog.replace("default", name, replace(catalog.get("default", "film"), name=name))
    models = (await encoder.client.get("/v1/models")).json()["data"]
    assert [model["id"] for model in models] == ["_backbone", "film", *names]
    page = (await encoder.client.get("/v1/models", params={"limit": 4, "after": "m01"})).json()
    assert ([model["id"] for model in page["data"]], page["has_more"]) == (names[2:6], True)
    last = (await encoder.client.get("/v1/models", params={"limit": 4, "after": "m05"})).json()
    assert ([model["id"] for model in last["data"]], last["has_more"]) == (names[6:], False)
