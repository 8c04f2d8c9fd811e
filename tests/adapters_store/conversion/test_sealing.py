"""A sealed process. The filter stays for ever, so it is another process than that of the tests."""

import json
import platform
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() not in ("x86_64", "aarch64"), reason="asks a filter of Linux"
)
_TRIES = {
    "socket": "import socket; socket.socket()",
    "program": "import subprocess; subprocess.run(['/bin/true'])",
    "file": "import tempfile; f = tempfile.TemporaryFile(); f.write(b'a'); f.seek(0); assert f.read() == b'a'",
}


@pytest.fixture(scope="module")
def outcomes() -> dict[str, str]:
    """What came of each of `_TRIES` in a sealed process."""
    code = """
import json, sys
from peltier_adapters.conversion.sealing import seal_process
assert seal_process()
def outcome(code):
    try:
        exec(code)
    except OSError as error:
        return repr(error)
    return "done"
print(json.dumps({name: outcome(code) for name, code in json.loads(sys.argv[1]).items()}))
"""
    command = [sys.executable, "-c", code, json.dumps(_TRIES)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, str] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("name", ["socket", "program"])
def test_sockets_and_programs_are_refused(name: str, outcomes: dict[str, str]) -> None:
    """By the kernel, whatever asks for them."""
    assert outcomes[name].startswith("PermissionError(1, ")


def test_files_are_still_read_and_written(outcomes: dict[str, str]) -> None:
    """The process keeps what it needs."""
    assert outcomes["file"] == "done"


def test_threads_are_sealed_too() -> None:
    """Those that were there before."""
    code = """
import socket, threading
from peltier_adapters.conversion.sealing import seal_process
sealed = threading.Event()
def work():
    sealed.wait()
    try:
        socket.socket()
    except PermissionError:
        print("refused")
thread = threading.Thread(target=work)
thread.start()
assert seal_process()
sealed.set()
thread.join()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("refused\n", "")
