"""Whole batches over tensors that never move, against `forward` as it is without graphs. A replay is the call itself,
so everything but the capture is what a GPU runs."""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
import torch
from peltier_adapters.artifact.artifact import read_artifact
from peltier_adapters.batch.forward import forward
from peltier_adapters.batch.row import Row, RowOutput
from peltier_adapters.gpu.backend import TritonBackend
from peltier_adapters.gpu.graphs import Graphs
from peltier_adapters.inputs import encode_input
from peltier_adapters.ops import choice
from peltier_adapters.ops.torch import TORCH
from peltier_adapters.presets.presets import PRESETS
from peltier_adapters.residency.bank import Banks, Resident
from peltier_backbone.backbone import Backbone
from torch.utils._python_dispatch import TorchDispatchMode

MakeArtifact = Callable[..., bytes]
WORDS = ["a", "good", "film", "the", "plot", "was", "not", "very", "and", "actor", "is", "dull", "bad"]
# tests/adapters_store/graphs stays.
pytestmark = pytest.mark.slow
ENCODERS = tuple(name for name in PRESETS if not name.startswith("prompt"))
# They have every kind of part.
COVERING = ("bitfit", "compacter", "lora", "prefix", "unipelt-apl")


@pytest.fixture(autouse=True)
def _triton(monkeypatch: pytest.MonkeyPatch) -> None:
    """Heads, and batches without a graph, are computed as on a card too."""
    chosen = TritonBackend(torch.device("cpu"), torch.float32)
    monkeypatch.setattr(choice, "choose_backend", lambda device, dtype: chosen)


def _graphs(backbone: Backbone, capture_after: int = 1) -> Graphs:
    return Graphs(backbone, lambda run: run, capture_after=capture_after)


def _residents(backbone: Backbone, make_artifact: MakeArtifact, presets: Sequence[str]) -> list[Resident]:
    banks = Banks(backbone)
    drawn = [(preset, seed) for preset in presets for seed in range(2)]
    return [
        banks.add(read_artifact(make_artifact(backbone, name, seed=seed, proved=False), backbone))
        for name, seed in drawn
    ]


def _row(backbone: Backbone, resident: Resident, draw: random.Random) -> Row:
    text = " ".join(draw.choices(WORDS, k=draw.randint(1, 8)))
    return Row(encode_input(backbone, resident.task, text), resident)


def _assert_equal(found: Sequence[RowOutput], expected: Sequence[RowOutput]) -> None:
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.logits, other.logits, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("presets", [ENCODERS[start::4] for start in range(4)], ids="+".join)
def test_every_preset_answers_as_by_torch(presets, bert, make_artifact, monkeypatch):
    """Two adapters of each, each in a row of its own, beside rows of none."""
    residents, graphs, draw = _residents(bert, make_artifact, presets), _graphs(bert), random.Random(presets[0])
    bare = Row(bert.tokenizer.encode("a good film"))
    rows = [bare, *(_row(bert, one, draw) for one in residents), bare]
    found = forward(bert, rows, graphs=graphs)
    assert len(graphs) == 1
    monkeypatch.setattr(choice, "choose_backend", lambda device, dtype: TORCH)
    same = dict(zip(map(id, residents), _residents(bert, make_artifact, presets), strict=True))
    _assert_equal(found, forward(bert, [replace(row, resident=same.get(id(row.resident))) for row in rows]))


def test_any_sequence_of_batches_answers_as_without_graphs(bert: Backbone, make_artifact: MakeArtifact):
    """Banks, rows, lengths and adapters change from one replay to the next, and nothing of the last batch stays."""
    residents = _residents(bert, make_artifact, COVERING)
    graphs, draw = _graphs(bert), random.Random(1)
    for _ in range(4):
        present = draw.sample(residents, draw.randint(1, 4))
        rows = [_row(bert, draw.choice(present), draw) for _ in range(draw.randint(1, 8))]
        _assert_equal(forward(bert, rows, graphs=graphs), forward(bert, rows))
    assert len(graphs) > 1


def test_runs_that_are_empty_change_nothing(bert: Backbone, make_artifact: MakeArtifact):
    """A graph of several kinds of adapters is replayed for a batch of one kind."""
    residents, graphs, draw = _residents(bert, make_artifact, COVERING[:3]), _graphs(bert), random.Random(3)
    rows = [_row(bert, one, draw) for one in residents]
    forward(bert, rows, graphs=graphs)
    fewer = [replace(row, resident=residents[-1]) for row in rows]
    _assert_equal(forward(bert, fewer, graphs=graphs), forward(bert, fewer))
    assert len(graphs) == 1


@pytest.mark.parametrize("preset", ["bitfit", "lowrank", "unipelt-apl"])
def test_a_row_that_is_not_finite_stays_alone(preset: str, bert: Backbone, make_artifact: MakeArtifact):
    """Windows cover all tokens, and yet no number of one row reaches another, whatever the parts."""
    banks, draw = Banks(bert), random.Random(2)
    sound, broken = (read_artifact(make_artifact(bert, preset, seed=seed, proved=False), bert) for seed in range(2))
    tensors = {name: torch.full_like(tensor, torch.nan) for name, tensor in broken.tensors.items()}
    one, other = banks.add(sound), banks.add(replace(broken, tensors=tensors))
    rows = [_row(bert, resident, draw) for resident in (other, one, other, one)]
    found = forward(bert, rows, graphs=_graphs(bert))
    _assert_equal(found[1::2], forward(bert, rows[1::2]))
    assert all(
        bool(output.logits.isnan().all()) for output, row in zip(found, rows, strict=True) if row.resident is other
    )


class NothingOfTheHost(TorchDispatchMode):
    """Refuses what a capture would: to read a number from the device, or to bring one there."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        assert name not in ("item", "is_nonzero", "_local_scalar_dense", "lift_fresh"), name
        assert name not in ("nonzero", "masked_select", "repeat_interleave", "unique_consecutive"), name
        return func(*args, **(kwargs or {}))


def test_the_captured_region_asks_the_host_for_nothing(bert: Backbone, make_artifact: MakeArtifact):
    """No length is read back, no list becomes a tensor, and no shape depends on what a tensor holds."""
    residents = _residents(bert, make_artifact, ("adamix", "bitfit", "compacter", "lowrank", "phm", "unipelt-apl"))
    runs = []

    def capture(run: Callable[[], None]) -> Callable[[], None]:
        with NothingOfTheHost():
            run()
        runs.append(run)
        return run

    draw = random.Random(3)
    forward(bert, [_row(bert, one, draw) for one in residents[::2]], graphs=Graphs(bert, capture, capture_after=1))
    assert runs
