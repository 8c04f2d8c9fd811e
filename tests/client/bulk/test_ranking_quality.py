"""Metrics of rankings against scikit-learn."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from peltier_client.bulk.ranking_quality import gain, reciprocal_rank
from sklearn.metrics import ndcg_score

Documents = list[tuple[int, int]]


@given(documents=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), min_size=2, max_size=24))
def test_the_gain_is_that_of_scikit_learn(documents: Documents) -> None:
    """With grades, equal scores, and more documents than count."""
    grades, scores = zip(*documents, strict=True)
    if max(grades) > 0:
        assert gain(grades, scores) == pytest.approx(ndcg_score([grades], [scores], k=10))


def test_the_first_relevant_document_counts() -> None:
    """Of equal scores the relevant document is the last."""
    assert reciprocal_rank([0, 1, 2], [3.0, 2.0, 1.0]) == 1 / 2
    assert reciprocal_rank([1, 0, 0], [1.0, 1.0, 1.0]) == 1 / 3
