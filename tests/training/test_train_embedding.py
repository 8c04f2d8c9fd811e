"""Training of embeddings, from files to an artifact."""

import json
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from peltier_adapters.answers import embeddings
from peltier_adapters.artifact.artifact import load_artifact
from peltier_adapters.artifact.manifest import Manifest
from peltier_adapters.golden.golden import check_golden
from peltier_adapters.spec.tasks import TaskType
from peltier_backbone.backbone import Backbone
from peltier_training.config.preparation import prepare, prepare_evaluation
from peltier_training.config.run import Run
from peltier_training.config.task_options import EmbeddingOptions
from peltier_training.data.data import Data
from peltier_training.errors import TrainingError
from peltier_training.evaluate.adapters import evaluate
from peltier_training.train import train

from tests.training.conftest import MakeRun

COLUMNS = ("first", "second")
_TOPICS = ("good", "bad")
_FILLERS = ("a", "the", "is", "very", "and")


def _text(draw: random.Random, topic: str) -> str:
    words = [topic, *draw.choices(_FILLERS, k=draw.randint(0, 2))]
    draw.shuffle(words)
    return " ".join(words)


def _row(draw: random.Random, *, scored: bool) -> dict[str, Any]:
    """Two texts; they belong together if they have the same topic."""
    topic = draw.choice(_TOPICS)
    other = draw.choice(_TOPICS) if scored else topic
    score = {"label": 5.0 * (topic == other)} if scored else {}
    return {"first": _text(draw, topic), "second": _text(draw, other), **score}


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Data]:
    """Files of 64 and 24 pairs, with scores from 0 to 5, or without."""
    folder = tmp_path_factory.mktemp("pairs")

    def write(*, train_scored: bool, scored: bool) -> Data:
        files = []
        for name, count, has_scores in (("train", 64, train_scored), ("validation", 24, scored)):
            draw, path = random.Random(name), folder / f"{name}-{has_scores}.jsonl"
            path.write_text("".join(json.dumps(_row(draw, scored=has_scores)) + "\n" for _ in range(count)))
            files.append(path)
        return Data(*files, COLUMNS)

    return write


def proved_and_measured(run: Run, found: Mapping[str, float], bert: Backbone) -> Manifest:
    """The manifest of an artifact whose golden examples prove it, and which is measured as its training was."""
    artifact = load_artifact(run.output, bert)
    assert check_golden(bert, artifact) == []
    rows = prepare_evaluation(run.output, run.data.validation, run.backbone, {})
    assert evaluate(bert, artifact, rows.examples).metrics == pytest.approx(found, abs=1e-5)
    return artifact.manifest


# Task type, with scores or without, epochs, and what the manifest says of the embedding and of its head.
LEARNED: list[tuple[TaskType, bool, int, EmbeddingOptions, dict[str, Any]]] = [
    (
        "embedding", True, 4, EmbeddingOptions(),
        {"normalized": True, "pooling": "mean", "projection": False, "outputs": 48},
    ),
    (
        "embedding", False, 1, EmbeddingOptions(projection=8, normalize=False),
        {"normalized": False, "projection": True, "outputs": 8},
    ),
    *(
        (kind, scored, epochs, options, head)
        for kind, epochs, options, head in (
            ("sparse-embedding", 6, EmbeddingOptions(terms=12), {"terms": 12, "outputs": 48}),
            ("multi-vector-embedding", 4, EmbeddingOptions(projection=12), {"pooling": "tokens", "outputs": 12}),
        )
        for scored in (True, False)
    ),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "scored", "epochs", "options", "head"), LEARNED)
def test_embeddings_learn_pairs(make_run, pairs, bert, kind, scored, epochs, options, head):
    """With scores or without. The artifact is measured the same, and its golden examples prove it."""
    data = pairs(train_scored=scored, scored=scored)
    run = make_run(kind, "lora", data=data, learning_rate=2e-2, epochs=epochs, embedding=options)
    result = train(run)
    terms = {"terms"} if kind == "sparse-embedding" else set()
    assert set(result.metrics) == terms | ({"spearman", "pearson"} if scored else {"mrr", "accuracy"})
    assert result.report.metric == ("spearman" if scored else "mrr")
    assert (result.report.residuals is None) is not scored
    assert result.metrics["spearman"] > 0.6 if scored else epochs == 1 or result.metrics["mrr"] > 0.3
    assert not terms or 0 < result.metrics["terms"] <= 12
    manifest = proved_and_measured(run, result.metrics, bert)
    assert (manifest.task.type, manifest.task.inputs) == (kind, "single")
    assert {name: getattr(manifest.task if name == "normalized" else manifest.head, name) for name in head} == head


def test_full_fine_tuning_learns_scores(make_run: MakeRun, pairs: Callable[..., Data]):
    """Its report shows cosines beside the scores."""
    data = pairs(train_scored=True, scored=True)
    result = train(make_run("embedding", "full", data=data, learning_rate=3e-3, epochs=7))
    assert set(result.metrics) == {"spearman", "pearson"}
    assert result.metrics["spearman"] > 0.6
    assert result.report.residuals is not None


