"""`peltier train` and `peltier evaluate` as a user meets them."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from peltier_adapters.artifact.manifest import read_manifest
from peltier_backbone.backbone import Backbone

from tests.client.typed_commands import Outcome, Peltier

MakeArtifact = Callable[..., bytes]


@pytest.fixture
def training(toy: Path, bert: Backbone, tmp_path: Path) -> list[str]:
    """The arguments of a short run; a flag that comes again behind them wins."""
    flags = {
        "task": "toy", "train": toy / "classification-train.jsonl", "backbone": bert.name, "epochs": 1, "device": "cpu",
        "validation": toy / "classification-validation.jsonl", "output": tmp_path / "toy.safetensors",
        "directory": tmp_path / "run", "max-length": 32,
    }  # fmt: skip
    return ["train", *(f"--{name}={value}" for name, value in flags.items())]


@pytest.mark.slow
def test_a_process_trains_what_is_then_evaluated(training, toy, tmp_path, bert):
    """Each ends with one JSON document and without a warning of a library; what was recorded is what is measured."""

    def run(*words: str | Path) -> tuple[dict[str, Any], str]:
        command, environment = [Path(sys.executable).with_name("peltier"), *words, "--json"], {"OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ | environment)
        return json.loads(done.stdout), done.stderr

    trained, err = run(*training)
    data = toy / "classification-validation.jsonl"
    measured, more = run("evaluate", tmp_path / "toy.safetensors", "--backbone", bert.name, "--data", data)
    assert measured == {"metrics": pytest.approx(trained["metrics"]), "rows": 20}
    assert "Warning" not in err + more


def test_metrics_are_a_table(peltier: Peltier, training: list[str], toy: Path, tmp_path: Path, bert: Backbone):
    """Without --json people get a table, with the number of rows; the run's folder has events for TensorBoard."""
    assert "accuracy" in peltier(*training).out
    assert list((tmp_path / "run").rglob("events.out.tfevents.*"))
    data = toy / "classification-validation.jsonl"
    done = peltier("evaluate", tmp_path / "toy.safetensors", "--backbone", bert.name, "--data", data)
    assert done.status == 0
    assert "matthews" in done.out
    assert "20 rows" in done.out
    assert "(CPU threads: 1)" in done.out


def test_divergence_is_said_on_the_last_line(peltier: Peltier, training: list[str]):
    """The sentence has the last line of standard error for itself."""
    done = peltier(*training, "--learning-rate=1e30")
    assert done.status == 1
    assert done.err.splitlines()[-1] == "error: training diverged at learning rate 1e+30; try a lower one"


def test_warnings_are_the_last_word(peltier: Peltier, training: list[str], tmp_path: Path):
    """On standard error and in both files, once each; standard output stays one JSON document."""
    done = peltier(*training, "--learning-rate=1e-5", "--json")
    warned(done, tmp_path)
    assert list(json.loads(done.out)) == ["metrics"]


def warned(done: Outcome, folder: Path) -> None:
    """Asserts the warnings of a training that has learned nothing."""
    assert done.status == 0, done.err
    warnings = json.loads((folder / "toy.report.json").read_text())["warnings"]
    assert any("no better than answering" in sentence for sentence in warnings)
    said = [*(f"warning: {sentence}" for sentence in warnings), f"report: {folder / 'toy.report.html'}"]
    assert done.err.splitlines()[-len(said) :] == said
    assert done.err.count("warning: ") == len(warnings)
    assert (folder / "toy.report.html").read_text().count("no better than answering") == 1


def test_a_baseline_says_why_it_leaves_no_artifact(peltier: Peltier, training: list[str], tmp_path: Path):
    """Its metrics and warnings are printed, and the sentence that stands in the place of the file's name."""
    done = peltier(*training, "--preset=full", "--learning-rate=1e-5")
    warned(done, tmp_path)
    assert "toy.report.html: full for toy; no artifact, because it changes every weight of the backbone" in " ".join(
        done.out.split()
    )
    assert "accuracy" in done.out
    assert not list(tmp_path.rglob("*.safetensors"))


def test_an_adamix_says_what_merging_is_worth(peltier: Peltier, training: list[str], tmp_path: Path):
    """Its report has the ways to answer beside the merged one, unless it is told not to; of a preset without experts
    the comparison is refused."""
    mixture = [*training, "--preset=adamix", "--set=bottleneck=4", "--set=experts=2"]
    assert peltier(*mixture, "--no-merge-report").status == 0
    assert json.loads((tmp_path / "toy.report.json").read_text())["merging"] is None
    assert peltier(*mixture).status == 0
    merging = json.loads((tmp_path / "toy.report.json").read_text())["merging"]
    ways = [way["name"] for way in merging["ways"]]
    assert (merging["experts"], ways) == (2, ["merged", "random routing", "fixed routing", "ensemble"])
    assert "random routing" in (tmp_path / "toy.report.html").read_text()
    assert peltier(*training, "--preset=lora", "--merge-report").err == (
        "error: a merge report compares AdaMix's experts; preset 'lora' has none\n"
    )


