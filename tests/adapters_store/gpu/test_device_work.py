"""What a batch asks of a GPU has a budget: kernel launches, copies to the device, and waits for it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from typing import Any

import pytest
import torch
from peltier_backbone.backbone import Backbone
from peltier_backbone.checkpoint.config import BertConfig, T5Config
from peltier_backbone.text.packing import Encoded
from torch import Tensor

pytest.importorskip("triton", reason="Triton has no build for this machine")

import triton
from peltier_adapters.artifact.label_tree import create_tree
from peltier_adapters.batch.forward import forward
from peltier_adapters.batch.row import Row
from peltier_adapters.generation import Generator, create_draft
from peltier_adapters.gpu import self_check
from peltier_adapters.gpu.backend import TritonBackend
from peltier_adapters.gpu.frame import Frame, Shape
from peltier_adapters.gpu.warm_up import warm_up
from peltier_adapters.ops import choice
from peltier_adapters.presets.presets import PRESETS, presets_for
from peltier_adapters.residency.served import device_bytes
from peltier_adapters.spec.decoding import Decoding

from tests.adapters_store.device_work import META, Counted, Work, counted, residents, without_data
from tests.adapters_store.gpu.kernels.compiled import Card

NUM_ROWS = 64
FOUR = ("lora", "adamix", "compacter", "unipelt-apl")
ON_BERT = [name for name, preset in PRESETS.items() if preset.encoder is not None]
ON_T5 = [name for name, preset in PRESETS.items() if preset.t5 is not None]


def _one_by_one(presets: Sequence[str]) -> list[Any]:
    """Batches of one preset as parameters. The gate runs those with most launches, and batches of several presets."""
    marks = {name: [] if name in ("bitfit", "unipelt-apl") else [pytest.mark.slow] for name in presets}
    return [pytest.param((name,), id=name, marks=marks[name]) for name in presets]


@pytest.fixture(autouse=True)
def _triton(monkeypatch: pytest.MonkeyPatch) -> None:
    """The backend of a GPU, for bodies and for heads."""
    made = {dtype: TritonBackend(META, dtype) for dtype in (torch.float32, torch.bfloat16)}
    monkeypatch.setattr(choice, "choose_backend", lambda device, dtype: made[dtype])


@pytest.fixture
def bert_base(bert: Backbone) -> Backbone:
    """BERT-base's shape."""
    config = bert.bert.config
    assert isinstance(config, BertConfig)
    sizes = {"hidden_size": 768, "embedding_size": 768, "num_layers": 12, "num_heads": 12, "intermediate_size": 3072}
    return without_data(bert, replace(config, **sizes))


@pytest.fixture
def t5_base(t5: Backbone) -> Backbone:
    """T5-base's shape."""
    config = t5.t5.config
    assert isinstance(config, T5Config)
    sizes = {"hidden_size": 768, "num_layers": 12, "num_decoder_layers": 12, "num_heads": 12, "kv_size": 64}
    return without_data(t5, replace(config, **sizes, intermediate_size=3072, vocab_size=32128))


