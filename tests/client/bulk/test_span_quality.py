"""SQuAD's metrics without libraries."""

import pytest
from peltier_client.bulk.span_quality import score_span
from peltier_training.evaluate import span_metrics

from tests.training.evaluate.test_span_metrics import CASES


@pytest.mark.parametrize(("found", "gold", "exact", "f1"), CASES)
def test_the_metrics_are_those_of_evaluate(found: str, gold: list[str], exact: float, f1: float):
    """Which are torchmetrics'."""
    assert score_span(found, gold) == (exact, pytest.approx(f1))
    assert score_span(found, gold) == pytest.approx(span_metrics.score_span(found, gold))
