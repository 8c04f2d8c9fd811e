"""What is refused before torch is imported."""

import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from peltier_adapters.presets.presets import PRESETS
from peltier_backbone.backbone import Backbone
from peltier_backbone.checkpoint.config import BertConfig
from peltier_training.config.preparation import check_settings, fill_in, prepare, routed_sides
from peltier_training.config.run import Hyperparameters, Run
from peltier_training.errors import TrainingError

from tests.support.published_counts import CONFIGS

Cases = Mapping[str, tuple[Sequence[str], str]]
# Runs the command once for each list of words in one fresh process: status, output, error and what it has imported.
PROGRAM = """
import contextlib, functools, io, json, sys
from peltier_client import cli
cli.create_command = functools.cache(cli.create_command)
for words in json.loads(sys.argv[1]):
    sys.argv, out, err, status = ["peltier", *words], io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            cli.main()
        except SystemExit as end:
            status = end.code
    heavy = [name for name in ("torch", "transformers", "sklearn", "scipy") if name in sys.modules]
    print(json.dumps([status, out.getvalue(), err.getvalue(), heavy]))
"""

TRAIN: Cases = {
    "path": (["--train=classification-trian.jsonl"], "does not exist, the nearest is 'classification-train.jsonl'"),
    "validation path": (["--validation=nowhere.jsonl"], "nowhere.jsonl does not exist"),
    "text column": (["--text-column=texts"], "has no column 'texts', the nearest is 'text'; it has 'text', 'label'"),
    "label column": (["--label-column=lable"], "has no column 'lable', the nearest is 'label'; it has 'text', 'label'"),
    "preset": (
        ["--preset=compactor"],
        "preset 'compactor' is unknown, the nearest is 'compacter'; it is one of houlsb",
    ),
    "setting": (
        ["--set=bottelneck=3"],
        "preset 'compacter' has no setting 'bottelneck'; it has activation, bottleneck",
    ),
    "misfit": (["--set=n=5"], "preset 'compacter' does not fit this backbone: bottleneck: n = 5 must divide"),
    "recipe": (
        ["--recipe=compacter/t5-bse/glue"],
        "recipe 'compacter/t5-bse/glue' is unknown; similar names are compacter",
    ),
    "output": (["--output=nowhere/toy.safetensors"], "cannot be written: its folder does not exist"),
    "backbone": (["--backbone=./nowhere"], "backbone './nowhere' is not a directory"),
    "labels": (["--labels=good,bad"], "label 'negative' is not one of the task's 2 labels: good, bad"),
    "separator": (["--label-separator=|"], "label_separator is for multilabel; the task type is classification"),
    "metric": (["--metric=speed"], "metric 'speed' is not one of classification's"),
    "max length": (["--max-length=97"], "max_length is 97; this backbone takes 96 tokens"),
    "template": (["--template=sst2"], "template is an option of T5; backbone"),
    "task prefix": (["--no-task-prefix"], "task_prefix is an option of T5; backbone"),
    "labels of texts": (["--task-type=text2text", "--labels=a,b"], "text2text has no label names"),
}
SWEEP: Cases = {
    "sweep column": (["--text-column=texts"], "has no column 'texts', the nearest is 'text'"),
    "sweep preset": (["--preset=compactor"], "preset 'compactor' is unknown, the nearest is 'compacter'"),
    "sweep path": (["--train=nowhere.jsonl"], "nowhere.jsonl does not exist"),
}
EVALUATE: Cases = {
    "evaluate data": (["--data=classification-validaton.jsonl"], "nearest is 'classification-validation.jsonl'"),
    "evaluate column": (["--text-column=texts"], "has no column 'texts', the nearest is 'text'"),
    "evaluate label": ([], "label 'negative' is not one of the task's 2 labels: yes, no"),
    "evaluate backbone": (["--backbone=./nowhere"], "backbone './nowhere' is not a directory"),
}
NO_ARTIFACT: Cases = {
    "evaluate artifact": (["nowhere.safetensors"], "nowhere.safetensors cannot be read: No such file or directory")
}


