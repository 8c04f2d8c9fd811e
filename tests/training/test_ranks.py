"""Training in several processes, as torchrun starts them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from peltier_backbone.backbone import Backbone

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


# A baseline shares its gradients and writes by the same code as an adapter, which stays.
@pytest.mark.parametrize("preset", ["adamix", pytest.param("full", marks=pytest.mark.slow)])
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
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    assert set(json.loads(done.stdout)) == {"metrics"}
    first, second = (json.loads((tmp_path / f"rank-{rank}.json").read_text()) for rank in (0, 1))
    assert first == second
    assert first
    written = {path.name for path in tmp_path.glob("toy.*")}
    assert written == {"toy.report.html", "toy.report.json"} | ({"toy.safetensors"} if preset == "adamix" else set())