def test_scores_may_choose_the_epoch_of_pairs_without_scores(make_run: MakeRun, pairs: Callable[..., Data]):
    """Only the validation has some. A projection learns too."""
    data, options = pairs(train_scored=False, scored=True), EmbeddingOptions(projection=8, normalize=False)
    result = train(make_run("embedding", "lora", data=data, learning_rate=2e-2, epochs=4, embedding=options))
    assert result.metrics["spearman"] > 0.6
    assert result.report.metric == "spearman"


def test_the_flops_loss_leaves_fewer_terms(make_run: MakeRun, pairs: Callable[..., Data]):
    data, terms = pairs(train_scored=False, scored=False), []
    for weight in (0.0, 1.0):
        options = EmbeddingOptions(terms=64, flops_weight=weight)
        run = make_run("sparse-embedding", "lora", data=data, learning_rate=2e-2, epochs=2, embedding=options)
        terms.append(train(run).metrics["terms"])
    assert terms[1] < terms[0]


@pytest.mark.slow
def test_matryoshka_trains_the_first_values(make_run: MakeRun, pairs: Callable[..., Data], bert: Backbone):
    """Two of them tell topics apart better than two values of an embedding that was trained whole."""
    data, found = pairs(train_scored=True, scored=True), {}
    for matryoshka in (None, "2"):
        options = EmbeddingOptions(matryoshka=matryoshka)
        numbers = {"learning_rate": 2e-2, "epochs": 8, "backbone_dropout": 0.0}
        run = make_run("embedding", "lora", data=data, embedding=options, **numbers)
        result = train(run)
        scores = torch.tensor([example.label for example in prepare(run).data.validation.examples])
        vectors = result.learner.evaluate(prepare(run).data.validation.examples).scores
        first, second = embeddings.read(result.learner.task, vectors, 2).unbind(1)
        found[matryoshka] = float(torch.corrcoef(torch.stack([(first * second).sum(-1), scores]))[0, 1])
    assert found["2"] > found[None] + 0.1


def test_each_text_is_trained_alone(make_run: MakeRun, pairs: Callable[..., Data], bert: Backbone):
    """The artifact's embedding of a text is the one that training measured, whatever it was paired with."""
    data = pairs(train_scored=True, scored=True)
    result = train(make_run("embedding", "adamix", data=data, epochs=1))
    examples = prepare(make_run("embedding", data=data)).data.validation.examples
    swapped = [type(one)(one.input[::-1], one.label, one.where) for one in examples]  # type: ignore[arg-type]
    assert result.learner.evaluate(swapped).metrics == pytest.approx(result.metrics, abs=1e-6)


@pytest.mark.parametrize(
    ("options", "changes", "message"),
    [
        (EmbeddingOptions(projection=0), {}, "projection is 0; it must be from 1 to"),
        (EmbeddingOptions(matryoshka="a,2"), {}, "matryoshka is 'a,2'; it must be numbers of dimensions"),
        (EmbeddingOptions(matryoshka="2,64"), {}, "matryoshka has 64 dimensions; the embedding has 48"),
        (EmbeddingOptions(temperature=0.0), {}, "temperature is 0.0; it must be a number above 0"),
        (EmbeddingOptions(), {"metric": "mrr"}, "metric 'mrr' is not one of pairs with scores: spearman, pearson"),
    ],
)
def test_bad_options_are_one_sentence(make_run, pairs, options, changes, message):
    run = make_run("embedding", data=pairs(train_scored=True, scored=True), embedding=options, **changes)
    with pytest.raises(TrainingError, match=f"^{message}"):
        prepare(run)


def test_a_missing_score_is_named(make_run: MakeRun, pairs: Callable[..., Data], tmp_path: Path):
    """A column that some rows have, and one that is named and that no row has."""
    data = pairs(train_scored=True, scored=True)
    rows = tmp_path / "rows.jsonl"
    rows.write_text(data.train.read_text() + '{"first": "a", "second": "b"}\n')
    for broken, message in (
        (Data(rows, data.validation, COLUMNS), f"^{rows}:65 has no column 'label'"),
        (Data(rows, data.validation, COLUMNS, "score"), f"^{rows} has no column 'score'"),
        (Data(rows, data.validation, ("first",)), "^embedding has two text columns, the texts of a pair; 1 were given"),
    ):
        with pytest.raises(TrainingError, match=message):
            prepare(make_run("embedding", data=broken))


def test_options_of_embeddings_are_for_them(make_run: MakeRun):
    with pytest.raises(
        TrainingError,
        match=r"^projection is for embedding and multi-vector-embedding; the task type is classification$",
    ):
        prepare(make_run("classification", embedding=EmbeddingOptions(projection=8)))


def test_the_number_of_terms_is_an_option(make_run: MakeRun, pairs: Callable[..., Data]):
    """Not a setting, and from 8 on."""
    data = pairs(train_scored=False, scored=False)
    with pytest.raises(TrainingError, match=r"^setting 'head_terms' is '20'; give the number of terms by --terms$"):
        prepare(make_run("sparse-embedding", data=data, overrides={"head_terms": "20"}))
    with pytest.raises(TrainingError, match=r"^terms is 7; it must be from 8 to 1024$"):
        prepare(make_run("sparse-embedding", data=data, embedding=EmbeddingOptions(terms=7)))
