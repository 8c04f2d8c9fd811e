"""A sealed process. The filter stays for ever, so each test has a process of its own."""

import platform
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() not in ("x86_64", "aarch64"), reason="asks a filter of Linux"
)
_SEALED = "from peltier_adapters.conversion.sealing import seal_process\nassert seal_process()\n"


def _run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", _SEALED + code], capture_output=True, text=True)


@pytest.mark.parametrize("code", ["import socket; socket.socket()", "import subprocess; subprocess.run(['/bin/true'])"])
def test_sockets_and_programs_are_refused(code: str) -> None:
    """By the kernel, whatever asks for them."""
    done = _run(code)
    assert done.returncode == 1
    assert "PermissionError: [Errno 1]" in done.stderr


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


def test_files_are_still_read_and_written() -> None:
    """The process keeps what it needs."""
    done = _run("import tempfile; f = tempfile.TemporaryFile(); f.write(b'a'); f.seek(0); print(f.read())")
    assert (done.stdout, done.stderr) == ("b'a'\n", "")
