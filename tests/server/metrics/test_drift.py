"""Drift of inputs and answers of versions."""

import math
from collections.abc import Callable
from typing import Any

import numpy
import pytest
from peltier_adapters.spec.tasks import TaskType
from peltier_backbone.backbone import Backbone
from peltier_client.protocol import TextPrediction
from peltier_server.context import VersionLabels
from peltier_server.metrics import series
from peltier_server.metrics.drift import DriftMetrics, _index, mean_distance, stability_index
from peltier_server.metrics.series import WINDOW_ROWS, VersionWindows, Window
from prometheus_client import CollectorRegistry

from tests.server.conftest import Running

FIRST = VersionLabels("acme", "sst2", "1")


def answers(label: str, count: int) -> list[dict[str, str]]:
    """Predictions with this label."""
    return [{"label": label}] * count


def test_the_index_is_that_of_the_formula() -> None:
    """Computed by hand for two labels, with half a row more of each; equal distributions have none."""
    p, q = (90.5 / 101, 10.5 / 101), (50.5 / 101, 50.5 / 101)
    expected = sum((a - b) * math.log(a / b) for a, b in zip(p, q, strict=True))
    assert stability_index({"a": 90, "b": 10}, {"a": 50, "b": 50}) == pytest.approx(expected)
    assert stability_index({"a": 90, "b": 10}, {"a": 900, "b": 100}) < 0.001


def test_the_distance_is_that_of_mahalanobis() -> None:
    """Of the means, by the pooled covariance. With few numbers of different size it is computed by hand."""
    first = [bytes([10, 100]), bytes([20, 100]), bytes([10, 120]), bytes([20, 120])]
    recent = [bytes([one[0] + 5, one[1]]) for one in first]
    assert mean_distance(first, recent) == pytest.approx(25 / (8 * 25 / 6 + 1 / 12))
    assert mean_distance(first, first) == 0.0


def test_a_window_needs_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A first window and a recent one; what is older than the window before the last is forgotten."""
    monkeypatch.setattr(series, "WINDOW_ROWS", 10)
    window = Window()
    for value in "a" * 19:
        window.add(value)
    assert _index(window) is None
    window.add("a")
    assert _index(window) == pytest.approx(0.0)
    for value in "b" * 20:
        window.add(value)
    assert (_index(window) or 0) > 1
    for value in "a" * 20:
        window.add(value)
    assert _index(window) == pytest.approx(0.0)


def test_versions_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is asked no more gives its place to another, after ten minutes."""
    monkeypatch.setattr(series, "WINDOW_ROWS", 4)
    now, registry = [0.0], CollectorRegistry()
    windows = VersionWindows(1, lambda: now[0])
    metrics = DriftMetrics(registry, windows)
    second = VersionLabels("acme", "sst2", "2")
    for at, labels in ((0.0, FIRST), (1.0, second), (700.0, second)):
        now[0] = at
        for _ in range(3):
            windows.observe(labels, 40, answers("good", 4), "classification")
    assert metrics.of(FIRST) == (None, None)
    assert metrics.of(second) == pytest.approx((0.0, 0.0))
    labels = {"tenant": "acme", "adapter": "sst2", "version": "2"}
    assert registry.get_sample_value("peltier_answer_drift", labels) == pytest.approx(0.0)


def test_chance_alone_is_no_clear_drift() -> None:
    """Of 77 equally frequent labels the index of equal distributions is above 0.25 as a rule, and no drift is named;
    a third of the rows with one label more is named."""
    random = numpy.random.default_rng(1)
    now = [0.0]
    windows = VersionWindows(200)
    metrics = DriftMetrics(CollectorRegistry(), windows, lambda: now[0])
    for number in range(100):
        labels = VersionLabels("acme", "intents", str(number))
        windows.observe(labels, 1000, answers("", 0), "classification")
        for label in random.integers(0, 77, 1000):
            windows.observe(labels, 10, answers(str(label), 1), "classification")
    indices = [metrics.of(labels).answers or 0.0 for labels in windows.followed]
    assert sum(index > 0.25 for index in indices) > 50
    assert metrics.drifting() == []
    changed = VersionLabels("acme", "intents", "7")
    windows.observe(changed, 10 * 250, answers("7", 250), "classification")
    assert metrics.drifting() == []
    now[0] = 11.0
    assert [labels for labels, _ in metrics.drifting()] == [changed]


