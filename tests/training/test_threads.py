"""The threads of commands, as OpenMP and torch see them."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from peltier_training.errors import TrainingError
from peltier_training.threads import choose_threads, use_threads


@pytest.fixture
def torch_threads() -> Iterator[None]:
    """torch's number of threads is put back."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(("given", "expected"), [(3, 3), (None, 1)])
def test_the_flag_wins_over_the_default(given: int | None, expected: int, monkeypatch: pytest.MonkeyPatch):
    """Without the flag `OMP_NUM_THREADS` counts."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert choose_threads(given) == expected


@pytest.mark.parametrize("given", [0, -2])
def test_no_thread_cannot_compute(given: int):
    """Refused with the value and the rule."""
    with pytest.raises(TrainingError, match=f"threads is {given}; it must be a number of at least 1"):
        choose_threads(given)


@pytest.mark.usefixtures("torch_threads")
def test_torch_computes_with_so_many():
    """None leaves the number as it is."""
    use_threads(2)
    use_threads(None)
    assert torch.get_num_threads() == 2


COMMANDS = {
    "train": ["--task=t", "--train=x.jsonl", "--validation=x.jsonl"],
    "evaluate": ["x.safetensors", "--data=x.jsonl"],
    "pretrain": ["t5", "--text=x.txt", "--output=x", "--steps=1"],
}


def output_of(command: str, code: str, folder: Path) -> str:
    """What the command prints after `code` in one process. The command finds no file and fails after its first
    steps, wherever torch is imported among them."""
    script = f"""
import os, sys
{code}
from peltier_client.cli import main
sys.argv = ["peltier", "{command}", *{COMMANDS[command]!r}]
try:
    main()
except SystemExit as end:
    assert end.code == 1
import torch, scipy.sparse
"""
    environment = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    environment |= {"OMP_DISPLAY_ENV": "TRUE", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=folder, env=environment, check=True
    )
    return done.stdout + done.stderr


# Ends the process where torch would be imported, which takes seconds.
AT_TORCH = """
class Finder:
    def find_spec(name, *_):
        if name == "torch":
            print("policy:", os.environ.get("OMP_WAIT_POLICY"), flush=True)
            os._exit(0)
sys.meta_path.insert(0, Finder)
"""


@pytest.mark.parametrize("command", COMMANDS)
def test_threads_of_a_command_wait_asleep(command: str, tmp_path: Path):
    """The policy is set before torch is imported."""
    assert "policy: PASSIVE\n" in output_of(command, AT_TORCH, tmp_path)


def test_every_openmp_reads_how_to_wait(tmp_path: Path):
    """Each that the process loads says so when it is loaded."""
    policies = re.findall(r"OMP_WAIT_POLICY = '(\w+)'", output_of("train", "", tmp_path))
    assert policies
    assert set(policies) == {"PASSIVE"}
