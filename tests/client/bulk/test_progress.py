"""How far a long command is."""

from io import StringIO

import pytest
from peltier_client.bulk import progress as module
from peltier_client.bulk.progress import progress, transfer
from rich.console import Console


def test_a_bar_on_a_terminal() -> None:
    """With the share of the file, the rows and those with an error; it is gone at the end."""
    file = StringIO()
    with progress(200, Console(file=file, force_terminal=True, width=80, color_system=None)) as show:
        show(50, 1_000, 2)
    assert "25%" in file.getvalue()
    assert "1,000 rows, 2 with an error" in file.getvalue()


def test_lines_elsewhere(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Not one for every batch: the next is due after a while."""
    monkeypatch.setattr(module, "_SECONDS_BETWEEN_LINES", 600.0)
    with progress(200, Console(file=StringIO())) as show:
        show(50, 1_000, 0)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(module, "_SECONDS_BETWEEN_LINES", 0.0)
    with progress(200, Console(file=StringIO())) as show:
        show(50, 1_000, 2)
    assert capsys.readouterr().err == "25%, 1,000 rows, 2 with an error\n"


def test_a_transfer_on_a_terminal() -> None:
    """With its bytes; elsewhere nothing is written."""
    for is_terminal in (True, False):
        file = StringIO()
        console = Console(file=file, force_terminal=is_terminal, width=80, color_system=None)
        with transfer("uploading f", console) as report:
            report(500_000, 1_000_000)
        assert ("uploading f" in file.getvalue()) is is_terminal
        assert ("0.5/1.0 MB" in file.getvalue()) is is_terminal
