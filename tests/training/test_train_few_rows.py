"""The shortest trainings that are accepted end in an adapter that does something; others are refused at once."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from peltier_adapters.presets.presets import PRESETS
from peltier_backbone.backbone import Backbone
from peltier_training.config.preparation import prepare
from peltier_training.config.run import Run
from peltier_training.config.task_options import EmbeddingOptions
from peltier_training.errors import TrainingError
from peltier_training.train import train

from tests.training.conftest import MakeRun, proved, write_data
from tests.training.test_train_t5 import SMALL

WORDS = ("good", "bad", "good", "bad")
TEXT, PAIR = ("text",), ("text", "pair")
PAIRS = [{"text": f"a {word} film {place}", "pair": f"the {word} plot {place}"} for place, word in enumerate(WORDS)]
# Four rows of each type of task, and their text columns.
ROWS: Mapping[str, tuple[Sequence[Mapping[str, Any]], tuple[str, ...]]] = {
    "classification": ([{"text": f"a {word} film", "label": word} for word in WORDS], TEXT),
    "multilabel": ([{"text": f"a {word} film", "label": [word]} for word in WORDS], TEXT),
    "regression": ([{"text": f"a {word} film", "label": len(word)} for word in WORDS], TEXT),
    "text2text": ([{"text": f"a {word} film", "label": word} for word in WORDS], TEXT),
    "token-classification": ([{"text": ["a", word], "label": ["O", "B-x"]} for word in WORDS], TEXT),
    "span": (
        [
            {"text": "what film ?", "pair": f"a {word} film", "label": {"text": [word], "answer_start": [2]}}
            for word in WORDS
        ],
        PAIR,
    ),
    "ranking": (
        [{"text": f"film {place // 2}", "pair": f"a {word}", "label": place % 2} for place, word in enumerate(WORDS)],
        PAIR,
    ),
    "embedding": (PAIRS, PAIR),
    "sparse-embedding": (PAIRS, PAIR),
    "multi-vector-embedding": (PAIRS, PAIR),
}  # fmt: skip
TARGET_TYPES = ("text2text", "classification", "regression")
CASES = [
    *(("bert", kind, preset) for kind in ROWS if kind != "text2text" for preset in PRESETS if PRESETS[preset].encoder),
    *(("t5", kind, preset) for kind in TARGET_TYPES for preset in PRESETS if PRESETS[preset].t5),
]
# Every preset of an encoder and of a T5, and every type of task with a preset that starts without an effect.
KEPT = [
    case for case in CASES if case[1] == {"bert": "classification", "t5": "text2text"}[case[0]] or case[2] == "lora"
]


@pytest.fixture
def make_few(make_run: MakeRun, tmp_path: Path) -> MakeRun:
    """`make_run` on a few rows for training and validation."""

    def make(kind: str, preset: str, rows: Sequence[Mapping[str, Any]] | None = None, **changes: Any) -> Run:
        own, columns = ROWS[kind]
        data = write_data(tmp_path / "few.jsonl", own if rows is None else rows, columns)
        return make_run(kind, preset, data=data, **{"epochs": 1, **changes})

    return make


@pytest.mark.parametrize(
    ("family", "kind", "preset"),
    [pytest.param(*case, marks=[] if case in KEPT else [pytest.mark.slow]) for case in CASES],
)
def test_one_step_ends_in_an_adapter_with_an_effect(make_few, request, family, kind, preset):
    """One epoch on four rows is one step, with every preset and every type of task. Its validation has a loss, which
    decides among equal epochs."""
    backbone: Backbone = request.getfixturevalue(family)
    run = make_few(kind, preset, backbone=backbone.name, overrides=small(family, preset), merge_report=None)
    if preset == "vera" and family == "t5":
        # Its start is 1/100 of a LoRA's; in this random T5 of 48 values a step of less is below float32's rounding.
        run = replace(run, hyperparameters=replace(run.hyperparameters, learning_rate=0.5))
    if kind == "sparse-embedding":
        run = replace(run, embedding=EmbeddingOptions(terms=16))
    report = train(run).report
    assert (report.resolved.steps, report.resolved.best_step) == (1, 1)
    assert len(report.curves.validation["loss"]) == 1
    proved(run, backbone)


def small(family: str, preset: str) -> dict[str, str]:
    """Settings that fit the small backbones."""
    if family == "t5":
        return SMALL.get(preset, {})
    return {"adapterdrop": {"skip": "1"}, "adamix": {"bottleneck": "8"}}.get(preset, {})


@pytest.mark.parametrize("warmup", [0, 1, 30, 500])
def test_a_warm_up_that_is_longer_than_the_run_leaves_an_effect(make_few: MakeRun, bert: Backbone, warmup: int):
    """Its first step has 1/(warmup + 1) of the rate."""
    run = make_few("classification", "lora", warmup=warmup)
    train(run)
    proved(run, bert)


ONE_QUERY = [{"text": "film", "pair": f"a {place}", "label": 1} for place in range(4)]
ALONE = [{"text": f"film {place}", "pair": "a plot", "label": 1} for place in range(4)]
NOTHING_TO_COMPARE: Mapping[str, tuple[str, Any, Mapping[str, Any], str]] = {
    "one pair": ("embedding", PAIRS[:1], {}, "pairs without scores are told apart .*; few.jsonl has one pair"),
    "one first text": (
        "embedding", [row | {"text": "film"} for row in PAIRS], {}, "has the same first text in all 4 pairs"
    ),
    "one second text": (
        "multi-vector-embedding", [row | {"pair": "film"} for row in PAIRS], {}, "the same second text in all 4 pairs"
    ),
    "batches of one pair": ("embedding", PAIRS, {"batch_size": 1}, "batch_size is 1, and must be at least 2"),
    "batches of one document": ("ranking", None, {"batch_size": 1}, "batch_size is 1, and must be at least 2"),
    "single documents": ("ranking", ALONE, {}, "no query with several documents of which one is relevant"),
    "no relevant document": (
        "ranking", [row | {"label": 0} for row in ONE_QUERY], {}, "no query with several documents of which one is rel"
    ),
    "equal documents": (
        "ranking", ONE_QUERY, {"ranking_loss": "pairwise"}, "no query with two documents of different relevance"
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", NOTHING_TO_COMPARE)
def test_rows_that_no_batch_compares_are_refused(make_few: MakeRun, case: str):
    """The loss of each step would be 0. A LoRA would end without an effect, a Houlsby as it was drawn."""
    kind, rows, numbers, reason = NOTHING_TO_COMPARE[case]
    with pytest.raises(TrainingError, match=reason):
        prepare(make_few(kind, "houlsby", rows, **numbers))


def test_pairs_with_scores_may_be_alone(make_few: MakeRun):
    """Each is compared with its own score."""
    rows = [row | {"label": place / 4} for place, row in enumerate(PAIRS)]
    assert prepare(make_few("embedding", "lora", rows, batch_size=1)).run.batch_size == 1
