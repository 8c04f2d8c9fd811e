"""The script that made examples/backbones/t5-mini."""

import subprocess
import sys
from pathlib import Path

import pytest
from peltier_backbone.load import load_backbone

ROOT = Path(__file__).parent.parent
SHAPE = ["--vocab-size=600", "--d-model=16", "--layers=1", "--heads=2", "--d-kv=8", "--d-ff=32", "--batch-size=2"]


@pytest.mark.slow
def test_the_script_writes_a_checkpoint_that_can_be_served(tmp_path: Path) -> None:
    """From a text file of documents, beside the losses of its training."""
    text, output = tmp_path / "text.txt", tmp_path / "t5"
    text.write_text("\n\n".join((ROOT / "docs" / "methods.md").read_text().split("\n\n") * 20))
    script = ROOT / "examples" / "backbones" / "pretrain_t5.py"
    command = [sys.executable, script, "--text", text, "--output", output, "--steps=3", "--input-length=16", *SHAPE]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    assert (output / "loss.jsonl").read_text().count("eval_loss") >= 1
    assert load_backbone(str(output)).tokenizer is not None
