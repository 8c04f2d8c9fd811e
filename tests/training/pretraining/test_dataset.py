"""Examples from a stream of tokens."""

from pathlib import Path

import numpy as np
import pytest
import torch
from peltier_training.errors import TrainingError
from peltier_training.pretraining.dataset import (
    HELD_OUT,
    TRAIN,
    HeldOutText,
    TrainingText,
    collate,
    read_tokens,
    write_tokens,
)
from peltier_training.pretraining.spans import fit_length
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
