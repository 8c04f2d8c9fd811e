"""Training in several processes, as torchrun starts them, and the threads of commands."""

import faulthandler
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from peltier_backbone.backbone import Backbone
from peltier_training.errors import TrainingError
from peltier_training.processes import choose_threads, use_threads

# Instead of `-m peltier_client`: the command, and what each process has learned when it is over.
SPY = """
import json, os, pathlib, sys
from peltier_client.cli import main
from peltier_training import train as module

learn = module.learn

def spy(run):
    learned = learn(run)
    sums = {{name: value.double().sum().item() for name, value in {tensors}.items()}}
    pathlib.Path(sys.argv[0]).with_name(f"rank-{{os.environ['RANK']}}.json").write_text(json.dumps(sums))
    return learned

module.learn = spy
main()
"""
TENSORS = {
    "adamix": "learned.learner.model.state_dict()",
    "full": "dict(learned.learner.tuning.model.named_parameters())",
}


@pytest.mark.slow
@pytest.mark.parametrize("preset", ["adamix", "full"])
def test_two_processes_train_one_adapter(preset: str, toy: Path, bert: Backbone, tmp_path: Path) -> None:
    """Gradients are shared, so both have the same weights; one of them writes and prints."""
    spy = tmp_path / "spy.py"
    spy.write_text(SPY.format(tensors=TENSORS[preset]))
    flags = {
        "task": "toy", "train": toy / "classification-train.jsonl", "backbone": bert.name, "epochs": 2, "device": "cpu",
        "validation": toy / "classification-validation.jsonl", "output": tmp_path / "toy.safetensors",
        "directory": tmp_path / "run", "max-length": 32, "preset": preset, "batch-size": 8,
    }  # fmt: skip
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    command += [str(spy), "train", *(f"--{name}={value}" for name, value in flags.items()), "--json"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    # Beside other tests it may take longer than a test that hangs may.
    faulthandler.cancel_dump_traceback_later()
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False, timeout=1200)
    assert done.returncode == 0, done.stderr
    assert set(json.loads(done.stdout)) == {"metrics"}
    first, second = (json.loads((tmp_path / f"rank-{rank}.json").read_text()) for rank in (0, 1))
    assert first == second
    assert first
    written = {path.name for path in tmp_path.glob("toy.*")}
    assert written == {"toy.report.html", "toy.report.json"} | ({"toy.safetensors"} if preset == "adamix" else set())


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
import torch, sklearn.metrics
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


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_threads_of_a_command_wait_asleep(command: str, tmp_path: Path):
    """The policy is set before torch is imported."""
    assert "policy: PASSIVE\n" in output_of(command, AT_TORCH, tmp_path)


@pytest.mark.slow
def test_every_openmp_reads_how_to_wait(tmp_path: Path):
    """Each that the process loads says so when it is loaded."""
    policies = re.findall(r"OMP_WAIT_POLICY = '(\w+)'", output_of("train", "", tmp_path))
    assert policies
    assert set(policies) == {"PASSIVE"}
