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


@pytest.mark.parametrize("command", COMMANDS)
def test_threads_of_a_command_wait_asleep(command: str, tmp_path: Path):
    """Each OpenMP that the process loads has read the policy: it says so when it is loaded. Run with no file there is,
    the command fails after its first steps; torch is then imported in the same process."""
    script = f"""
import sys
from peltier_client.cli import main
sys.argv = ["peltier", "{command}", *{COMMANDS[command]!r}]
try:
    main()
except SystemExit as end:
    assert end.code == 1
import torch, sklearn.metrics
"""
    environment = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    environment |= {"OMP_DISPLAY_ENV": "TRUE", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path, env=environment, check=True
    )
    policies = re.findall(r"OMP_WAIT_POLICY = '(\w+)'", done.stderr)
    assert policies
    assert set(policies) == {"PASSIVE"}
