"""What a prediction is asked for: a version, inputs and parameters, and whether the parameters fit the task."""

import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from peltier_adapters.errors import first_of
from peltier_adapters.spec.decoding import Decoding
from peltier_adapters.spec.tasks import EMBEDDING_TYPES, TOKEN_TYPES, DecodingSpec, TaskSpec, TaskType
from peltier_adapters.spec.text_rules import is_visible
from peltier_client.errors import InvalidInput
from peltier_client.protocol.names import TaskReference
from peltier_client.protocol.predict import Input, Parameters

from peltier_server.catalog.published import Entry
from peltier_server.context import RequestContext
from peltier_server.inference.answer_size import AnswerBudget
from peltier_server.inference.text_stream import StreamedText
from peltier_server.inference.tokenizing import InputReader

if TYPE_CHECKING:
    from peltier_adapters.artifact.artifact import Artifact

_DEFAULTS = Parameters()
_TOKENS: frozenset[TaskType] = frozenset({"token-classification"})
_DENSE: frozenset[TaskType] = frozenset({"embedding"})
_VECTORS: frozenset[TaskType] = frozenset({"embedding", "multi-vector-embedding"})
# The types of tasks that read a parameter, and those that do not.
_ONLY_FOR: Mapping[str, frozenset[TaskType]] = {
    "aggregation": _TOKENS,
    "words": _TOKENS,
    "stride": TOKEN_TYPES,
    "dimensions": _DENSE,
    "precision": _DENSE,
    "prompt_name": EMBEDDING_TYPES,
}
_NOT_FOR: Mapping[str, frozenset[TaskType]] = {"top_k": TOKEN_TYPES | _VECTORS, "raw_scores": _TOKENS}
# The parameters of generated texts.
_OF_TEXTS = ("max_new_tokens", "num_beams", "temperature", "top_p", "seed")
# Below this temperature sampling nearly always takes the likeliest token, and a division by it would overflow.
_GREEDY_BELOW = 1e-3
_EXAMPLE = "an example"
# By the number of a task's texts.
_EXAMPLES: Mapping[int, Input] = {1: _EXAMPLE, 2: (_EXAMPLE,) * 2, 3: (_EXAMPLE,) * 3}


class ResolvedTask(NamedTuple):
    """The version that a reference named when its request arrived. The request keeps this version even if the reference
    names another one later. The backbone's own task brings its `artifact`, because no store has it."""

    reference: TaskReference
    context: RequestContext
    entry: Entry
    artifact: "Artifact | None" = None


@dataclass(eq=False, slots=True)
class PredictionRequest:
    """The inputs and parameters for one version.

    `arrived_at` is in seconds of `time.monotonic`, and `stream` gets the text while it is generated. The `reader` also
    serves other tasks of the same HTTP request. `is_counted` says that the caller has counted the inputs as in
    progress. `first_row` is the place of the first input in the HTTP request. An answer for nobody is not charged: it
    counts for no quota. If it `ranks`, the last input is a query, and the answer has a score for each of the others.
    """

    target: ResolvedTask
    inputs: Sequence[Input]
    parameters: Parameters
    budget: AnswerBudget
    arrived_at: float = field(default_factory=time.monotonic)
    stream: StreamedText | None = None
    reader: InputReader | None = None
    is_counted: bool = False
    first_row: int = 0
    is_charged: bool = True
    ranks: bool = False

    @property
    def tenant(self) -> str:
        """The tenant that is charged."""
        return self.target.context.tenant

    @property
    def deadline(self) -> float | None:
        """In seconds of `time.monotonic`, if there is one."""
        timeout_ms = self.parameters.timeout_ms
        return None if timeout_ms is None else self.arrived_at + timeout_ms / 1000

    def top_k(self, task: TaskSpec, default: int) -> int | None:
        """The number of scores in the answer to `task`; None for the scores of all labels."""
        asked = self.parameters.top_k
        if task.reads_tokens or asked is not None or len(task.labels) <= default:
            return asked
        return default


def check_parameters(task: TaskSpec, parameters: Parameters) -> None:
    """Raises `InvalidInput` that names every parameter that does not apply to the task."""
    if parameters.model_fields_set and (reasons := list(_problems(task, parameters))):
        raise InvalidInput(first_of(reasons[0], len(reasons)), reasons)


def _problems(task: TaskSpec, parameters: Parameters) -> Iterator[str]:
    for name in parameters.model_fields_set:
        if getattr(parameters, name) == getattr(_DEFAULTS, name):
            continue
        if name in _ONLY_FOR and task.type not in _ONLY_FOR[name]:
            types = " or ".join(sorted(_ONLY_FOR[name]))
            yield f"{name} is for tasks of type {types}; this task's type is {task.type}"
        if task.type in _NOT_FOR.get(name, ()):
            yield f"{name} is not for tasks of type {task.type}"
    steps = parameters.precision in ("int8", "uint8")
    if steps and task.type == "embedding" and (parameters.raw_scores or not task.normalized):
        yield f"{parameters.precision} is for embeddings of unit length, and these may have any length"
    if parameters.stride is not None and task.reads_tokens and (problem := task.stride_problem(parameters.stride)):
        yield problem


def add_prompt(prompts: Mapping[str, str], name: str | None, inputs: Sequence[Input]) -> Sequence[Input]:
    """The texts of an embedding task after the prompt `name` of the backbone's checkpoint; a text of which nothing is
    visible stays so, and is refused.
    Raises `InvalidInput` if there is no such prompt."""
    if name is None:
        return inputs
    if name not in prompts:
        known = f"it is one of {', '.join(sorted(prompts))}" if prompts else "this server's backbone has no prompts"
        raise InvalidInput(f"prompt_name {name!r} is unknown; {known}")
    return [prompts[name] + one if isinstance(one, str) and is_visible(one) else one for one in inputs]


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


def example_of(task: TaskSpec, parameters: Parameters) -> tuple[Sequence[Input], Parameters]:
    """A plain input of a task, and parameters with which it is computed as those say, but for one new token at most."""
    given = Parameters(answer=parameters.answer, priority=parameters.priority)
    if choose_decoding(task, given, max_new_tokens=1) is not None:
        given = given.model_copy(update={"max_new_tokens": 1})
    return [_EXAMPLES[task.num_texts]], given


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
