"""Where rows are while they are trained on."""

import os
import subprocess
import sys
from pathlib import Path

from peltier_training.service.worker import Scratch

_KILLED = """
import os, sys
from pathlib import Path
from peltier_training.service.worker import Scratch
(Scratch(Path(sys.argv[1])).create("trn") / "train.jsonl").write_text("private")
os.kill(os.getpid(), 9)
"""


def test_nothing_stays(tmp_path: Path):
    """Only this user reads it meanwhile."""
    with Scratch(tmp_path) as scratch:
        (scratch.create("trn") / "train.jsonl").write_text("private")
        assert os.stat(scratch.path).st_mode & 0o77 == 0
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_worker_left_is_removed_by_the_next(tmp_path: Path):
    """What a running one has is not."""
    with Scratch(tmp_path) as running:
        subprocess.run([sys.executable, "-c", _KILLED, str(tmp_path)], check=False)
        assert len(list(tmp_path.iterdir())) == 2
        with Scratch(tmp_path) as later:
            assert sorted(tmp_path.iterdir()) == sorted([running.path, later.path])