def test_a_recipe_prints_what_it_resolved(peltier: Peltier, training: list[str], tmp_path: Path):
    """Each number with where it is from, on standard error; flags win over the recipe's task and its method."""
    flags = ["--recipe=adamix/bert-base/glue/mrpc", "--batch-size=9", "--set=bottleneck=8", "--json"]
    done = peltier(*training, *flags)
    assert done.status == 0
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in done.err.splitlines() if line.startswith("│")]
    found = {name: (value, origin) for name, value, origin in rows}
    assert found["preset"] == ("adamix", "recipe")
    assert found["backbone"][1] == "flag"
    assert found["epochs"] == ("1", "flag")
    assert found["batch_size"] == ("9", "flag")
    assert found["learning_rate"] == ("0.0004", "recipe")
    assert found["weight_decay"] == ("0.1", "recipe")
    assert found["seed"] == ("0", "default")
    assert found["metric"] == ("accuracy", "recipe")
    assert found["set bottleneck"] == ("8", "flag")
    assert found["set experts"] == ("4", "recipe")
    assert found["set activation"] == ("gelu", "default")
    assert "task mrpc" in done.err
    record = recorded(tmp_path / "toy.safetensors")
    assert (record["learning_rate"], record["batch_size"], record["settings"]["bottleneck"]) == (4e-4, 9, 8)


def recorded(path: Path) -> dict[str, Any]:
    return dict(read_manifest(path).training.hyperparameters)


def test_separators_and_skipped_rows_are_remembered(peltier, training, tmp_path, bert):
    """Bad rows are told and counted, the artifact says how labels were separated, and evaluate reads the same way."""
    texts = "the film is good", "a very bad plot", "good actor and film", "the plot is bad"
    rows = [f"{text},{'|'.join(word for word in ('film', 'good', 'plot') if word in text)}" for text in texts]
    (tmp_path / "d.csv").write_text("\n".join(["text,label", *rows, ",film", "too,many,cells", ""]))
    files = [f"--{part}={tmp_path / 'd.csv'}" for part in ("train", "validation")]
    flags = ["--task-type=multilabel", "--label-separator=|", "--skip-bad-rows", "--learning-rate=0.05", "--epochs=4"]
    done = peltier(*training, *files, *flags)
    assert done.status == 0
    assert f"{tmp_path / 'd.csv'}: 2 of 6 rows were skipped" in done.err
    assert "d.csv:7 has 3 cells; the first line names 2 columns" in done.err
    manifest = read_manifest(tmp_path / "toy.safetensors")
    assert manifest.task.labels == ("film", "good", "plot")
    assert manifest.training.data["label_separator"] == "|"
    assert manifest.training.data["skipped_rows"] == {"train": 2, "validation": 2}
    evaluate = ["evaluate", tmp_path / "toy.safetensors", "--backbone", bert.name, "--data", tmp_path / "d.csv"]
    assert re.search(r"2 rows cannot be used: .* \(--skip-bad-rows skips such rows\)$", peltier(*evaluate).err.strip())
    measured = json.loads(peltier(*evaluate, "--skip-bad-rows", "--json").out)
    assert (measured["rows"], measured["skipped_rows"]) == (4, 2)
    assert measured["metrics"] == pytest.approx(manifest.training.metrics)
    refused = peltier(*evaluate, "--label-separator=", "--skip-bad-rows")
    assert "label 'film|good' may be one label, or 2 labels 'film', 'good' separated by '|'" in refused.err


@pytest.fixture
def t5_training(training: list[str], t5: Backbone) -> list[str]:
    """The same on a T5."""
    return [*training, f"--backbone={t5.name}", "--preset=lora"]


ERRORS: dict[str, tuple[list[str], str]] = {
    "pair": (["--set=n"], "--set takes NAME=VALUE, not 'n'"),
    "f1 of three": (
        ["--metric=f1", "--labels=negative,positive,odd"],
        "metric 'f1' is for two labels and it has 3",
    ),
    "label file": (["--labels=nowhere.json"], "--labels nowhere.json cannot be read as JSON"),
    "int8 of a baseline": (
        ["--preset=full", "--dtype=int8"],
        "preset 'full' changes the backbone's weights, and weights in int8 are frozen",
    ),
    "resume": (["--resume"], "there is no checkpoint to resume from in"),
    "another preset": (
        ["--recipe=compacter/t5-base/glue", "--preset=lora"],
        "recipe 'compacter/t5-base/glue' is of preset 'compacter', and --preset is 'lora'",
    ),
    "t5: equal tokens": (["--targets=é,è"], "task targets 'é' and 'è' have the same tokens"),
    "t5: unwritable target": (
        ["--targets={a},{b}", "--answer=generate"],
        "task target '{a}' is generated as 'a', because the tokenizer cannot write it; choose other targets, or",
    ),
    "t5: long target": (
        ["--targets=good film,bad film", "--answer=generate", "--max-new-tokens=1"],
        "task target 'good film' has 2 tokens; max_new_tokens is 1, and no answer has more",
    ),
}


