"""Texts join and leave between steps, and are the same as those of transformers."""

import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from peltier_adapters.artifact.artifact import read_artifact
from peltier_adapters.batch.choice import choose_runner
from peltier_adapters.batch.row import Row
from peltier_adapters.batch.runner import Runner
from peltier_adapters.generation.generation import Draft, Generator, create_draft, generate
from peltier_adapters.generation.search import Decoding
from peltier_adapters.residency.bank import Banks, Resident
from peltier_backbone.backbone import Backbone
from peltier_backbone.decoding.cache import Cache
from transformers import T5ForConditionalGeneration

MakeArtifact = Callable[..., bytes]
WORDS = ["a", "good", "bad", "film", "the", "plot", "was", "not", "very", "and", "actor", "is", "dull"]
NEW_TOKENS = 12


def _inputs(backbone: Backbone, count: int) -> list[Row]:
    """Rows of 1 to 30 words without an adapter."""
    draw = random.Random(0)
    texts = [" ".join(draw.choices(WORDS, k=draw.randint(1, 30))) for _ in range(count)]
    return [Row(backbone.tokenizer.encode(text)) for text in texts]


def _reference(directory: Path, rows: Sequence[Row], backbone: Backbone, **options: object) -> list[list[int]]:
    """What `generate` of transformers writes, without the start, the end and what follows."""
    model = T5ForConditionalGeneration.from_pretrained(directory).eval()
    width = max(len(row.encoded) for row in rows)
    ids = torch.tensor([[*row.encoded.ids, *[0] * (width - len(row.encoded))] for row in rows])
    mask = torch.tensor([[1] * len(row.encoded) + [0] * (width - len(row.encoded)) for row in rows])
    written = model.generate(ids, attention_mask=mask, max_new_tokens=NEW_TOKENS, do_sample=False, **options)
    end = backbone.t5.config.eos_token_id
    texts = [row[1:] for row in written.tolist()]
    return [text[: text.index(end)] if end in text else text for text in texts]


@pytest.mark.parametrize("name", ["t5", "t5_gated"])
@pytest.mark.parametrize("num_beams", [1, 4])
def test_two_hundred_texts_are_those_of_transformers(name: str, num_beams: int, request: pytest.FixtureRequest):
    """Greedy and with beams, joining and leaving between steps, token for token."""
    backbone: Backbone = request.getfixturevalue(name)
    rows = _inputs(backbone, 200)
    drafts = [create_draft(backbone, row, Decoding(NEW_TOKENS, num_beams=num_beams)) for row in rows]
    generate(backbone, drafts, max_rows=48)
    expected = _reference(request.getfixturevalue(f"{name}_directory"), rows, backbone, num_beams=num_beams)
    assert [draft.ids for draft in drafts] == expected
    assert len({tuple(text) for text in expected}) > 50, "the checkpoint writes too little to compare"


@pytest.fixture(scope="module")
def crowd(t5: Backbone, make_artifact: MakeArtifact) -> list[Resident]:
    """Adapters of several methods."""
    banks = Banks(t5)
    presets = ("compacter", "unipelt-apl", "prefix", "prompt-r", "bitfit", "lora")
    return [banks.add(read_artifact(make_artifact(t5, preset, seed=seed), t5)) for preset in presets for seed in (0, 1)]


def _draft(backbone: Backbone, residents: Sequence[Resident], number: int) -> Draft:
    """The same draft for the same number: greedy, sampled or with beams, for texts of any length."""
    draw = random.Random(number)
    text = " ".join(draw.choices(WORDS, k=draw.randint(1, 12)))
    decoding = Decoding(
        draw.randint(1, 9), num_beams=draw.choice([1, 1, 1, 3]), temperature=draw.choice([0.0, 0.8]), seed=number
    )
    if decoding.num_beams > 1:
        decoding = Decoding(decoding.max_new_tokens, num_beams=decoding.num_beams)
    return create_draft(backbone, Row(backbone.tokenizer.encode(text), draw.choice(residents)), decoding)


def test_texts_outlive_the_join_of_others_that_fails(t5: Backbone, monkeypatch: pytest.MonkeyPatch):
    """Even if the cache has grown for them."""

    def fail(self: Runner, rows: Sequence[Row], copies: Sequence[int], cache: Cache) -> list[list[int]]:
        with cache.admit([100], copies):
            raise MemoryError

    rows = _inputs(t5, 4)
    drafts, alone = ([create_draft(t5, row, Decoding(NEW_TOKENS)) for row in rows] for _ in range(2))
    generator = Generator(t5)
    generator.join(drafts[:3])
    generator.step()
    monkeypatch.setattr(type(choose_runner(t5)), "join", fail)
    with pytest.raises(MemoryError):
        generator.join(drafts[3:])
    monkeypatch.undo()
    while generator.live:
        generator.step()
    generate(t5, alone[:3], max_rows=1)
    assert [draft.ids for draft in drafts[:3]] == [draft.ids for draft in alone[:3]]


@hypothesis_settings(max_examples=hypothesis_settings().max_examples // 3)
@given(st.lists(st.one_of(st.integers(0, 40), st.just("step"), st.just("drop")), max_size=30))
def test_whoever_joins_and_leaves_each_text_is_its_own(t5: Backbone, crowd: list[Resident], moves: list[int | str]):
    """Any order of joins, steps and drops: what finishes is what it is alone, and no slot is lost."""
    generator, started = Generator(t5), []
    for move in moves:
        if move == "step":
            generator.step()
        elif move == "drop":
            generator.drop(generator.live[:1])
        else:
            started.append((move, _draft(t5, crowd, int(move))))
            generator.join([started[-1][1]])
    while generator.live:
        generator.step()
    for number, draft in started:
        if not draft.done:
            continue  # it was dropped
        alone = _draft(t5, crowd, number)
        generate(t5, [alone], max_rows=1)
        assert (draft.ids, draft.finish) == (alone.ids, alone.finish)
    assert generator.num_rows == 0


def test_an_output_that_is_not_finite_fails_alone(t5: Backbone, make_artifact: MakeArtifact):
    """An adapter that overflows leaves at once and says so; its neighbours write what they write alone."""
    sound, broken = (read_artifact(make_artifact(t5, "lora", seed=seed), t5) for seed in (0, 1))
    broken.tensors["lora.up"].fill_(3e38)
    banks = Banks(t5)
    good, bad = (banks.add(artifact) for artifact in (sound, broken))
    row = Row(t5.tokenizer.encode("a good film"), good)
    drafts = [create_draft(t5, Row(row.encoded, one), Decoding(8)) for one in (bad, good, bad, good)]
    generate(t5, drafts, max_rows=4)
    alone = create_draft(t5, row, Decoding(8))
    generate(t5, [alone], max_rows=1)
    assert [(draft.failed, draft.finish) for draft in drafts[::2]] == [(True, None)] * 2
    assert [(draft.ids, draft.finish) for draft in drafts[1::2]] == [(alone.ids, alone.finish)] * 2
