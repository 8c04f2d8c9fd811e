"""Examples from a stream of tokens."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from peltier_training.errors import TrainingError
from peltier_training.pretraining.dataset import (
    EOS,
    HELD_OUT,
    TRAIN,
    HeldOutText,
    SpanCorruption,
    TrainingText,
    collate,
    fit_length,
    read_tokens,
    write_tokens,
)
from peltier_training.pretraining.tokenizer import train_tokenizer

CORRUPTION = fit_length(32, first_sentinel=9_999)
STREAM = np.arange(3, 3 + 10 * CORRUPTION.text_length, dtype=np.uint16)


def _tokens(example: dict[str, torch.Tensor]) -> set[int]:
    """The text's tokens, without sentinels and </s>."""
    return {int(token) for part in example.values() for token in part if 1 < token < 9_000}


def test_a_pass_has_each_block_once():
    """Nine blocks, none overlapping; the tenth's place is the offset's."""
    data = TrainingText(STREAM, CORRUPTION, size=100, seed=0)
    seen = [token for index in range(9) for token in _tokens(data[index])]
    assert len(seen) == len(set(seen)) == 9 * CORRUPTION.text_length


def test_an_example_depends_on_seed_and_number_alone():
    """Which is why a resumed run goes on with the examples that it would have had."""
    data, same = (TrainingText(STREAM, CORRUPTION, size=100, seed=5) for _ in range(2))
    examples = [data[index] for index in (20, 3, 20)]
    assert torch.equal(examples[0]["input_ids"], same[20]["input_ids"])
    assert torch.equal(examples[0]["input_ids"], examples[2]["input_ids"])
    other = TrainingText(STREAM, CORRUPTION, size=100, seed=6)
    assert not torch.equal(examples[0]["input_ids"], other[20]["input_ids"])


def test_passes_differ():
    """Another order, another offset or other spans."""
    data = TrainingText(STREAM, CORRUPTION, size=100, seed=0)
    assert {frozenset(_tokens(data[i])) for i in range(9)} != {frozenset(_tokens(data[i])) for i in range(9, 18)}


def test_held_out_blocks_are_fixed_and_whole():
    """The same at every look, over the whole stream."""
    data = HeldOutText(STREAM, CORRUPTION)
    assert len(data) == 10
    assert torch.equal(data[4]["labels"], data[4]["labels"])
    assert set().union(*(_tokens(data[index]) for index in range(10))) == set(STREAM.tolist())


def test_a_batch_is_two_tensors():
    """Without padding."""
    batch = collate([TrainingText(STREAM, CORRUPTION, size=4, seed=0)[index] for index in range(4)])
    assert {name: tuple(value.shape) for name, value in batch.items()} == {
        "input_ids": (4, CORRUPTION.input_length),
        "labels": (4, CORRUPTION.target_length),
    }


@pytest.mark.parametrize("kind", [HeldOutText, lambda *data: TrainingText(*data, size=1, seed=0)])
def test_too_few_tokens_are_refused(kind: type[HeldOutText]):
    """One sentence with both numbers."""
    with pytest.raises(TrainingError, match=r"the text is too small: it has 5 tokens to .* and needs at least \d+"):
        kind(STREAM[:5], CORRUPTION)


def test_tokens_of_all_documents_are_written(text: Path, tmp_path: Path):
    """Back to back, without </s>, and the held-out documents apart."""
    documents = text.read_text().split("\n\n")
    tokenizer = train_tokenizer(documents, 700)
    assert write_tokens(documents, tokenizer, tmp_path) == 401
    expected = [tokenizer.encode(document, add_special_tokens=False).ids for document in documents]
    held_out = [token for number in (0, 200, 400) for token in expected[number]]
    assert read_tokens(tmp_path / HELD_OUT).tolist() == held_out
    assert len(read_tokens(tmp_path / TRAIN)) == sum(map(len, expected)) - len(held_out)


FIRST_SENTINEL = 9_999
lengths = st.integers(8, 600)
seeds = st.integers(0, 2**32 - 1)


def _corrupted(corruption: SpanCorruption, seed: int) -> tuple[list[int], list[int]]:
    source, target = corruption.corrupt(np.arange(corruption.text_length), np.random.default_rng(seed))
    return source.tolist(), target.tolist()


def _spans(tokens: list[int], corruption: SpanCorruption) -> list[list[int]]:
    """What stands before, between and after the sentinels; they must be in order."""
    assert tokens[-1] == EOS
    spans: list[list[int]] = [[]]
    for token in tokens[:-1]:
        if token > FIRST_SENTINEL - corruption.num_spans:
            assert token == FIRST_SENTINEL + 1 - len(spans)
            spans.append([])
        else:
            spans[-1].append(token)
    assert len(spans) == corruption.num_spans + 1
    return spans


@given(lengths, seeds)
def test_every_token_is_in_the_input_or_in_the_target(length: int, seed: int):
    """Putting each span of the target in the place of its sentinel gives the text back."""
    corruption = fit_length(length, FIRST_SENTINEL)
    source, target = (_spans(tokens, corruption) for tokens in _corrupted(corruption, seed))
    assert target[0] == []
    pairs = zip(source, [*target[1:], []], strict=True)
    assert [token for kept, taken in pairs for token in [*kept, *taken]] == list(range(corruption.text_length))


@given(lengths, seeds)
def test_lengths_are_fixed(length: int, seed: int):
    """No draw needs padding, and no longer text would fit."""
    corruption = fit_length(length, FIRST_SENTINEL)
    source, target = _corrupted(corruption, seed)
    assert (len(source), len(target)) == (corruption.input_length, corruption.target_length)
    assert length - 1 <= corruption.input_length <= length


@given(lengths)
def test_density_and_mean_span(length: int):
    """15 % of the tokens and three a span, as near as whole numbers allow."""
    corruption = fit_length(length, FIRST_SENTINEL)
    assert abs(corruption.num_noise - 0.15 * corruption.text_length) <= 0.5
    assert abs(3 * corruption.num_spans - corruption.num_noise) <= 2


def test_the_papers_lengths():
    """Inputs of 512 tokens are of texts of 568, with targets of 114."""
    corruption = fit_length(512, 32_099)
    assert (corruption.input_length, corruption.text_length, corruption.target_length) == (512, 568, 114)


def test_every_place_is_taken_out_equally_often():
    """Away from the ends of a text each token is hidden in 15 % of the draws."""
    corruption = fit_length(128, FIRST_SENTINEL)
    draws = 2000
    hidden = np.zeros(corruption.text_length)
    for seed in range(draws):
        target = np.array(_corrupted(corruption, seed)[1][:-1])
        hidden[target[target < corruption.text_length]] += 1
    middle = hidden[20:-20] / draws
    # Five standard deviations of the mean of 0/1 draws.
    assert middle.mean() == pytest.approx(0.15, abs=0.02)
    assert np.abs(middle - middle.mean()).max() < 5 * (0.15 * 0.85 / draws) ** 0.5


def test_the_smallest_text_keeps_a_token():
    """Two tokens: one stays, one is taken out."""
    corruption = fit_length(3, FIRST_SENTINEL)
    assert _corrupted(corruption, 0) == ([0, FIRST_SENTINEL, EOS], [FIRST_SENTINEL, 1, EOS])
