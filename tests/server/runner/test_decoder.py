"""Continuous decoding: every text is the same as alone, while others join, leave or fail."""

import asyncio
import itertools
import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from peltier_adapters.artifact.artifact import read_artifact
from peltier_adapters.batch.choice import choose_runner
from peltier_adapters.batch.row import Row
from peltier_adapters.generation import Draft, Generator, create_draft, generate
from peltier_adapters.residency.bank import Banks, Resident
from peltier_adapters.spec.decoding import Decoding
from peltier_backbone.backbone import Backbone
from peltier_client.errors import DeadlinePassed, InferenceFailed, Unavailable
from peltier_server.metrics.metrics import Metrics
from peltier_server.queue.prices import price_tokens
from peltier_server.queue.ticket import NewTokens, Results, RowsOutcome, Ticket
from peltier_server.runner import decoder as decoder_module
from peltier_server.runner.decoder import StepStats, TextDecoder
from peltier_server.runner.isolation import ComputeGuard
from torch.overrides import TorchFunctionMode

WORDS = ["a", "good", "bad", "film", "the", "plot", "was", "not", "very", "and", "actor", "is", "dull"]
NUM_KINDS = 24


@dataclass(eq=False)
class Caller:
    """A caller who waits for a text, and the tokens received so far."""

    ticket: Ticket
    number: int
    progressed: list[int] = field(default_factory=list)

    @property
    def result(self) -> RowsOutcome[Draft] | BaseException:
        future = self.ticket.future
        return future.exception() or future.result()


@pytest.fixture(scope="module")
def crowd(t5: Backbone, make_artifact: Callable[..., bytes]) -> list[Resident]:
    """Adapters of several methods."""
    banks = Banks(t5)
    presets = ("compacter", "unipelt-apl", "prefix", "bitfit")
    return [banks.add(read_artifact(make_artifact(t5, preset, task_type="text2text"), t5)) for preset in presets]


class Theatre:
    """A decoder, its callers, and what each text is alone."""

    def __init__(self, backbone: Backbone, crowd: Sequence[Resident]) -> None:
        self.backbone, self._crowd = backbone, crowd
        self.decoder = TextDecoder(backbone, choose_runner(backbone), Metrics(), ComputeGuard())
        self.callers: list[Caller] = []
        self._alone: dict[int, list[int]] = {}

    def again(self) -> "Theatre":
        """The same without any callers."""
        other = Theatre(self.backbone, self._crowd)
        other._alone = self._alone
        return other

    def asked(self, number: int) -> tuple[Row, Decoding]:
        """Greedy, sampled or with beams, for inputs and texts of any length."""
        draw = random.Random(number)
        text = " ".join(draw.choices(WORDS, k=draw.randint(1, 12)))
        row = Row(self.backbone.tokenizer.encode(text), draw.choice(self._crowd))
        kind = draw.choice([{}, {}, {"temperature": 0.8, "seed": number}, {"num_beams": 3}])
        return row, Decoding(draw.randint(1, 9), **kind)

    def alone(self, number: int) -> list[int]:
        """The text of `number` without company."""
        if number not in self._alone:
            draft = create_draft(self.backbone, *self.asked(number))
            generate(self.backbone, [draft], max_rows=1)
            self._alone[number] = draft.ids
        return self._alone[number]

    @property
    def long_line(self) -> int:
        """The number of a text of more than three tokens without beams."""
        return next(n for n in range(NUM_KINDS) if len(self.alone(n)) > 3 and self.asked(n)[1].num_beams == 1)

    def join(self, *numbers: int, deadline: float = math.inf) -> list[Caller]:
        joining = []
        for number in numbers:
            row, decoding = self.asked(number)
            progressed: list[int] = []

            def listen(progress: NewTokens, progressed: list[int] = progressed) -> None:
                progressed.extend(progress.ids)

            listener = listen if decoding.num_beams == 1 else None
            price = price_tokens([row], drafted=True)
            ticket = Ticket([row], price, Results(1), deadline=deadline, decoding=decoding, listener=listener)
            joining.append(Caller(ticket, number, progressed))
        self.callers += joining
        self.decoder.join([caller.ticket for caller in joining])
        return joining

    async def finish(self) -> None:
        """Steps until nothing is left, which is soon."""
        for _ in range(40):
            self.decoder.step()
            await asyncio.sleep(0)
        assert self.decoder.num_rows == 0
        assert self.decoder._groups == []

    def check(self, caller: Caller) -> None:
        """The caller has got the text that they would have got alone, and heard nothing else."""
        outcome = caller.result
        assert isinstance(outcome, RowsOutcome), outcome
        assert outcome.outputs[0].ids == self.alone(caller.number)
        assert caller.progressed == outcome.outputs[0].ids[: len(caller.progressed)]


