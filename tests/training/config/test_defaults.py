"""The numbers of a run that gives none."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from peltier_backbone.backbone import Backbone
from peltier_backbone.checkpoint.config import BertConfig
from peltier_training.config.defaults import fill_in
from peltier_training.config.run import Hyperparameters, Run

from tests.support.published_counts import CONFIGS

MakeRun = Callable[..., Run]
NOTHING = Hyperparameters()


def _filled(make_run: MakeRun, backbone: Backbone, num_rows: int, **given: object) -> Hyperparameters:
    run = replace(make_run(), hyperparameters=replace(NOTHING, **given))
    return fill_in(run, backbone.config, num_rows).hyperparameters


@pytest.mark.parametrize(
    ("num_rows", "batch_size", "epochs"),
    [(1, 16, 300), (200, 16, 24), (1000, 16, 5), (1999, 16, 5), (2000, 32, 5), (100_000, 32, 5)],
)
def test_few_rows_are_passed_often(make_run: MakeRun, bert: Backbone, num_rows: int, batch_size: int, epochs: int):
    """Epochs make at least 300 steps, and few rows are taken in smaller batches."""
    found = _filled(make_run, bert, num_rows)
    assert (found.batch_size, found.epochs) == (batch_size, epochs)
    assert epochs * -(-num_rows // batch_size) >= 300


def test_processes_share_the_steps(make_run: MakeRun, bert: Backbone, monkeypatch: pytest.MonkeyPatch):
    """Of two processes each step takes twice the rows, so there are twice as many epochs."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert _filled(make_run, bert, 200).epochs == 43


def test_a_run_without_epochs_stops_early(make_run: MakeRun, bert: Backbone):
    """It chooses its epoch on at most as many inputs as it trains on, or 500."""
    few, many = _filled(make_run, bert, 200), _filled(make_run, bert, 3000)
    assert (few.patience, few.eval_rows, many.eval_rows) == (8, 500, 3000)


@pytest.mark.parametrize(("num_rows", "interval"), [(3000, 1), (200, 2), (48, 5)])
def test_a_run_without_epochs_validates_at_most_twenty_times(
    make_run: MakeRun, bert: Backbone, num_rows: int, interval: int
):
    """Few rows make many short epochs. A run whose epochs are given, as a recipe's are, validates after each."""
    found = _filled(make_run, bert, num_rows)
    assert found.epochs is not None
    assert (found.validation_interval, found.epochs / interval <= 20) == (interval, True)
    assert _filled(make_run, bert, num_rows, epochs=60).validation_interval is None


def test_what_is_given_stays(make_run: MakeRun, bert: Backbone):
    """A run of so many epochs trains them all and validates on all rows, as it was told."""
    given = {"epochs": 3, "batch_size": 7, "learning_rate": 0.1, "backbone_dropout": 0.2}
    assert _filled(make_run, bert, 200, **given) == replace(NOTHING, **given)
    found = _filled(make_run, bert, 200, patience=2, eval_rows=30)
    assert (found.patience, found.eval_rows) == (2, 30)


def test_the_dropout_of_the_backbone_is_that_of_the_checkpoint(make_run: MakeRun, bert: Backbone):
    """Full fine-tuning by transformers has it too; a rate of 0 is one."""
    config = replace(bert.config, dropout=0.3)
    runs = [make_run(), make_run(backbone_dropout=0.0)]
    assert [fill_in(run, config, 200).backbone_dropout for run in runs] == [0.3, 0.0]


def test_filling_in_twice_changes_nothing(make_run: MakeRun, bert: Backbone):
    """A sweep fills in before its trials do."""
    run = replace(make_run(), hyperparameters=NOTHING)
    once = fill_in(run, bert.config, 200)
    assert fill_in(once, bert.config, 100_000) == once


@pytest.mark.parametrize(
    ("preset", "published", "narrow"),
    [("bitfit", 1e-4, 6e-4), ("lora", 5e-4, 3e-3), ("compacter", 3e-3, 3e-3), ("intrinsic-said", 3e-2, 3e-2)],
)
def test_a_narrow_encoder_has_a_higher_rate(
    make_run: MakeRun, bert: Backbone, preset: str, published: float, narrow: float
):
    """The papers' rate on encoders of their width, six times as much on narrower ones, but not raised beyond 3e-3."""
    run = replace(make_run(preset=preset), hyperparameters=NOTHING)
    assert fill_in(run, CONFIGS["bert-base"], 200).learning_rate == published
    assert fill_in(run, bert.config, 200).learning_rate == pytest.approx(narrow)


def test_a_t5_has_its_published_rate(make_run: MakeRun, t5: Backbone):
    """Whatever its width: the papers train t5-small too."""
    run = replace(make_run(preset="bitfit"), hyperparameters=NOTHING)
    assert fill_in(run, t5.config, 200).learning_rate == 3e-4


def test_a_sentence_encoder_is_pooled_as_it_was_trained(make_run: MakeRun):
    """For single texts. Pairs, and every other checkpoint, have the pooling of the family; what is set stays."""

    def found(config: BertConfig, columns: tuple[str, ...] = ("text",), **overrides: str) -> object:
        run = make_run(overrides=overrides)
        run = replace(run, data=replace(run.data, text_columns=columns))
        return fill_in(run, config, 200).overrides.get("pooling")

    plain = CONFIGS["bert-base"]
    assert isinstance(plain, BertConfig)
    sentences = replace(plain, sentence_pooling="mean")
    assert [found(plain), found(sentences), found(sentences, ("a", "b"))] == [None, "mean", None]
    assert [found(sentences, pooling="auto"), found(sentences, pooling="first")] == ["mean", "first"]
