"""Terms of sparse embeddings."""

import math

import pytest
import torch
from peltier_adapters.answers.terms import answer, read, relative_distance
from peltier_backbone.backbone import Backbone

OUTPUT = torch.tensor([[7.0, 2.0], [3.0, 0.5], [9.0, 0.0], [1.0, -1.0]])


@pytest.mark.parametrize(
    ("top_k", "raw", "weights"),
    [(None, False, {7: math.log(3), 3: math.log(1.5)}), (1, False, {7: math.log(3)}), (None, True, {7: 2.0, 3: 0.5})],
)
def test_weights_are_of_positive_logits(top_k: int | None, raw: bool, weights: dict[int, float]):
    """log(1 + logit), or the logits themselves, of at most `top_k` terms."""
    found = read(OUTPUT, top_k, raw=raw)
    assert dict(zip(found.indices.tolist(), found.weights.tolist(), strict=True)) == pytest.approx(weights)


def test_an_answer_names_its_terms(bert: Backbone):
    """By the entries of the vocabulary; a text may have none."""
    number = bert.tokenizer.encode("good").ids[1]
    found = answer(read(torch.tensor([[float(number), 1.0]])), bert.tokenizer)
    assert found == [{"index": number, "term": "good", "weight": pytest.approx(math.log(2))}]
    assert answer(read(OUTPUT[2:]), bert.tokenizer) == []


@pytest.mark.parametrize(
    ("other", "distance"),
    [
        (OUTPUT[[1, 0, 3, 2]], 0.0),
        # Terms at the end may change places with terms that are not among the largest.
        (torch.tensor([[7.0, 2.0], [3.0, 0.5], [9.0, 0.0], [4.0, -1.0]]), 0.0),
        (torch.tensor([[7.0, 2.0], [3.0, 0.5], [9.0, 0.0], [4.0, 0.5]]), 1.5),
        (torch.tensor([[8.0, 2.0], [3.0, 0.5], [9.0, 0.0], [1.0, -1.0]]), 3.0 * 2**0.5),
    ],
)
def test_outputs_differ_by_what_exceeds_their_ends(other: torch.Tensor, distance: float):
    """Relative to the length of the wanted logits."""
    assert relative_distance(other, OUTPUT) * float(OUTPUT[:, 1].norm()) == pytest.approx(distance, abs=1e-6)