def check(cases: Cases, words: Sequence[str], folder: Path) -> None:
    """Each case, its words behind `words`, is one sentence of a process that has imported nothing heavy."""
    calls = json.dumps([[*words, *given] for given, _ in cases.values()])
    done = subprocess.run([sys.executable, "-c", PROGRAM, calls], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for (case, (_, reason)), line in zip(cases.items(), done.stdout.splitlines(), strict=True):
        status, out, err, heavy = json.loads(line)
        assert (status, out, err.count("\n"), heavy) == (1, "", 1, []), (case, err)
        assert err.startswith("error: "), case
        assert reason in err, case


def files() -> list[str]:
    """The two files of the toy task, from their folder."""
    return [f"--{part}=classification-{part}.jsonl" for part in ("train", "validation")]


def test_a_mistake_in_a_training_costs_no_heavy_import(toy: Path, bert: Backbone, tmp_path: Path):
    """Paths, columns, names, settings and labels; nothing is written."""
    own = [f"--backbone={bert.name}", f"--output={tmp_path}/toy.safetensors", "--max-length=32"]
    check(TRAIN, ["train", "--task=toy", *own, *files()], toy)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_mistake_in_a_sweep_costs_no_heavy_import(toy: Path, bert: Backbone, tmp_path: Path):
    """Of its one task, and of its presets."""
    own = [f"--backbone={bert.name}", f"--output={tmp_path}/sweep", "--max-length=32", "--preset=lora"]
    check(SWEEP, ["sweep", "--task=toy", *own, *files()], toy)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_mistake_in_an_evaluation_costs_no_heavy_import(toy, bert, tmp_path, make_artifact):
    """Of the data, the columns, the labels and the backbone, and where there is no artifact."""
    artifact = tmp_path / "a.safetensors"
    artifact.write_bytes(make_artifact(bert, labels=("yes", "no")))
    own = [f"--backbone={bert.name}", "--data=classification-validation.jsonl"]
    check(EVALUATE, ["evaluate", str(artifact), *own], toy)
    check(NO_ARTIFACT, ["evaluate", *own], toy)


MakeRun = Callable[..., Run]
NOTHING = Hyperparameters()


def _filled(make_run: MakeRun, backbone: Backbone, num_rows: int, **given: object) -> Hyperparameters:
    run = replace(make_run(), hyperparameters=replace(NOTHING, **given))
    return fill_in(run, backbone.config, num_rows).hyperparameters


@pytest.mark.parametrize(
    ("num_rows", "batch_size", "most", "interval", "patience"),
    [
        (1, 16, 2000, 40, 4),
        (200, 16, 156, 3, 4),
        (1000, 16, 32, 1, 3),
        (1999, 16, 16, 1, 2),
        (2000, 32, 32, 1, 3),
        (100_000, 32, 10, 1, 2),
    ],
)
def test_a_run_without_epochs_has_an_open_end(make_run, bert, num_rows, batch_size, most, interval, patience):
    """It has at most 2,000 steps or 10 epochs, and waits for 150 steps or two validations without improvement. Few rows
    have smaller batches, and fewer validations than epochs."""
    found = _filled(make_run, bert, num_rows)
    assert (found.batch_size, found.epochs, found.validation_interval) == (batch_size, most, interval)
    assert (found.patience, found.warmup, found.open_end) == (patience, 30, True)
    assert most % interval == 0  # it ends at a validation


def test_processes_share_the_steps(make_run: MakeRun, bert: Backbone, monkeypatch: pytest.MonkeyPatch):
    """Of two processes each step takes twice the rows, so there are twice as many epochs."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert _filled(make_run, bert, 200).epochs == 288


def test_a_run_without_epochs_limits_its_validation_rows(make_run: MakeRun, bert: Backbone):
    """It chooses its epoch on at most as many inputs as it trains on, or 500."""
    assert (_filled(make_run, bert, 200).eval_rows, _filled(make_run, bert, 3000).eval_rows) == (500, 3000)


def test_what_is_given_stays(make_run: MakeRun, bert: Backbone):
    """A run of so many epochs trains them all and validates on all rows, as it was told."""
    given = {"epochs": 3, "batch_size": 7, "learning_rate": 0.1, "backbone_dropout": 0.2}
    assert _filled(make_run, bert, 200, **given) == replace(NOTHING, **given, warmup=0.06)
    found = _filled(make_run, bert, 200, patience=9, eval_rows=30, warmup=0.1)
    assert (found.patience, found.eval_rows, found.warmup) == (9, 30, 0.1)


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


# Type of task, family and preset, and the rates on a backbone of the papers' width and on the small one.
RATES = [
    ("classification", "bert", "bitfit", 1e-4, 6e-4),
    ("classification", "bert", "lora", 5e-4, 2e-3),
    ("classification", "bert", "compacter", 3e-3, 3e-3),
    ("classification", "bert", "intrinsic-said", 3e-2, 3e-2),
    ("token-classification", "bert", "lora", 5e-4, 2e-3),
    # At 2e-3 the F1 of UniPELT on WNUT-17 stays 0.
    ("token-classification", "bert", "unipelt-apl", 5e-4, 1e-3),
    ("token-classification", "bert", "prefix", 2e-4, 1e-3),
    ("text2text", "t5", "adamix", 5e-4, 3e-3),
    ("text2text", "t5", "compacter", 3e-3, 1e-2),
    ("text2text", "t5", "full", 3e-4, 3e-4),
]


@pytest.mark.parametrize(("task_type", "family", "preset", "published", "narrow"), RATES)
def test_a_narrow_backbone_has_a_higher_rate(make_run, request, task_type, family, preset, published, narrow):
    """Six times as much, but not raised beyond 2e-3; for adapters of a T5 beyond 1e-2, and for prefixes that label
    tokens beyond 1e-3."""
    run = replace(make_run(task_type, preset=preset), hyperparameters=NOTHING)
    config = request.getfixturevalue(family).config
    wide = CONFIGS["bert-base"] if family == "bert" else replace(config, hidden_size=512)
    assert fill_in(run, wide, 200).learning_rate == published
    assert fill_in(run, config, 200).learning_rate == pytest.approx(narrow)


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


def test_outputs_without_distributions_have_no_consistency(make_run: MakeRun):
    """A weight that would change nothing is refused; without one a regression is trained as the paper says."""
    run = make_run("regression", preset="adamix", overrides={"consistency": "2"})
    with pytest.raises(
        TrainingError, match=r"^setting 'consistency' is 2; regression has no distributions to compare$"
    ):
        prepare(run)
    prepare(replace(run, overrides={"consistency": "0"}))


def test_the_shared_projection_has_no_copies():
    sides = {"up": ("down",), "down": ("up",), "none": ("down", "up")}
    assert {share: routed_sides({"experts": 4, "share": share}) for share in sides} == sides
    assert routed_sides({"rank": 8}) == ()


WRONG = [
    ("adamix", "experts", "0", "setting 'experts' is 0; it must be from 1 to 64"),
    ("adamix", "experts", "500", "setting 'experts' is 500; it must be from 1 to 64"),
    ("adamix", "consistency", "nan", "setting 'consistency' is nan; it must be from 0 to 1000"),
    ("adamix", "consistency", "-1", "setting 'consistency' is -1.0; it must be from 0 to 1000"),
    ("adamix", "share", "both", "setting 'share' is 'both'; it must be one of up, down, none"),
    ("adamix", "routing", "token", "setting 'routing' is 'token'; it must be one of batch, sample"),
    ("adamix", "map", "phm", "setting 'map' is 'phm'; merging experts needs 'dense'"),
    ("prefix", "mlp", "-4", "setting 'mlp' is -4; it must be from 0 to "),
    ("prompt-t", "start", "zeros", "setting 'start' is 'zeros'; it must be one of random, vocabulary"),
    ("prompt-t", "length", "400", "setting 'length' is 400; the vocabulary to start from has .* entries"),
]


@pytest.mark.parametrize(("preset", "name", "value", "message"), WRONG)
def test_a_wrong_setting_is_named(t5: Backbone, preset: str, name: str, value: str, message: str):
    """With its value and the rule; a single expert, which is no mixture, is right."""
    check_settings(PRESETS["adamix"].settings({"experts": "1"}, t5.config), t5.config)
    with pytest.raises(TrainingError, match=message):
        check_settings(PRESETS[preset].settings({name: value}, t5.config), t5.config)