def predicted(task_type: TaskType, random: numpy.random.Generator, changed: bool) -> Any:
    """A random prediction of a task of this type. Changed ones are of another distribution."""
    match task_type:
        case "multilabel":
            rates = {"a": 0.6 if changed else 0.2, "b": 0.2, "c": 0.2, "d": 0.2}
            return {"labels": [label for label, rate in rates.items() if random.random() < rate]}
        case "token-classification":
            # Of one label in a text, as names of one kind often are.
            label = random.choice(["place", "person"], p=[0.8, 0.2] if changed else [0.4, 0.6])
            return {"entities": [{"label": f"B-{label}" if number else label} for number in range(random.integers(9))]}
        case "regression":
            return {"value": float(random.normal(0.7 if changed else 0.0))}
        case "span":
            length = int(random.choice([0, 20], p=[0.7, 0.3] if changed else [0.3, 0.7]))
            return {"answer": "x" * length, "start": 0, "end": length, "score": 1.0}
        case _:
            text = "x" * int(random.lognormal(3.6 if changed else 3.0, 0.5))
            return TextPrediction(text=text, score=1.0, finish_reason="stop")


@pytest.mark.parametrize("task_type", ["multilabel", "token-classification", "regression", "span", "text2text"])
def test_each_kind_of_answer_drifts(task_type: TaskType) -> None:
    """By its labels, tags, numbers or lengths, and not by chance."""
    random, now = numpy.random.default_rng(1), [0.0]
    windows = VersionWindows(20)
    metrics = DriftMetrics(CollectorRegistry(), windows, lambda: now[0])
    every = [VersionLabels("acme", "any", str(number)) for number in range(20)]
    for labels in every:
        for _ in range(2000):
            windows.observe(labels, 10, [predicted(task_type, random, False)], task_type)
    assert [metrics.of(labels).answers for labels in every] != [None] * 20
    assert metrics.drifting() == []
    for _ in range(1000):
        windows.observe(every[7], 10, [predicted(task_type, random, True)], task_type)
    now[0] = 11.0
    assert [labels for labels, _ in metrics.drifting()] == [every[7]]
    kept = windows.followed[every[7]]
    assert len(kept.answers.first) <= 10
    assert kept.deciles is None or not kept.deciles._first


@pytest.mark.parametrize("task_type", ["embedding", "sparse-embedding", "multi-vector-embedding", "ranking"])
def test_vectors_and_scores_have_a_drift_of_inputs_alone(task_type: TaskType) -> None:
    """Nothing is counted of their answers."""
    windows = VersionWindows(1)
    windows.observe(FIRST, 4000, [{"embedding": [0.1], "score": 0.1}] * 2000, task_type)
    assert windows.followed[FIRST].answers.recent is None
    assert windows.followed[FIRST].inputs.first


def test_generated_labels_and_numbers_are_counted_as_others() -> None:
    """Those that are none, too."""
    windows, second = VersionWindows(2), FIRST._replace(version="2")
    said = {"g": "good", "?": None}
    given = [TextPrediction(text=text, score=1.0, finish_reason="stop", label=label) for text, label in said.items()]
    windows.observe(FIRST, 1000, given * (WINDOW_ROWS // 2), "classification")
    assert windows.followed[FIRST].answers.first == {"good": WINDOW_ROWS // 2, None: WINDOW_ROWS // 2}
    windows.observe(second, 1000, given[1:] * WINDOW_ROWS, "regression")
    assert windows.followed[second].answers.first == {None: WINDOW_ROWS}


async def test_tenants_see_the_drift_of_their_adapters(
    caller: Running, bert: Backbone, make_artifact: Callable[..., bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In their activity, beside the metrics of the operator; other kinds of answers have a drift of inputs alone."""
    monkeypatch.setattr(series, "WINDOW_ROWS", 4)
    await caller.publish("a", make_artifact(bert, "bitfit", name="a"))
    for text in ("good", "good", "good and long and more and more of it"):
        await caller.predict("a", [text] * 4)
    (version,) = (await caller.client.get("/v1/activity")).json()["versions"]
    assert version["input_drift"] > 0.25
    assert version["answer_drift"] >= 0
    page = (await caller.client.get("/metrics")).text
    assert f'peltier_input_drift{{adapter="a",tenant="{caller.tenant}",version="1"}}' in page