def _rows(backbone: Backbone, presets: Sequence[str]) -> list[Row]:
    """64 rows of 4 to 63 tokens, or a few less, each with its own adapter."""
    numbers = count()
    adapters = [one for name in presets for one in residents(backbone, name, NUM_ROWS // len(presets), numbers)]
    lengths = [4 + number * 37 % 60 for number in range(len(adapters))]
    return [Row(Encoded((7,) * size, (0,) * size), own) for size, own in zip(lengths, adapters, strict=True)]


def _work(backbone: Backbone, presets: Sequence[str]) -> Work:
    rows = _rows(backbone, presets)
    with counted() as work:
        forward(backbone, rows)
    return work


def test_a_mixed_batch_of_bert_base_has_one_copy_and_few_launches(bert_base: Backbone):
    """Four presets in 64 rows: one copy before the first kernel, and one of the logits."""
    work = _work(bert_base, FOUR)
    assert (work.sent, work.fetched) == (1, 1)
    assert work.launches <= 150


@pytest.mark.parametrize(("family", "presets"), [("bert_base", ON_BERT), ("t5_base", ON_T5)], ids=["bert", "t5"])
def test_all_presets_share_one_copy(family: str, presets: Sequence[str], request: pytest.FixtureRequest):
    """In a batch of two or three adapters of each."""
    work = _work(request.getfixturevalue(family), presets)
    assert (work.sent, work.fetched) == (1, 1)


@pytest.mark.parametrize("presets", _one_by_one(ON_BERT))
def test_every_preset_has_one_copy_on_bert_base(presets: Sequence[str], bert_base: Backbone):
    """BitFit changes four maps of each layer, others fewer."""
    work = _work(bert_base, presets)
    assert (work.sent, work.fetched) == (1, 1)
    assert work.launches <= (160 if presets == ("bitfit",) else 140)


@torch.inference_mode()
def test_what_a_graph_captures_asks_the_host_for_nothing(bert_base: Backbone):
    """For adapters of every preset: the copy comes before, nothing is read back, and nothing lies on the host."""
    rows = _rows(bert_base, ON_BERT)
    frame = Frame(bert_base, Shape.of(rows))
    with counted() as loaded:
        frame.load(rows)
    assert (loaded.launches, loaded.sent) == (0, 1)
    with counted() as run:
        frame.run()
    assert (run.sent, run.fetched) == (0, 0)
    assert run.launches > 0


def test_a_mixed_batch_of_t5_base_has_one_copy_and_few_launches(t5_base: Backbone):
    """Four presets in 64 rows of different lengths: one copy before the first kernel, and one of all scores."""
    work = _work(t5_base, FOUR)
    assert (work.sent, work.fetched) == (1, 1)
    assert work.launches <= 435


def test_different_labels_need_no_more_work(t5_base: Backbone):
    """Each row scores a label tree of its own."""
    same = _rows(t5_base, ("compacter",))
    trees = [create_tree(0, 1, [[5, 6 + number], [*range(7, 8 + number)]]) for number in range(len(same))]
    _work(t5_base, ("compacter",))  # computes what all batches share
    with counted() as work:
        forward(t5_base, [replace(row, tree=tree) for row, tree in zip(same, trees, strict=True)])
    assert work == _work(t5_base, ("compacter",))


@pytest.mark.parametrize("presets", [FOUR, ("bitfit",)])
def test_a_gated_activation_is_one_launch(presets: Sequence[str], t5_base: Backbone, t5_odd: Backbone):
    """As that of a feed-forward without a gate, also behind biases."""
    assert _work(t5_odd, presets) == _work(t5_base, presets)


@pytest.mark.parametrize("presets", _one_by_one(ON_T5))
def test_every_preset_has_one_copy_on_t5_base(presets: Sequence[str], t5_base: Backbone):
    """Also those with prefixes and prompts."""
    work = _work(t5_base, presets)
    assert (work.sent, work.fetched) == (1, 1)
    assert work.launches <= (470 if presets == ("bitfit",) else 410)


@pytest.mark.parametrize("presets", [pytest.param(FOUR, id="four"), *_one_by_one(ON_T5)])
def test_texts_have_one_copy_a_pass(presets: Sequence[str], t5_base: Backbone):
    """The pass in which they join, the next step and the one after it; a step has one copy back, of its tokens."""
    drafts = [create_draft(t5_base, row, Decoding(20)) for row in _rows(t5_base, presets)]
    with torch.inference_mode():
        generator = Generator(t5_base)
    with counted() as joined:
        generator.join(drafts)
    assert (joined.sent, joined.fetched) == (1, 0)
    assert joined.launches <= 230
    for _ in range(2):
        with counted() as step:
            generator.step()
        assert (step.sent, step.fetched) == (1, 1)
        assert step.launches <= 290


@pytest.mark.parametrize("family", ["bert_base", "t5_base"])
def test_adapters_take_the_bytes_that_are_reserved_for_them(family: str, request: pytest.FixtureRequest):
    """Bodies are kept in bfloat16, and heads in float32."""
    backbone = request.getfixturevalue(family)
    for preset in presets_for(backbone.config):
        (own,) = residents(backbone, preset.name, 1, count())
        taken = own.body_slot.flat.nbytes + own.head_slot.flat.nbytes
        assert device_bytes((*own.body.parts, *own.head.parts), backbone) == taken


def _write(backbone: Backbone, rows: Sequence[Row]) -> None:
    """Two steps of a text for each row."""
    with torch.inference_mode():
        generator = Generator(backbone)
    generator.join([create_draft(backbone, row, Decoding(20)) for row in rows])
    for _ in range(2):
        generator.step()


@contextmanager
def _compilations() -> Iterator[set[tuple[str, str]]]:
    """What Triton would compile for an sm_90: modules, and kinds of arguments. Nothing is compiled or launched."""
    found: set[tuple[str, str]] = set()

    def note(*, key: str, fn: Any, **others: object) -> bool:
        found.add((fn.module, str(key)))
        return True

    with pytest.MonkeyPatch.context() as patch, Counted(Work()):
        patch.setattr(triton.knobs.runtime, "jit_cache_hook", note)
        patch.setattr(triton.runtime.driver, "_active", Card(90))
        yield found


def _start(backbone: Backbone) -> None:
    """What a server does at its start, except that nothing is compared."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Tensor, "__bool__", lambda self: True)
        for dtype in (backbone.dtype, torch.float32):
            self_check.check(choice.choose_backend(META, dtype), META, dtype)
        warm_up(backbone)


@pytest.fixture
def t5_odd(t5_base: Backbone) -> Backbone:
    """A gated feed-forward, and a vocabulary that is no multiple of 16."""
    return without_data(t5_base, replace(t5_base.t5.config, vocab_size=32100, gated=True, activation="gelu_new"))


@pytest.mark.parametrize("family", ["bert_base", pytest.param("t5_odd", marks=pytest.mark.slow)])
def test_no_batch_waits_for_a_compiler(family: str, request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture):
    """A server has compiled the kernels for any presets, rows and lengths, for heads of any width, and for texts."""
    backbone, numbers = request.getfixturevalue(family), count()
    names = [preset.name for preset in presets_for(backbone.config)]
    adapters = [one for name in names for one in residents(backbone, name, 4, numbers)]
    with _compilations() as compiled:
        _start(backbone)
    with _compilations() as more:
        for number in range(12):
            chosen = adapters[number :: number % 5 + 1][: 1 + 7 * number]
            sizes = ((1 + 11 * one) % (8 * number + 3) + 1 for one in count())
            pairs = zip(chosen, sizes, strict=False)
            rows = [Row(Encoded((7,) * size, (0,) * size), own) for own, size in pairs]
            forward(backbone, rows)
            if backbone.config.generates:
                _write(backbone, rows)
    assert more <= compiled
    assert "Triton" not in caplog.text