@pytest.fixture(scope="module")
def stage(t5: Backbone, crowd: list[Resident]) -> Theatre:
    return Theatre(t5, crowd)


@pytest.fixture
def theatre(stage: Theatre) -> Theatre:
    return stage.again()


MOVES = st.lists(
    st.one_of(
        st.lists(st.integers(0, NUM_KINDS - 1), min_size=1, max_size=4),  # these join together
        st.just("step"),
        st.integers(0, 30).map(lambda which: ("cancel", which)),
    ),
    max_size=25,
)


@hypothesis_settings(max_examples=hypothesis_settings().max_examples // 3)
@given(moves=MOVES)
async def test_any_order_of_joins_cancels_and_steps(stage: Theatre, moves: list[object]) -> None:
    """Nothing is lost, no slot leaks, and every text that is not cancelled is what it is alone."""
    theatre = stage.again()
    await play(theatre, moves)
    await theatre.finish()
    for caller in theatre.callers:
        if not caller.ticket.gone:
            theatre.check(caller)


async def play(theatre: Theatre, moves: list[object]) -> None:
    for move in moves:
        if move == "step":
            theatre.decoder.step()
            live = [caller for caller in theatre.callers if not caller.ticket.future.done()]
            await asyncio.sleep(0)
            still = [caller for caller in live if not caller.ticket.future.done()]
            assert theatre.decoder.num_rows == sum(caller.ticket.num_beams for caller in still)
        elif isinstance(move, list):
            theatre.join(*move)
        elif theatre.callers:
            theatre.callers[move[1] % len(theatre.callers)].ticket.future.cancel()


@hypothesis_settings(max_examples=hypothesis_settings().max_examples // 3)
@given(moves=MOVES, bad=st.sets(st.integers(0, NUM_KINDS - 1), max_size=3), faults=st.sets(st.integers(0, 40)))
async def test_a_failing_text_fails_alone(stage: Theatre, moves: list[object], bad: set[int], faults: set[int]) -> None:
    """Whether one text makes every step fail that it takes part in, or a step fails now and then for all."""
    theatre = stage.again()
    with pytest.MonkeyPatch.context() as patch:
        inputs = {theatre.asked(number)[0].encoded for number in bad}
        inject(patch, bad_inputs=inputs, faults=faults)
        await play_roughly(theatre, moves)
        await theatre.finish()
    for caller in theatre.callers:
        if caller.ticket.gone:
            continue
        if caller.ticket.row.encoded in inputs:
            assert isinstance(caller.result, InferenceFailed)
        else:
            theatre.check(caller)


async def play_roughly(theatre: Theatre, moves: list[object]) -> None:
    for move in moves:
        if move == "step":
            theatre.decoder.step()
            await asyncio.sleep(0)
        elif isinstance(move, list):
            theatre.join(*move)


def inject(patch: pytest.MonkeyPatch, bad_inputs: set[object], faults: set[int]) -> None:
    """Lets steps fail that a bad input takes part in from its third token on, joins with every other bad input, and
    steps and joins of several by number."""
    step, join, calls = Generator.step, Generator.join, iter(range(10**9))

    def failing_step(self: Generator) -> list[Draft]:
        live = self.live
        done = step(self)
        if any(draft.row.encoded in bad_inputs and (len(draft.ids) > 2 or draft.done) for draft in live):
            raise RuntimeError("CUDA error: a kernel met a bad row")
        if len(live) > 1 and next(calls) in faults:
            raise torch.OutOfMemoryError("too many at once")
        return done

    def failing_join(self: Generator, drafts: Sequence[Draft]) -> None:
        if any(draft.row.encoded in bad_inputs and len(draft.row.encoded) % 2 for draft in drafts):
            raise RuntimeError("CUDA error: a kernel met a bad input")
        if len(drafts) > 1 and next(calls) in faults:
            raise torch.OutOfMemoryError("too many at once")
        join(self, drafts)

    patch.setattr(Generator, "step", failing_step)
    patch.setattr(Generator, "join", failing_join)


class Shortage(TorchFunctionMode):
    """Call number `number` of torch has no memory."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.left = number

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.left -= 1
        if self.left == -1:
            raise MemoryError
        return func(*args, **(kwargs or {}))


async def test_a_lack_of_memory_is_told_and_touches_no_other_text(stage: Theatre) -> None:
    """Whichever allocation of a join fails, the text that joins alone may come back, and a written one goes on."""
    stage.alone(2)  # compiles what its joins use, so that all of them have the same calls
    for number in itertools.count():
        theatre = stage.again()
        (writing,) = theatre.join(stage.long_line)
        theatre.decoder.step()
        with Shortage(number) as shortage:
            (joining,) = theatre.join(2)
        await theatre.finish()
        theatre.check(writing)
        if shortage.left >= 0:
            break
        assert isinstance(joining.result, Unavailable)
    theatre.check(joining)
    assert number > 10, "a join has more allocations"


async def test_a_listener_never_hears_a_token_twice(theatre: Theatre, monkeypatch: pytest.MonkeyPatch) -> None:
    """A text that has to begin again is silent until it says something new."""
    callers = theatre.join(*range(NUM_KINDS))
    for _ in range(4):
        theatre.decoder.step()
    await asyncio.sleep(0)
    before = [list(caller.progressed) for caller in callers]
    monkeypatch.setattr(Generator, "step", lambda self: 1 / 0)
    theatre.decoder.step()
    monkeypatch.undo()
    theatre.decoder.step()
    await asyncio.sleep(0)
    assert [caller.progressed for caller in callers] == before
    assert any(len(progressed) == 4 for progressed in before)
    await theatre.finish()
    for caller in callers:
        theatre.check(caller)


async def test_a_text_that_comes_out_otherwise_is_no_answer(theatre: Theatre) -> None:
    caller, other = theatre.join(*[theatre.long_line] * 2)
    theatre.decoder.step()
    await asyncio.sleep(0)
    job = next(job for job in theatre.decoder._groups[0].jobs if job.ticket is caller.ticket)
    job.sent = [one + 1 for one in job.sent]
    await theatre.finish()
    with pytest.raises(InferenceFailed, match="not reproducible"):
        raise caller.result
    theatre.check(other)


async def test_a_text_whose_numbers_are_not_finite_fails_alone(theatre, monkeypatch):
    first, second, third = theatre.join(3, 4, 5)
    row, advance = first.ticket.row, Generator._advance

    def poisoned(self: Generator, drafts: Sequence[Draft], logits: torch.Tensor) -> None:
        start = 0
        for draft in drafts:
            if draft.row is row:
                logits[start : start + draft.decoding.num_beams] = math.nan
            start += draft.decoding.num_beams
        advance(self, drafts, logits)

    monkeypatch.setattr(Generator, "_advance", poisoned)
    await theatre.finish()
    with pytest.raises(InferenceFailed, match="not finite"):
        raise first.result
    theatre.check(second)
    theatre.check(third)


async def test_who_shares_a_step_is_counted_when_that_changes(theatre, monkeypatch):
    """Once for many steps, however often their cost is asked for, and again after a join."""
    counted: list[int] = []
    monkeypatch.setattr(decoder_module, "StepStats", lambda jobs: counted.append(len(jobs)) or StepStats(jobs))
    number = theatre.long_line
    theatre.join(number)
    for _ in range(2):
        alone = theatre.decoder.step_cost
        theatre.decoder.step()
    theatre.join(number)
    assert theatre.decoder.step_cost == alone + theatre.callers[1].ticket.step_cost
    assert counted == [1, 2]
    await theatre.finish()


async def test_a_deadline_passes_while_a_text_is_written(theatre: Theatre) -> None:
    (late,) = theatre.join(theatre.long_line, deadline=time.monotonic() + 60)
    (other,) = theatre.join(theatre.long_line)
    theatre.decoder.step()
    theatre.decoder.step()
    object.__setattr__(late.ticket, "deadline", 0.0)
    theatre.decoder.step()
    await asyncio.sleep(0)
    assert theatre.decoder.num_rows == 1
    with pytest.raises(DeadlinePassed, match="after 2 new tokens"):
        raise late.result
    await theatre.finish()
    theatre.check(other)


async def test_who_joins_later_shares_steps(theatre: Theatre) -> None:
    """The company that an answer names is that of its last step."""
    long = theatre.long_line
    (first,) = theatre.join(long)
    for _ in range(3):
        theatre.decoder.step()
    (second,) = theatre.join(long)
    await theatre.finish()
    assert (first.result.batch_rows, second.result.batch_rows) == (2, 1)
    assert first.result.batch_adapters == 1
