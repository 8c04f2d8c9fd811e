"""The command line as a whole: failures, wrong usage, help, and commands of other packages."""

import json
import logging
import os
import signal
import subprocess
import sys
import threading
from importlib.metadata import version
from pathlib import Path

import pytest
from peltier_client import cli
from peltier_client.commands import plugins

from tests.client.typed_commands import Outcome, bring


def test_a_failure_is_one_line(peltier, server, refuse) -> None:
    """The server's sentence and reasons come as one line on stderr, with status 1 and nothing on stdout."""
    server.planned.append(refuse(422, "artifact_refused", "the artifact\nis refused"))
    assert peltier("predict", "sst2", "text", "--json") == Outcome(1, "", "error: the artifact is refused: reason\n")


def test_a_refused_key_says_what_to_do(peltier, monkeypatch, server, refuse):
    """The errors for a wrong key and for no key name different next steps."""
    server.planned.append(refuse(401, "unauthorized", "the API key is not one of this server's, for this reason"))
    assert peltier("list").err == (
        "error: the API key is not one of this server's, for this reason; check PELTIER_API_KEY or --api-key\n"
    )
    monkeypatch.delenv("PELTIER_API_KEY")
    server.planned.append(refuse(401, "unauthorized", "no key was sent, for this reason"))
    outcome = peltier("list")
    assert (outcome.status, outcome.err) == (1, "error: no key was sent, for this reason; set PELTIER_API_KEY\n")


def test_retries_are_silent(peltier, server, refuse, caplog: pytest.LogCaptureFixture) -> None:
    """Waiting for a full queue writes only the answer, and logs nothing."""
    server.planned.append(refuse(503, "queue_full", retry_after="0"))
    outcome = peltier("list", "--json")
    assert (outcome.status, outcome.err, len(server.received)) == (0, "", 3)
    assert json.loads(outcome.out)["adapters"]
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


@pytest.mark.slow  # The gate has the test above: stamina logs by the same hooks to structlog, if that is installed.
def test_retries_are_silent_with_structlog(monkeypatch, tmp_path, server, refuse):
    """Nor is a retry written if structlog is installed, which stamina would log to."""
    (tmp_path / "structlog.py").write_text(
        "class Logger:\n"
        "    def warning(self, *_, **__):\n        print('retry')\n"
        "def get_logger(name):\n    return Logger()\n"
    )
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    server.planned.append(refuse(503, "queue_full", retry_after="0"))
    words = [sys.executable, "-m", "peltier_client", "list", "--json", "--url", server.url]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["adapters"]


def test_no_server(peltier, closed_url: str) -> None:
    """The error names the address in one line."""
    outcome = peltier("list", "--url", closed_url)
    assert (outcome.status, outcome.out) == (1, "")
    assert outcome.err.startswith(f"error: no connection to {closed_url}: ")
    assert outcome.err.count("\n") == 1


@pytest.mark.parametrize(
    "words",
    [
        ("predict",),
        ("predict", "sst2"),
        ("predict", "../x", "text"),
        ("predict", "sst2", "text", "--nonsense"),
        ("predict", "sst2", "text", "--num-beams", "17"),
        ("predict", "sst2", "text", "--temperature", "3"),
        ("upload", "does-not-exist.safetensors"),
        ("delete", "sst2@0"),
        ("alias", "sst2@1", "live", "1"),
        ("alias", "sst2", "--history"),
        ("versions", "sst2@1"),
        ("alias", "sst2", "12", "1"),
        ("alias", "sst2", "live", "newest"),
        ("alias", "sst2", "live"),
        ("alias", "sst2", "live", "1", "--history"),
        ("alias", "sst2", "live", "1=0.9;2=0.1"),
        ("deprecate", "sst2@1"),
        ("deprecate", "sst2@1", "old", "--undo"),
        ("audit", "--limit", "0"),
        ("list", "--url", "localhost:8000"),
        ("list", "--api-key", "plt secret"),
        ("nonsense",),
    ],
)
def test_wrong_usage(peltier, server, words: tuple[str, ...]) -> None:
    """Wrong usage has status 2, says something on stderr, sends nothing and shows no key."""
    outcome = peltier(*words)
    assert outcome.status == 2
    assert outcome.err
    assert not outcome.out
    assert "secret" not in outcome.err
    assert not server.received


