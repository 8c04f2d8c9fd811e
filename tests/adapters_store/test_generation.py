"""Texts join and leave between steps, and are the same as those of transformers."""

import math
import random
from collections.abc import Callable, Sequence
from itertools import product
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
from peltier_adapters.generation import Beams, Draft, Generator, SampledText, create_draft, generate
from peltier_adapters.residency.bank import Banks, Resident
from peltier_adapters.spec.decoding import Decoding
from peltier_backbone.backbone import Backbone
from peltier_backbone.decoding.cache import Cache
from torch import Tensor
from transformers import T5ForConditionalGeneration

START, END, VOCABULARY = 0, 1, 5

MakeArtifact = Callable[..., bytes]
WORDS = ["a", "good", "bad", "film", "the", "plot", "was", "not", "very", "and", "actor", "is", "dull"]
NEW_TOKENS = 12


def _log_probs(text: list[int], seed: int) -> Tensor:
    """The toy language's next-token log-probabilities, [vocab]."""
    generator = torch.Generator().manual_seed(hash((seed, *text)) % 2**31)
    return torch.randn(VOCABULARY, generator=generator).log_softmax(-1)


def _run_line(decoding: Decoding) -> SampledText:
    line = SampledText(decoding, START, END)
    while line.finish is None:
        line.advance(_log_probs(line.ids, 0)[None])
    return line


def _run_beams(decoding: Decoding, language: int) -> Beams:
    beams, texts = Beams(decoding, START, END), [[] for _ in range(decoding.num_beams)]
    while beams.finish is None:
        sources = beams.advance(torch.stack([_log_probs(text, language) for text in texts]))
        texts = [[*texts[source], token] for source, token in zip(sources or [], beams.tokens, strict=True)]
    return beams


def test_a_text_ends_at_its_end_or_its_limit():
    """The end token is not part of the text; the limit is."""
    line = SampledText(Decoding(2), START, END)
    line.append(3, -1.0)
    assert (line.finish, line.tokens) == (None, [3])
    line.append(END, -0.5)
    assert (line.finish, line.ids, line.log_prob) == ("stop", [3], -1.5)
    line = SampledText(Decoding(1), START, END)
    line.append(3, -1.0)
    assert (line.finish, line.ids) == ("length", [3])


def test_a_seed_decides_a_sample():
    texts = {seed: tuple(_run_line(Decoding(8, temperature=1.0, seed=seed)).ids) for seed in range(20)}
    assert texts == {seed: tuple(_run_line(Decoding(8, temperature=1.0, seed=seed)).ids) for seed in range(20)}
    assert len(set(texts.values())) > 5


def test_samples_follow_the_probabilities():
    draws = 4000
    expected = _log_probs([], 0).exp()
    counts = torch.zeros(VOCABULARY)
    for seed in range(draws):
        line = SampledText(Decoding(1, temperature=1.0, seed=seed), START, END)
        line.advance(_log_probs([], 0)[None])
        counts[line.ids[0] if line.ids else END] += 1
    deviation = (expected * (1 - expected) / draws).sqrt()
    assert bool(((counts / draws - expected).abs() < 5 * deviation).all())


@given(st.integers(0, 1000), st.floats(0.01, 0.99))
def test_top_p_draws_from_the_likeliest_tokens_alone(seed: int, top_p: float):
    """A token is drawn only if those likelier than it do not already hold top_p."""
    line = SampledText(Decoding(1, temperature=1.0, top_p=top_p, seed=seed), START, END)
    values = _log_probs([], 3)
    line.advance(values[None])
    drawn = line.ids[0] if line.ids else END
    likelier = float(values.exp()[values > values[drawn]].sum())
    assert likelier < top_p + 1e-6


@given(st.integers(0, 300))
def test_beams_that_hold_every_text_find_the_best(language: int):
    """With beams for all texts the winner is the one of the highest mean log-probability, by exhaustive search."""
    length = 2
    best = -math.inf
    for text in product(range(VOCABULARY), repeat=length):
        cut = list(text[: text.index(END) + 1]) if END in text else list(text)
        score = sum(float(_log_probs(cut[:k], language)[token]) for k, token in enumerate(cut)) / len(cut)
        best = max(best, score)
    beams = _run_beams(Decoding(length, num_beams=VOCABULARY), language)
    steps = len(beams.ids) + (beams.finish == "stop")
    assert beams.log_prob / steps == pytest.approx(best, abs=1e-5)


@pytest.mark.parametrize("num_beams", [1, 3])
@pytest.mark.parametrize(("length", "finish"), [(2, "stop"), (4, "length")])
def test_a_score_counts_every_token_and_the_end(num_beams: int, length: int, finish: str, t5: Backbone):
    """Where every step has the same probability, that is the score of a text, whether it ends by itself or is cut."""
    draft = create_draft(t5, Row(t5.tokenizer.encode("bad")), Decoding(4, num_beams=num_beams))
    end = t5.t5.config.eos_token_id
    for step in range(4):
        token = end if finish == "stop" and step >= length else 5
        if num_beams == 1:
            draft.search.append(token, -0.5)
        else:
            log_probs = torch.full((num_beams, VOCABULARY + 4), -9.0)
            log_probs[:, token] = -0.5
            draft.search.advance(log_probs)
        if draft.finish is not None:
            break
    assert (draft.ids, draft.finish) == ([5] * length, finish)
    assert draft.search.log_prob == pytest.approx(-0.5 * (length + (finish == "stop")))
    assert draft.score == pytest.approx(math.exp(-0.5))


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
