"""What is refused before torch is imported."""

import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from peltier_backbone.backbone import Backbone

Cases = Mapping[str, tuple[Sequence[str], str]]
# Runs the command once for each list of words in one fresh process: status, output, error and what it has imported.
PROGRAM = """
import contextlib, io, json, sys
from peltier_client.cli import main
for words in json.loads(sys.argv[1]):
    sys.argv, out, err, status = ["peltier", *words], io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
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
    "evaluate artifact": (["nowhere.safetensors"], "nowhere.safetensors cannot be read: No such file or directory"),
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


def test_a_mistake_in_a_sweep_costs_no_heavy_import(toy: Path, bert: Backbone, tmp_path: Path):
    """Of its one task, and of its presets."""
    own = [f"--backbone={bert.name}", f"--output={tmp_path}/sweep", "--max-length=32", "--preset=lora"]
    check(SWEEP, ["sweep", "--task=toy", *own, *files()], toy)
    assert not list(tmp_path.iterdir())


def test_a_mistake_in_an_evaluation_costs_no_heavy_import(
    toy: Path, bert: Backbone, tmp_path: Path, make_artifact: Callable[..., bytes]
):
    """Of the data, the columns, the labels and the backbone, and where there is no artifact."""
    artifact = tmp_path / "a.safetensors"
    artifact.write_bytes(make_artifact(bert, labels=("yes", "no")))
    own = [f"--backbone={bert.name}", "--data=classification-validation.jsonl"]
    check(EVALUATE, ["evaluate", str(artifact), *own], toy)
    check(NO_ARTIFACT, ["evaluate", *own], toy)