def test_an_unreadable_file_is_named(peltier, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The error is one line with the file's name and the system's reason."""
    path = tmp_path / "film.safetensors"
    path.write_bytes(b"artifact")

    def refuse_reading(self: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "read_bytes", refuse_reading)
    assert peltier("upload", str(path)) == Outcome(1, "", f"error: {path}: Permission denied\n")


def test_version(peltier) -> None:
    """--version names the release."""
    assert peltier("--version") == Outcome(0, f"peltier {version('peltier')}\n", "")


@pytest.fixture(scope="module")
def help_page() -> str:
    """What `peltier --help` prints in a process of its own, and which packages are loaded after `peltier_client` and
    at the end."""
    program = (
        "import atexit, sys, peltier_client\n"
        "def loaded(*packages): return sorted(set(packages) & set(sys.modules))\n"
        "heavy = 'torch', 'transformers', 'fastapi', 'peltier_server', 'peltier_adapters', 'peltier_training'\n"
        "print('library loads:', loaded('typer', 'rich', *heavy))\n"
        "from peltier_client.cli import main\n"
        "atexit.register(lambda: print('help loads:', loaded(*heavy)))\n"
        "main()"
    )
    return subprocess.run([sys.executable, "-c", program, "--help"], capture_output=True, text=True, check=True).stdout


def test_help_lists_everything_and_loads_nothing(help_page: str) -> None:
    """The heavy commands are listed with a line of help each, and neither torch nor a server is imported."""
    ours = (
        *("predict", "upload", "list", "compare", "versions", "delete", "undelete", "alias", "rollback", "deprecate"),
        *("audit", "keys", "tenants"),
    )
    for name in (*ours, *plugins.KNOWN):
        assert f" {name} " in help_page
    assert all(known.help in help_page for known in plugins.KNOWN.values())
    assert "help loads: []" in help_page


def test_the_library_loads_no_command_line(help_page: str) -> None:
    """Importing the client imports neither typer nor rich nor torch."""
    assert "library loads: []" in help_page


def test_a_brought_command_runs(peltier, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A typed function of a package becomes a command with options, help and an exit status."""
    bring(
        monkeypatch,
        tmp_path,
        "def greet(name: str, loud: bool = False):\n    'Say hello.'\n    print('hello', name, loud)",
    )
    peltier.announce("greet", "brought:greet")
    assert peltier("greet", "you", "--loud") == Outcome(0, "hello you True\n", "")
    assert "Say hello." in peltier("greet", "--help").out
    assert peltier("greet").status == 2
    assert " greet " in peltier("--help").out


@pytest.mark.parametrize("source", ["import missing_package", "def serve():\n    import missing_package.part"])
def test_a_missing_extra_is_one_sentence(peltier, monkeypatch, tmp_path, source):
    """The error names the extra with the missing package, at the import and in the call."""
    bring(monkeypatch, tmp_path, source)
    peltier.announce("serve", "brought:serve")
    remedy = 'pip install "peltier[server]", or make install in a clone'
    sentence = f"error: peltier serve needs missing_package, which is not installed: {remedy}\n"
    assert peltier("serve") == Outcome(1, "", sentence)


def test_errors_that_say_so_are_one_line(peltier, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Any package's exception with is_user_error is a sentence, without the client knowing the package."""
    bring(
        monkeypatch,
        tmp_path,
        "class E(Exception):\n    is_user_error = True\n\ndef f():\n    raise E('no such preset')",
    )
    peltier.announce("f", "brought:f")
    assert peltier("f") == Outcome(1, "", "error: no such preset\n")


@pytest.mark.parametrize(
    ("source", "bug"),
    [
        ("def f():\n    {}['x']", KeyError),
        ("def f():\n    import json.nonsense", ModuleNotFoundError),
        ("import peltier_nonsense", ModuleNotFoundError),
    ],
)
def test_a_bug_keeps_its_traceback(peltier, monkeypatch, tmp_path, source, bug):
    """An error in the code is not reported as an error of the user."""
    bring(monkeypatch, tmp_path, source)
    peltier.announce("f", "brought:f")
    monkeypatch.setattr(sys, "argv", ["peltier", "f"])
    with pytest.raises(bug):
        cli.main()


def test_an_announced_command_never_replaces_ours(peltier) -> None:
    """A package cannot replace a command of the client."""
    peltier.announce("list", "brought:nothing")
    assert "sst2" in peltier("list").out


@pytest.mark.skipif(os.name == "nt", reason="sends SIGINT")
def test_interrupting_is_quiet(server, answer) -> None:
    """Ctrl-C during a request ends with status 130 and writes nothing."""
    asked, release = threading.Event(), threading.Event()

    def hang() -> None:
        asked.set()
        release.wait(120)

    server.planned.append(answer(before=hang))
    words = [sys.executable, "-m", "peltier_client", "list", "--url", server.url]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert asked.wait(120)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)
    release.set()
    assert (process.returncode, out, err) == (130, b"", b"")
