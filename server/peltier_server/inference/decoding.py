"""Chooses from a request's parameters whether the answer to a task is scored or generated, and how."""

import secrets
from collections.abc import Iterator
from dataclasses import replace

from peltier_adapters.errors import first_of
from peltier_adapters.generation.search import Decoding
from peltier_adapters.spec.tasks import DecodingSpec, TaskSpec
from peltier_client.errors import InvalidInput
from peltier_client.protocol import Parameters

_OF_TEXTS = ("max_new_tokens", "num_beams", "temperature", "top_p", "seed")
# Below this temperature sampling nearly always takes the likeliest token, and a division by it would overflow.
_GREEDY_BELOW = 1e-3
_DEFAULTS = Parameters()


def choose_decoding(task: TaskSpec, parameters: Parameters, *, max_new_tokens: int) -> Decoding | None:
    """How the answer to `task` is decoded; None if labels are scored. `max_new_tokens` is the limit for every task.

    Raises `InvalidInput` that names every parameter that does not apply to the task.
    """
    spec = task.decoding
    if spec is None:
        _refuse(_strangers(parameters, "answer", *_OF_TEXTS, why="is for tasks on T5; this task has a head"))
        return None
    if (parameters.answer or spec.answer) == "score":
        if task.type == "text2text":
            _refuse(["answer 'score' is for tasks with labels; this task's answer may be any text"])
        why = "is for generated texts; this task's labels are scored (or set answer to 'generate')"
        _refuse(_strangers(parameters, *_OF_TEXTS, why=why))
        return None
    _refuse([*_text_problems(spec, parameters, max_new_tokens)])
    return _decoding(spec, parameters, max_new_tokens)


def check_stream(decoding: Decoding | None) -> None:
    """Raises `InvalidInput` if the answer cannot be streamed."""
    if decoding is None:
        raise InvalidInput("stream is for generated texts; this task's labels are scored")
    if decoding.num_beams > 1:
        raise InvalidInput(
            f"stream and {decoding.num_beams} beams exclude each other: beams change what they have written; "
            "set num_beams to 1"
        )


def draws(decoding: Decoding, parameters: Parameters, count: int) -> list[Decoding]:
    """`decoding` for each of `count` inputs. Without a seed, each input gets a random seed."""
    if parameters.seed is not None or decoding.temperature == 0:
        return [decoding] * count
    return [replace(decoding, seed=secrets.randbits(63)) for _ in range(count)]


def _decoding(spec: DecodingSpec, parameters: Parameters, max_new_tokens: int) -> Decoding:
    temperature = parameters.temperature or 0.0
    if temperature < _GREEDY_BELOW:
        temperature = 0.0
    beams = 1 if temperature else spec.num_beams
    return Decoding(
        max_new_tokens=parameters.max_new_tokens or min(spec.max_new_tokens, max_new_tokens),
        num_beams=parameters.num_beams or beams,
        temperature=temperature,
        top_p=parameters.top_p or 1.0,
        seed=parameters.seed or 0,
    )


def _text_problems(spec: DecodingSpec, parameters: Parameters, max_new_tokens: int) -> Iterator[str]:
    yield from _strangers(parameters, "top_k", "return_gates", why="is for scored labels; this answer is a text")
    limit, whose = min((spec.max_new_tokens, "task"), (max_new_tokens, "server"))
    if (parameters.max_new_tokens or 0) > limit:
        yield f"max_new_tokens is {parameters.max_new_tokens}: this {whose} allows at most {limit}"
    if not parameters.temperature:
        yield from _strangers(parameters, "top_p", "seed", why="is for sampling; set temperature above 0")
    elif (parameters.num_beams or 1) > 1:
        yield (
            f"num_beams {parameters.num_beams} and temperature {parameters.temperature:g} exclude each other: "
            "beams are searched without sampling"
        )


def _strangers(parameters: Parameters, *names: str, why: str) -> list[str]:
    given = parameters.model_fields_set.intersection(names)
    if not given:
        return []
    return [
        f"{name} {why}" for name in names if name in given and getattr(parameters, name) != getattr(_DEFAULTS, name)
    ]


def _refuse(reasons: list[str]) -> None:
    if reasons:
        raise InvalidInput(first_of(reasons[0], len(reasons)), reasons)
