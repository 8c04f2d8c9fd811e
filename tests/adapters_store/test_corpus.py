"""Files of an attacker: each is refused with readable reasons, in bounded time and memory."""

import contextlib
import copy
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from peltier_adapters.artifact.artifact import load_stored, read_artifact
from peltier_adapters.artifact.source import MemorySource
from peltier_adapters.errors import ArtifactError
from peltier_backbone.backbone import Backbone

from tests.corpus.build import NUM_FLIPS, PAGE, PROVED, flips, join, refused, split

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
    """The outcome of each file in its own process, by the file's name."""
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
    """Only a few files with wrong outputs are read, and their golden examples refuse these."""
    read = {name for name, verdict in verdicts.items() if not verdict["reasons"] and not name.startswith("flip-")}
    assert read == {*PROVED, "denormal"}
    assert len(verdicts) > NUM_FLIPS + 250


def test_what_was_read_before_is_read_as_strictly(valid: bytes, bert: Backbone):
    """A load by digest refuses what an upload refuses."""
    survivors = []
    for case in refused(valid):
        with contextlib.suppress(ArtifactError):
            load_stored(MemorySource(case.data), bert, f"sha256:{0:064}")
            survivors.append(case.name)
    assert set(survivors) == set(PROVED)


def test_a_refusal_is_readable(verdicts: dict[str, Verdict]):
    """It has at most a hundred reasons and one line for the rest, all of printable characters."""
    for name, verdict in verdicts.items():
        assert len(verdict["reasons"]) <= 101, name
        for reason in verdict["reasons"]:
            assert 0 < len(reason) <= 501, name
            assert reason.isprintable(), (name, reason)
            assert "Traceback" not in reason


def test_a_refusal_takes_bounded_memory_and_time(verdicts: dict[str, Verdict]):
    """The memory is bounded by the size of the file and by the errors that fit into its header."""
    for name, verdict in verdicts.items():
        assert verdict["grown_bytes"] <= _MAX_GROWTH_BYTES + verdict["size_bytes"], (name, verdict)
        assert verdict["seconds"] < _MAX_SECONDS, (name, verdict)


def test_a_flipped_bit_is_seen_or_left_to_the_golden_examples(verdicts: dict[str, Verdict]):
    """A flipped bit of a weight may give another finite number, which only golden examples detect."""
    found = [verdict for name, verdict in verdicts.items() if name.startswith("flip-")]
    refused_ones = [verdict for verdict in found if verdict["reasons"]]
    assert len(found) == NUM_FLIPS
    assert len(refused_ones) > NUM_FLIPS / 4


def test_the_corpus_is_the_same_every_time(valid: bytes, verdicts: dict[str, Verdict]):
    """It is equal in all processes, so that a file name identifies a finding."""
    names = []
    for case in (*refused(valid), *flips(valid)):
        assert hashlib.sha256(case.data).hexdigest() == verdicts[case.name]["digest"], case.name
        names.append(case.name)
    assert len(set(names)) == len(names)
    assert sum(name.startswith("truncated-") for name in names) >= len(valid) // PAGE


HOSTILE = st.sampled_from(
    [None, True, -1, 0, 2**63, 10**400, 1e308, "", "\0", "\u202e", "x" * 300, "{text}", [], {}, [[]], {"": {}}, [0, 4]]
)


@settings(max_examples=2 * settings().max_examples)
@given(data=st.data(), num_changes=st.integers(1, 6))
def test_any_few_changes_of_structure_are_judged(data: st.DataObject, num_changes: int, valid: bytes, bert: Backbone):
    """Values are replaced, removed, duplicated, wrapped and moved, in the header and the manifest at once."""
    header, body = split(valid)
    manifest = json.loads(header["__metadata__"]["manifest"])
    for _ in range(num_changes):
        _change(data, data.draw(st.sampled_from([manifest, manifest, header])))
    if isinstance(header.get("__metadata__"), dict):
        header["__metadata__"]["manifest"] = json.dumps(manifest)
    with contextlib.suppress(ArtifactError):
        read_artifact(join(header, body), bert)


def _change(data: st.DataObject, root: Any) -> None:
    target = root
    while True:
        keys = list(target) if isinstance(target, dict) else list(range(len(target)))
        if not keys:
            return
        key = data.draw(st.sampled_from(keys))
        if not isinstance(target[key], dict | list) or data.draw(st.integers(0, 3)) == 0:
            break
        target = target[key]
    match data.draw(st.sampled_from(["replace", "wrap", "remove", "double", "move"])):
        case "replace":
            target[key] = copy.deepcopy(data.draw(HOSTILE))  # later changes may be within it
        case "wrap":
            target[key] = data.draw(st.sampled_from([[target[key]], {"kind": target[key]}, [target[key]] * 3]))
        case "remove":
            target.pop(key)
        case "double" if isinstance(target, list):
            target.append(target[key])
        case "double":
            target[f"{key}2"] = target[key]
        case "move":
            other = data.draw(st.sampled_from(keys))
            target[key], target[other] = target[other], target[key]


def test_the_tensors_of_a_surviving_flip_differ_in_one_value(valid: bytes, bert: Backbone):
    """An accepted flip in the header changes no weight; a flip in a weight changes only that weight."""
    original = read_artifact(valid, bert).tensors
    for case in flips(valid):
        try:
            tensors = read_artifact(case.data, bert).tensors
        except Exception:  # noqa: S112 - which exception is another test's promise
            continue
        changed = sum(int((tensor != original[name]).sum()) for name, tensor in tensors.items())
        assert changed == (1 if case.name.startswith("flip-tensor") else 0), case.name
