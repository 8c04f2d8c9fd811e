"""The meaning of parameters for a task, and the refusal of parameters that do not apply."""

import pytest
from peltier_adapters.spec.decoding import Decoding
from peltier_adapters.spec.tasks import MAX_BEAMS as MAX_BEAMS_OF_TASKS
from peltier_adapters.spec.tasks import DecodingSpec, TaskSpec
from peltier_client.errors import InvalidInput
from peltier_client.protocol.predict import MAX_BEAMS, Parameters
from peltier_server.inference.prediction_request import (
    PredictionRequest,
    check_parameters,
    check_stream,
    choose_decoding,
    draws,
)

HEAD = TaskSpec(type="classification", labels=("a", "b"), inputs="single", max_length=64)


def t5_task(*, closed: bool = False, answer: str = "generate", num_beams: int = 1) -> TaskSpec:
    labels = ("a", "b") if closed else ()
    return TaskSpec(
        type="classification" if closed else "text2text",
        labels=labels,
        targets=labels,
        inputs="single",
        max_length=64,
        template="say: {text}",
        decoding=DecodingSpec(answer=answer, max_new_tokens=20, num_beams=num_beams),
    )


TEXT, SCORED, WRITTEN = t5_task(), t5_task(closed=True, answer="score"), t5_task(closed=True)


def choose(task: TaskSpec, **parameters: object) -> Decoding | None:
    return choose_decoding(task, Parameters(**parameters), max_new_tokens=100)


@pytest.mark.parametrize(
    ("task", "parameters", "decoding"),
    [
        (HEAD, {"top_k": 1, "return_gates": True}, None),
        (SCORED, {"top_k": 1}, None),
        (SCORED, {"answer": "generate"}, Decoding(20)),
        (WRITTEN, {}, Decoding(20)),
        (WRITTEN, {"answer": "score", "return_gates": True}, None),
        (TEXT, {"raw_scores": True}, Decoding(20)),
        (TEXT, {"max_new_tokens": 20, "num_beams": 4}, Decoding(20, num_beams=4)),
        (TEXT, {"temperature": 0.5, "top_p": 0.9, "seed": -3}, Decoding(20, temperature=0.5, top_p=0.9, seed=-3)),
        (TEXT, {"temperature": 0}, Decoding(20)),
        (TEXT, {"temperature": 1e-9, "seed": 1}, Decoding(20, seed=1)),
        (t5_task(num_beams=4), {}, Decoding(20, num_beams=4)),
        (t5_task(num_beams=4), {"temperature": 1}, Decoding(20, temperature=1.0)),
    ],
)
def test_what_is_chosen(task: TaskSpec, parameters: dict[str, object], decoding: Decoding | None) -> None:
    """The request's word comes before the task's, and greedy decoding before all."""
    assert choose(task, **parameters) == decoding


@pytest.mark.parametrize(
    ("task", "parameters", "sentence"),
    [
        (HEAD, {"max_new_tokens": 3}, "max_new_tokens is for tasks on T5; this task has a head"),
        (HEAD, {"answer": "score"}, "answer is for tasks on T5; this task has a head"),
        (SCORED, {"num_beams": 2}, "num_beams is for generated texts; this task's labels are scored"),
        (TEXT, {"answer": "score"}, "answer 'score' is for tasks with labels"),
        (TEXT, {"max_new_tokens": 21}, "max_new_tokens is 21: this task allows at most 20"),
        (TEXT, {"top_k": 1}, "top_k is for scored labels; this answer is a text"),
        (WRITTEN, {"return_gates": True}, "return_gates is for scored labels; this answer is a text"),
        (TEXT, {"num_beams": 2, "temperature": 0.5}, "num_beams 2 and temperature 0.5 exclude each other"),
        (TEXT, {"top_p": 0.5}, "top_p is for sampling; set temperature above 0"),
        (TEXT, {"seed": 0}, "seed is for sampling; set temperature above 0"),
    ],
)
def test_what_makes_no_sense(task: TaskSpec, parameters: dict[str, object], sentence: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        choose(task, **parameters)
    assert str(caught.value).startswith(sentence)


@pytest.mark.parametrize(
    ("kind", "parameters", "sentence"),
    [
        ("token-classification", {"raw_scores": True}, "raw_scores is not for tasks of type token-classification"),
        ("token-classification", {"top_k": 2}, "top_k is not for tasks of type token-classification"),
        ("token-classification", {"stride": 9}, "stride is 9; it must be at most 8, half of the task's 16"),
        ("span", {"top_k": 2}, "top_k is not for tasks of type span"),
        ("span", {"aggregation": "max"}, "aggregation is for tasks of type token-classification; this task's type is "),
        ("classification", {"aggregation": "max"}, "aggregation is for tasks of type token-classification; this task"),
        ("classification", {"stride": 4}, "stride is for tasks of type span or token-classification; this task's type"),
    ],
)
def test_parameters_of_other_tasks_are_refused(kind, parameters, sentence):
    labels = {"span": ("start", "end"), "token-classification": ("O", "B-a")}.get(kind, ("a", "b"))
    task = TaskSpec(type=kind, labels=labels, inputs="pair" if kind == "span" else "single", max_length=16)
    with pytest.raises(InvalidInput) as caught:
        check_parameters(task, Parameters(**parameters))
    assert str(caught.value).startswith(sentence)


def test_every_reason_is_told_at_once() -> None:
    """One round trip shows all that is wrong."""
    with pytest.raises(InvalidInput, match=r"^top_k .* \(and 2 more\)$") as caught:
        choose(TEXT, top_k=1, max_new_tokens=30, seed=1)
    assert [reason.split()[0] for reason in caught.value.details] == ["top_k", "max_new_tokens", "seed"]


def test_the_server_may_allow_less_than_the_task() -> None:
    """Whose limit it is stands in the message, and is kept without a word where nothing was asked."""
    assert choose_decoding(TEXT, Parameters(), max_new_tokens=5) == Decoding(5)
    with pytest.raises(InvalidInput, match="max_new_tokens is 6: this server allows at most 5"):
        choose_decoding(TEXT, Parameters(max_new_tokens=6), max_new_tokens=5)


def test_what_cannot_be_streamed() -> None:
    check_stream(Decoding(20))
    with pytest.raises(InvalidInput, match="stream is for generated texts"):
        check_stream(None)
    with pytest.raises(InvalidInput, match="stream and 4 beams exclude each other"):
        check_stream(Decoding(20, num_beams=4))


def test_draws_differ_unless_they_are_seeded() -> None:
    sampled = Decoding(20, temperature=1.0)
    assert len({one.seed for one in draws(sampled, Parameters(temperature=1), 5)}) == 5
    assert draws(Decoding(20, seed=7), Parameters(temperature=1, seed=7), 2) == [Decoding(20, seed=7)] * 2
    assert draws(Decoding(20), Parameters(), 2) == [Decoding(20)] * 2


def test_the_protocol_allows_the_beams_that_tasks_allow() -> None:
    assert MAX_BEAMS == MAX_BEAMS_OF_TASKS


def test_a_deadline_counts_from_the_arrival() -> None:
    """Also the time in which the request was read and waited for its turn is the caller's."""
    request = PredictionRequest(None, ("good",), Parameters(timeout_ms=1500), None, arrived_at=10.0)
    assert request.deadline == 11.5
