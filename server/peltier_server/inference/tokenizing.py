"""Tokenises the inputs of a request: short inputs and known words at once, others in pieces, in turns with other
tenants' work."""

import asyncio
import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Self

from peltier_adapters.errors import InputError, first_of
from peltier_adapters.inputs import LongTexts, TooManyWindows, at_words, encode_input, encode_known, encode_windows
from peltier_adapters.spec.tasks import TaskSpec
from peltier_backbone.text.packing import Encoded
from peltier_backbone.text.token_places import words_at_spaces
from peltier_client.errors import InvalidInput
from peltier_client.protocol.predict import Input, Parameters

from peltier_server.fairness.preparation import MAX_PIECE_COST, Preparation
from peltier_server.inference.answer_size import count_windows

if TYPE_CHECKING:
    from peltier_backbone.backbone import Backbone

# Below these limits, handing the work to a thread costs more than the work.
_CHARS_ON_THE_LOOP = 1024
_INPUTS_ON_THE_LOOP = 16
# The cost of an input without its text, in characters.
_COST_OF_AN_INPUT = 32


# The rows of one input: several if a long text is read in windows.
EncodedInput = tuple[Encoded, ...]


class Reading(NamedTuple):
    """The backbone and the task that inputs are tokenised for, the parameters that say how, and how many windows the
    inputs may have."""

    backbone: "Backbone"
    task: TaskSpec
    parameters: Parameters
    max_windows: int

    @property
    def stride(self) -> int | None:
        """The tokens that neighbouring windows share; None if there are no windows."""
        asked = self.parameters.stride
        return self.task.stride if asked is None else asked

    def after(self, found: Sequence[EncodedInput | InputError]) -> "Reading":
        """The same for the inputs that follow those that were `found`."""
        return self._replace(max_windows=self.max_windows - count_windows(found))


def num_chars(value: Input) -> int:
    """The number of characters in all texts of an input."""
    return len(value) if isinstance(value, str) else sum(map(len, value))


class InputReader:
    """Reads the one input of a request of `tenant` for several tasks, once for all that read it alike. The readings end
    with the block that enters it.

    Tasks start in slices, but none goes on with its rows before `go_on`. So all of them enter the queue together, and
    their rows, which share work, share a batch if it has room for them.
    """

    def __init__(self, preparation: Preparation, tenant: str) -> None:
        self._preparation, self._tenant = preparation, tenant
        self._known: dict[tuple[TaskSpec, tuple[Input, ...]], asyncio.Task[list[EncodedInput | InputError]]] = {}
        self._goes_on = asyncio.Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for reading in self._known.values():
            reading.cancel()

    def go_on(self) -> None:
        """Lets tasks go on, those too that start later."""
        self._goes_on.set()

    async def read(self, reading: Reading, inputs: Sequence[Input]) -> list[EncodedInput | InputError]:
        """The rows of the input, or what is wrong with it, after `go_on`. The parameters are always the same, and so
        are `inputs`, but for a prompt before them."""
        # Labels and decoding change nothing of how a text is read.
        task = reading.task.model_copy(update={"labels": (), "targets": (), "decoding": None})
        key = (task, tuple(inputs))
        if key not in self._known:
            known = asyncio.create_task(_encode_all(self._preparation, reading, self._tenant, inputs))
            # Its error is known to those that still wait for it; asyncio would log one that nobody waits for.
            known.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
            self._known[key] = known
        # A task that ends early, for example at its deadline, does not end the others.
        found = await asyncio.shield(self._known[key])
        await self._goes_on.wait()
        return found


async def encode_inputs(
    preparation: Preparation, reading: Reading, tenant: str, inputs: Sequence[Input], reader: InputReader | None = None
) -> list[EncodedInput]:
    """The rows of each input, in order. Raises `InvalidInput` with the reason for each invalid input, and
    `TooManyWindows` as soon as they are too many; then each input costs the tenant one token. A request with one input
    for several tasks has a `reader`."""
    try:
        if reader is None:
            found = await _encode_all(preparation, reading, tenant, inputs)
        else:
            found = await reader.read(reading, inputs)
    except TooManyWindows:
        await preparation.enforcer.charge(tenant, len(inputs))
        raise
    encoded = [one for one in found if not isinstance(one, InputError)]
    if len(encoded) < len(found):
        await preparation.enforcer.charge(tenant, len(inputs))
        raise _refusal(found)
    return encoded


