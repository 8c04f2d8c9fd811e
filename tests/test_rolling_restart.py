"""Two replicas behind a real HAProxy with the configuration that is shipped."""

import runpy
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from peltier_backbone.backbone import Backbone

ROOT = Path(__file__).parent.parent

pytestmark = pytest.mark.skipif(shutil.which("haproxy") is None, reason="haproxy is not installed")


@pytest.mark.slow  # test_process.py stays, with a signal under load that loses nothing, and test_deploy.py
def test_a_rolling_restart_fails_no_request(
    bert: Backbone,
    bert_directory: Path,
    make_artifact: Callable[..., bytes],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each replica is stopped by SIGTERM and started again under load, and every request is answered with 200."""
    examples = tmp_path / "examples"
    examples.mkdir()
    for name in ("a", "b"):
        (examples / f"{name}.safetensors").write_bytes(make_artifact(bert, name=name, seed=ord(name)))
    flags = ["--backbone", str(bert_directory), "--store", str(tmp_path / "store"), "--publish", str(examples)]
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    script = runpy.run_path(str(ROOT / "benchmarks" / "rolling_restart.py"))
    load = script["Load"](["a", "b"], num_callers=3, pause_seconds=0.2)
    callers = script["measure"](flags, load, rounds=1, sign=signal.SIGTERM, trusting=True)
    assert [dict(caller.failures) for caller in callers] == [{}] * 3
    assert all(caller.seconds for caller in callers)
