"""Two replicas behind a real HAProxy with the configuration that is shipped."""

import shutil
import signal

import pytest

from tests.support.rolling_restart import Load, measure

pytestmark = pytest.mark.skipif(shutil.which("haproxy") is None, reason="haproxy is not installed")


@pytest.mark.slow  # test_process.py stays, with a signal under load that loses nothing, and test_deploy.py
def test_a_rolling_restart_fails_no_request(bert, bert_directory, make_artifact, tmp_path):
    """Each replica is stopped by SIGTERM and started again under load, and every request is answered with 200."""
    examples = tmp_path / "examples"
    examples.mkdir()
    for name in ("a", "b"):
        (examples / f"{name}.safetensors").write_bytes(make_artifact(bert, name=name, seed=ord(name)))
    flags = ["--backbone", str(bert_directory), "--store", str(tmp_path / "store"), "--publish", str(examples)]
    load = Load(["a", "b"], num_callers=3, pause_seconds=0.2)
    callers = measure(flags, load, rounds=1, sign=signal.SIGTERM, trusting=True)
    assert [dict(caller.failures) for caller in callers] == [{}] * 3
    assert all(caller.seconds for caller in callers)