@pytest.mark.parametrize("case", ERRORS)
def test_a_run_that_cannot_be_is_one_line(peltier, training, t5_training, tmp_path, case):
    """Exit status 1 and one sentence on standard error; nothing is written. `test_preparation.py` has what is refused
    without torch."""
    arguments, reason = ERRORS[case]
    done = peltier(*(t5_training if case.startswith("t5") else training), *arguments)
    assert (done.status, done.out, done.err.count("\n")) == (1, "", 1)
    assert done.err.startswith("error: ")
    assert reason in done.err
    assert list(tmp_path.iterdir()) == []


def test_texts_train_and_evaluate(peltier: Peltier, t5_training: list[str], toy: Path, tmp_path: Path, t5: Backbone):
    """Both commands on a text2text task; what was recorded is what is measured."""
    files = [f"--{part}={toy / f'text2text-{part}.jsonl'}" for part in ("train", "validation")]
    flags = ["--task-type=text2text", "--num-beams=2", "--max-new-tokens=7", "--eval-rows=3", "--epochs=2", "--json"]
    trained = peltier(*t5_training, *files, *flags, "--template=film: {text}", "--task-prefix")
    assert trained.status == 0
    metrics = json.loads(trained.out)["metrics"]
    assert sorted(metrics) == ["bleu", "chrf", "exact_match", "loss", "rouge_l"]
    data = toy / "text2text-validation.jsonl"
    done = peltier("evaluate", tmp_path / "toy.safetensors", "--backbone", t5.name, "--data", data, "--json")
    assert json.loads(done.out) == {"metrics": pytest.approx(metrics), "rows": 20}


@pytest.mark.parametrize("arguments", [["--epochs=two"], ["--unknown"]])
def test_wrong_usage_is_status_2(peltier: Peltier, training: list[str], arguments: list[str]):
    done = peltier(*training, *arguments)
    assert done.status == 2
    assert "Usage: peltier train" in done.err


def test_evaluate_explains_what_it_cannot_read(peltier, toy, tmp_path, bert, roberta, make_artifact):
    good, bad = tmp_path / "good.safetensors", tmp_path / "bad.safetensors"
    good.write_bytes(make_artifact(bert, labels=("yes", "no")))
    bad.write_bytes(b"\x80\x04pickle")
    data = toy / "classification-validation.jsonl"
    cases: list[tuple[Path, str, Any, str]] = [
        (tmp_path / "none.safetensors", bert.name, data, "none.safetensors cannot be read: No such file"),
        (bad, bert.name, data, "not a safetensors file"),
        (good, roberta.name, data, "backbone family is 'bert'; this backbone's is 'roberta'\n"),
        (good, bert.name, data, "classification-validation.jsonl:1, "),
        (good, bert.name, tmp_path / "none.csv", "none.csv does not exist"),
    ]
    for artifact, backbone, file, reason in cases:
        done = peltier("evaluate", artifact, "--backbone", backbone, "--data", file)
        assert (done.status, done.out, done.err.count("\n")) == (1, "", 1)
        assert reason in done.err


def test_a_training_on_the_terminal_begins_with_its_preflight(peltier, t5_training, toy, tmp_path):
    """Cut inputs, and targets that are cut or cannot be written, before the first step and in the report."""
    rows = [{"text": "film " * 40, "label": "{good}"}, *({"text": "a film", "label": "a very good film"},) * 7]
    (tmp_path / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    arguments = [*t5_training, "--task-type=text2text", "--max-new-tokens=3", "--max-length=32"]
    done = peltier(*arguments, f"--train={tmp_path / 'rows.jsonl'}")
    assert done.status == 0, done.err
    told = next(line for line in done.err.splitlines() if "were checked." in line)
    assert told.startswith("8 rows to train on and 20 to validate on were checked.")
    assert done.err.index(told) < done.err.index("epoch 1")
    warnings = json.loads((tmp_path / "toy.report.json").read_text())["warnings"]
    for beginning in (
        "Inputs with more than 32 tokens, whose rest is not read: 1 of 8;",
        "Targets with more than 3 tokens, whose rest is not learned: ",
        "Targets that the tokenizer cannot write: 1 of 28; they lose '{', '}';",
    ):
        assert beginning in told
        assert any(sentence.startswith(beginning) for sentence in warnings)