async def _encode_all(
    preparation: Preparation, reading: Reading, tenant: str, inputs: Sequence[Input]
) -> list[EncodedInput | InputError]:
    chars = sum(map(num_chars, inputs))
    if len(inputs) <= _INPUTS_ON_THE_LOOP and chars <= _CHARS_ON_THE_LOOP:
        return _encode(reading, preparation.limits.max_text_chars, inputs)
    known: Sequence[EncodedInput | None] = [None] * len(inputs)
    if chars + len(inputs) * _COST_OF_AN_INPUT <= MAX_PIECE_COST:
        known = _find(reading, preparation.limits.max_text_chars, inputs)
    unknown = [value for value, one in zip(inputs, known, strict=True) if one is None]
    rest = iter(await _read(preparation, reading, tenant, unknown) if unknown else ())
    return [next(rest) if one is None else one for one in known]


async def _read(
    preparation: Preparation, reading: Reading, tenant: str, inputs: Sequence[Input]
) -> list[EncodedInput | InputError]:
    """Tokenises inputs in threads."""
    found, max_text_chars = list[EncodedInput | InputError](), preparation.limits.max_text_chars
    for piece, cost in split_inputs(inputs, max_text_chars):
        some = await preparation.run(tenant, cost, partial(_encode, reading, max_text_chars, piece))
        reading = reading.after(some)
        found += some
    return found


def _find(reading: Reading, max_text_chars: int, inputs: Sequence[Input]) -> list[EncodedInput | None]:
    """The rows of texts of known words, which the event loop finds before a thread could start."""
    backbone, task, *_ = reading
    found = (encode_known(backbone, task, value, max_chars=max_text_chars) for value in inputs)
    return [None if one is None else (one,) for one in found]


def split_costs(costs: Sequence[int], max_cost: int, max_count: float = math.inf) -> Iterator[tuple[range, int]]:
    """Ranges of neighbouring items with the costs of all of them. A range costs at most `max_cost` or has one item."""
    start, total = 0, 0
    for number, cost in enumerate(costs):
        if number - start == max_count or (number > start and total + cost > max_cost):
            yield range(start, number), total
            start, total = number, 0
        total += cost
    yield range(start, len(costs)), total


def split_inputs(inputs: Sequence[Input], max_text_chars: int) -> Iterator[tuple[Sequence[Input], int]]:
    """Pieces of neighbouring inputs with their costs. A piece costs at most `MAX_PIECE_COST` characters or has one
    input."""
    texts = [(value,) if isinstance(value, str) else value for value in inputs]
    costs = [_COST_OF_AN_INPUT + sum(min(len(text), max_text_chars) for text in own) for own in texts]
    return ((inputs[piece.start : piece.stop], cost) for piece, cost in split_costs(costs, MAX_PIECE_COST))


def _encode(reading: Reading, max_text_chars: int, inputs: Sequence[Input]) -> list[EncodedInput | InputError]:
    found = list[EncodedInput | InputError]()
    for value in inputs:
        own = _encode_one(reading, max_text_chars, value)
        reading = reading.after([own])
        found.append(own)
    return found


def _encode_one(reading: Reading, max_text_chars: int, value: Input) -> EncodedInput | InputError:
    backbone, task, parameters, _ = reading
    try:
        if task.reads_tokens:
            return _encode_windows(reading, max_text_chars, value)
        return (encode_input(backbone, task, value, truncate=parameters.truncate, max_chars=max_text_chars),)
    except InputError as error:
        return error


def _encode_windows(reading: Reading, max_text_chars: int, value: Input) -> EncodedInput:
    how = LongTexts(reading.parameters.truncate, reading.stride, max_text_chars, reading.max_windows)
    rows = encode_windows(reading.backbone, reading.task, value, how)
    if reading.parameters.words == "spaces" and isinstance(value, str):
        return at_words(rows, words_at_spaces(value))
    return rows


def _refusal(found: Sequence[EncodedInput | InputError]) -> InvalidInput:
    reasons = [
        f"input {number}: {one}" if len(found) > 1 else str(one)
        for number, one in enumerate(found)
        if isinstance(one, InputError)
    ]
    return InvalidInput(first_of(reasons[0], len(reasons), "input"), reasons)
