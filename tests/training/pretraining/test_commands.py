"""`peltier pretrain t5` as a user meets it."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from peltier_client.cli import main
from transformers import T5ForConditionalGeneration

Arguments = Callable[..., list[str]]


@pytest.fixture
def arguments(text: Path, tmp_path: Path) -> list[str]:
    """Of a short run; a flag that comes again behind them wins."""
    flags = {
        "text": text, "output": tmp_path / "tiny", "directory": tmp_path / "run", "vocab-size": 700, "d-model": 16,
        "layers": 1, "heads": 2, "d-ff": 32, "d-kv": 8, "batch-size": 4, "input-length": 32, "device": "cpu",
    }  # fmt: skip
    return ["pretrain", "t5", *(f"--{name}={value}" for name, value in flags.items())]


@pytest.mark.slow  # test_pretrain.py stays, and the other commands in the process of the test
def test_pretrain_as_a_process(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """Two calls: the first, a process, stops at its own end, the second finishes; standard output is one JSON
    document."""
    program, words = str(Path(sys.executable).with_name("peltier")), [*arguments, "--steps=4", "--json"]
    command = [program, *words, "--call-minutes=0.000001"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    first = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert json.loads(first.stdout)["finished"] is False
    assert "cpu, CPU threads: 1" in first.stderr
    assert "Warning" not in first.stderr
    monkeypatch.setattr("sys.argv", [program, *words, "--resume"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    second = capsys.readouterr()
    assert "Warning" not in second.err
    found = json.loads(second.out)
    assert (found["finished"], found["steps"]) == (True, 4)
    T5ForConditionalGeneration.from_pretrained(tmp_path / "tiny")


ERRORS = {
    "no budget": ([], "give either steps or minutes as the budget"),
    "two budgets": (["--steps=1", "--minutes=1"], "give either steps or minutes as the budget"),
    "no steps": (["--steps=0"], "steps is 0; it must be a number above 0"),
    "minutes": (["--minutes=nan"], "minutes is nan; it must be a number above 0"),
    "missing": (["--steps=1", "--text=nowhere.txt"], "nowhere.txt does not exist"),
    "no text": (["--steps=1", "--text=pyproject.toml"], "pyproject.toml is not a text file"),
    "vocabulary": (["--steps=1", "--vocab-size=300"], "vocab_size is 300; it must be from 547 to 65536"),
    "large vocabulary": (["--steps=1", "--vocab-size=70000"], "vocab_size is 70000; it must be from 547 to 65536"),
    "heads": (["--steps=1", "--heads=0"], "heads is 0; it must be a number of at least 1"),
    "rate": (["--steps=1", "--learning-rate=0"], "learning_rate is 0.0; it must be a number above 0"),
    "warmup": (["--steps=1", "--warmup=1"], "warmup is 1.0; it must be a fraction below 1"),
    "input": (["--steps=1", "--input-length=7"], "input_length is 7; it must be a number of at least 8"),
    "long input": (["--steps=1", "--input-length=2048"], "input_length is 2048; it must be at most 512"),
    "device": (["--steps=1", "--device=abacus"], "device 'abacus' is unknown; it is 'auto', 'cpu' or 'cuda'"),
    "dtype": (
        ["--steps=1", "--dtype=int8"],
        "dtype is 'int8'; pretraining changes every weight, in float32 or bfloat16",
    ),
    "folder": (["--steps=1", "--output=nowhere/x"], "output nowhere/x cannot be written: its parent folder does not"),
    "full output": (["--steps=1", "--output=docs"], "output docs exists and is not an empty folder"),
    "resume": (["--steps=1", "--resume"], "there is no run to resume in"),
}


@pytest.mark.parametrize("case", ERRORS)
def test_a_run_that_cannot_be_is_one_line(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], case: str
):
    """Exit status 1 and one sentence on standard error; nothing is written."""
    more, reason = ERRORS[case]
    monkeypatch.setattr(sys, "argv", ["peltier", *arguments, *more])
    with pytest.raises(SystemExit) as end:
        main()
    captured = capsys.readouterr()
    assert (end.value.code, captured.out, captured.err.count("\n")) == (1, "", 1)
    assert captured.err.startswith(f"error: {reason}") or reason in captured.err
    assert list(tmp_path.iterdir()) == []
