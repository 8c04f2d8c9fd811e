"""The command line, run in this process as if typed."""

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from peltier_client import cli
from peltier_client.commands import plugins
from stamina.instrumentation import set_on_retry_hooks

from tests.support import commands_once

Refuse = Callable[..., Any]


@dataclass
class Outcome:
    """How a command ended."""

    status: object
    out: str
    err: str


class Peltier:
    """The command, run in this process as if typed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.monkeypatch, self.capsys = monkeypatch, capsys
        monkeypatch.setattr(cli, "create_command", commands_once.create_command)

    def __call__(self, *words: str | Path) -> Outcome:
        self.monkeypatch.setattr(sys, "argv", ["peltier", *map(str, words)])
        with pytest.raises(SystemExit) as caught:
            cli.main()
        streams = self.capsys.readouterr()
        return Outcome(caught.value.code or 0, streams.out, streams.err)

    def announce(self, name: str, value: str) -> None:
        """Let a package announce a command."""
        entry_points = [EntryPoint(name, value, plugins.GROUP)]
        self.monkeypatch.setattr(plugins, "entry_points", lambda group: entry_points)
        self.monkeypatch.setattr(cli, "create_command", commands_once.create_command.__wrapped__)


@pytest.fixture
def peltier(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], server: Any) -> Iterator[Peltier]:
    """The command, with the little server as its default and a wide terminal."""
    monkeypatch.setenv("PELTIER_URL", server.url)
    monkeypatch.setenv("PELTIER_API_KEY", "plt_env")
    monkeypatch.setenv("COLUMNS", "160")
    yield Peltier(monkeypatch, capsys)
    set_on_retry_hooks(None)


def bring(monkeypatch: pytest.MonkeyPatch, folder: Path, source: str) -> None:
    """Make `brought` an importable module with this source."""
    (folder / "brought.py").write_text(source)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "brought", raising=False)
