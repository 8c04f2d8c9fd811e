"""Whole sweeps on a small random backbone, in this process or, where they are slow, in others."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from peltier_adapters.artifact.artifact import load_artifact
from peltier_backbone.backbone import Backbone
from peltier_training.data.examples import read_examples
from peltier_training.errors import TrainingError
from peltier_training.evaluate.adapters import evaluate
from peltier_training.sweep.sweep import Ledger, Sweep

from tests.training.sweep.conftest import MakeEntry, MakeSweep, Tables

TIMES = {"seconds", "seconds_per_epoch", "memory_bytes"}


def lines(sweep: Sweep) -> dict[str, dict[str, Any]]:
    """The results by key, without what differs from run to run."""
    rows = [json.loads(line) for line in (sweep.folder / "results.jsonl").read_text().splitlines()]
    return {row["key"]: {name: value for name, value in row.items() if name not in TIMES} for row in rows}


@pytest.mark.slow
def test_two_workers_find_what_one_finds(make_sweep: MakeSweep, tables: Tables):
    """Numbers depend on the seed and on nothing else; who comes first does not matter."""
    tables["methods"] = {"mix": {"preset": "adamix", "merge_report": True, "settings": {"bottleneck": 4}}}
    one, two = make_sweep(tables, "one", workers=1), make_sweep(tables, "two", workers=2)
    first, second = one.run(print), two.run(print)
    assert lines(one) == lines(two)
    assert first.rows[0].cells["toy accuracy"] == second.rows[0].cells["toy accuracy"]
    assert first.rows[0].cells["toy accuracy"].count == 2
    routes = {"accuracy random routing", "accuracy fixed routing", "accuracy ensemble"}
    assert all(routes <= row["metrics"].keys() for row in lines(one).values())


@pytest.mark.slow
def test_a_failing_trial_stops_nobody(make_sweep: MakeSweep, tables: Tables):
    """Its reason is in the ledger; it is run again only where that is asked for."""
    tables["methods"] = {"wild": {"preset": "lora", "learning_rate": 1e30}, "lora": {}}
    tables["seeds"] = [0]
    sweep, told = make_sweep(tables, workers=1), list[str]()
    table = sweep.run(told.append)
    assert [row.failed for row in table.rows] == [1, 0]
    assert "training diverged at learning rate 1e+30; try a lower one" in told[1] + told[2]
    reasons = [row["failure"] for row in lines(sweep).values()]
    assert sorted(map(str, reasons)) == ["None", "training diverged at learning rate 1e+30; try a lower one"]
    told.clear()
    sweep.run(told.append)
    assert told == ["2 trials, 2 of them done, 1 at a time"]
    sweep.run(told.append, retry=True)
    assert told[1:2] == ["2 trials, 1 of them done, 1 at a time"]


def test_a_larger_sweep_runs_only_what_is_new(make_sweep: MakeSweep, tables: Tables):
    """In the same folder, with the reason for its end; what is left out of a smaller one stays in the ledger and out of
    the table."""
    tables["seeds"] = [0]
    make_sweep(tables).run(print)
    told: list[str] = []
    table = make_sweep(tables | {"seeds": [0, 1]}).run(told.append)
    assert told[0] == "2 trials, 1 of them done, 1 at a time"
    assert told[1].endswith(" s, ended after epoch 1: the given epoch is done")
    assert table.rows[0].cells["toy accuracy"].count == 2
    assert make_sweep(tables).run(print).rows[0].cells["toy accuracy"].count == 1


@pytest.mark.slow
def test_what_a_sweep_leaves(make_sweep: MakeSweep, tables: Tables, bert: Backbone):
    """The ledger, table and plots; of each trial artifact, report and log, and no checkpoint. With `dev_rows` the
    metrics are the artifact's on the validation file, which chose nothing."""
    tables |= {"seeds": [0], "dev_rows": 12, "methods": {"lora": {}, "bitfit": {}}}
    sweep = make_sweep(tables, workers=1)
    sweep.run(print)
    assert sorted(path.name for path in sweep.folder.iterdir()) == [
        "parameters.svg", "results.jsonl", "table.csv", "table.md", "trials",
    ]  # fmt: skip
    trial = sweep.trials[0]
    folder = sweep.folder / "trials" / trial.key
    assert {"log.txt", "toy.safetensors", "toy.report.json"} <= {path.name for path in folder.iterdir()}
    assert not any(path.is_dir() for path in folder.iterdir())
    artifact = load_artifact(folder / "toy.safetensors", bert)
    data = artifact.manifest.training.data
    assert (data["train_rows"], data["validation_rows"]) == (16, 12)
    found = evaluate(
        bert, artifact, read_examples(Path(tables["tasks"]["toy"]["validation"]), ["text"], "label")
    ).metrics
    line = lines(sweep)[trial.key]
    assert (line["metrics"], line["rows"]) == (pytest.approx(found), 16)


def test_a_baseline_is_measured_as_an_adapter_is(make_sweep: MakeSweep, tables: Tables):
    """Full fine-tuning has metrics, a time per epoch and a peak of memory, on held-out rows too."""
    tables |= {"seeds": [0], "dev_rows": 12, "methods": {"full": {}}}
    row = make_sweep(tables).run(print).rows[0]
    assert row.failed == 0
    assert all(math.isfinite(row.cells[name].mean) for name in ("toy accuracy", "s/epoch", "memory MiB"))


def test_what_was_appended_is_there_again(make_entry: MakeEntry, tmp_path: Path):
    """Each result under its trial's key, a failure too; of two with one key the last counts."""
    (_, one), (_, failed) = make_entry(0.25), make_entry(failure="it broke", seed=1)
    later = one.model_copy(update={"seconds": 9.0})
    with Ledger.open(tmp_path / "results.jsonl") as ledger:
        for result in (one, failed, later):
            ledger.append(result)
    with Ledger.open(tmp_path / "results.jsonl") as ledger:
        assert ledger.results == {one.key: later, failed.key: failed}


def test_a_line_that_a_crash_cut_off_is_dropped(make_entry: MakeEntry, tmp_path: Path):
    """Its trial counts as not run, and the next line stands on its own."""
    path, (_, result) = tmp_path / "results.jsonl", make_entry()
    line = result.model_dump_json() + "\n"
    path.write_text(line + line[:40])
    with Ledger.open(path) as ledger:
        ledger.append(result)
    assert path.read_text() == line + line


def test_a_second_sweep_is_refused(tmp_path: Path):
    """Two writers would train everything twice."""
    path, refusal = tmp_path / "results.jsonl", pytest.raises(TrainingError, match="another sweep is writing to")
    with Ledger.open(path), refusal, Ledger.open(path):
        pass


def test_another_file_of_that_name_is_refused(tmp_path: Path):
    """And it stays as it is."""
    path = tmp_path / "results.jsonl"
    path.write_text('{"text": "a good film"}\n')
    with pytest.raises(TrainingError, match=r"results.jsonl:1 is not a result of a sweep"), Ledger.open(path):
        pass
    assert path.read_text() == '{"text": "a good film"}\n'
