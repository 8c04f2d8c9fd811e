"""Files of an attacker: each is refused in sentences, in time and in memory, whatever it is."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from peltier_adapters.artifact import read_artifact
from peltier_backbone.load import Backbone

from tests.corpus.build import NUM_FLIPS, PAGE, PROVED, flips, refused

Verdict = dict[str, Any]

_MIB = 1024 * 1024
# A header of 4 MiB with 131,072 tokens makes 40,000 mistakes at most, and each takes 1.5 KB to report.
_MAX_GROWTH_BYTES = 64 * _MIB
# Measured: 0.7 s on a busy core.
_MAX_SECONDS = 10


@pytest.fixture(scope="module")
def valid(bert: Backbone, make_artifact: Callable[..., bytes]) -> bytes:
    """What the corpus is made from: four parts, three of them gated."""
    return make_artifact(bert, "unipelt-apl")


@pytest.fixture(scope="module")
def verdicts(valid: bytes, bert_directory: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Verdict]:
    """What a process of its own said of each file, by the file's name."""
    directory = tmp_path_factory.mktemp("corpus")
    (directory / "valid").write_bytes(valid)
    program = Path(__file__).parents[1] / "corpus" / "judge.py"
    command = [sys.executable, str(program), str(bert_directory), str(directory / "valid")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert not (directory / "unpickled").exists(), "a pickle was opened"
    return {verdict["name"]: verdict for verdict in map(json.loads, done.stdout.splitlines())}


def test_every_hostile_file_is_refused(verdicts: dict[str, Verdict]):
    """Except the few that are only wrong about their answers, which the golden examples betray."""
    read = {name for name, verdict in verdicts.items() if not verdict["reasons"] and not name.startswith("flip-")}
    assert read == {*PROVED, "denormal"}
    assert len(verdicts) > NUM_FLIPS + 250


def test_a_refusal_is_readable(verdicts: dict[str, Verdict]):
    """At most a hundred reasons and one line for the rest, each a line of printable characters."""
    for name, verdict in verdicts.items():
        assert len(verdict["reasons"]) <= 101, name
        for reason in verdict["reasons"]:
            assert 0 < len(reason) <= 501, name
            assert reason.isprintable(), (name, reason)
            assert "Traceback" not in reason


def test_a_refusal_takes_bounded_memory_and_time(verdicts: dict[str, Verdict]):
    """No file takes more than it weighs and the mistakes that its header has room for."""
    for name, verdict in verdicts.items():
        assert verdict["grown_bytes"] <= _MAX_GROWTH_BYTES + verdict["size_bytes"], (name, verdict)
        assert verdict["seconds"] < _MAX_SECONDS, (name, verdict)


def test_a_flipped_bit_is_seen_or_left_to_the_golden_examples(verdicts: dict[str, Verdict]):
    """A bit of a weight makes another finite number, which nothing in the file contradicts."""
    found = [verdict for name, verdict in verdicts.items() if name.startswith("flip-")]
    refused_ones = [verdict for verdict in found if verdict["reasons"]]
    assert len(found) == NUM_FLIPS
    assert len(refused_ones) > NUM_FLIPS / 4


def test_the_corpus_is_the_same_every_time(valid: bytes):
    """A finding can be named by its file."""
    first, second = ([case for make in (refused, flips) for case in make(valid)] for _ in range(2))
    assert first == second
    assert len({case.name for case in first}) == len(first)
    assert sum(case.name.startswith("truncated-") for case in first) >= len(valid) // PAGE


def test_the_tensors_of_a_surviving_flip_differ_in_one_value(valid: bytes, bert: Backbone):
    """A bit of the header that survives changes no weight; a bit of a weight changes that weight alone."""
    original = read_artifact(valid, bert).tensors
    for case in flips(valid):
        try:
            tensors = read_artifact(case.data, bert).tensors
        except Exception:  # noqa: S112 - which exception is another test's promise
            continue
        changed = sum(int((tensor != original[name]).sum()) for name, tensor in tensors.items())
        assert changed == (1 if case.name.startswith("flip-tensor") else 0), case.name
