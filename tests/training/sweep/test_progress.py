"""How far a sweep is."""

from io import StringIO

from peltier_training.sweep.progress import count_trials
from rich.console import Console


def test_a_bar_on_a_terminal() -> None:
    """With the trials that are done; elsewhere nothing is written."""
    for is_terminal in (True, False):
        file = StringIO()
        with count_trials(Console(file=file, force_terminal=is_terminal, width=80, color_system=None)) as count:
            count(3, 12)
        assert ("3/12" in file.getvalue()) is is_terminal
        assert file.getvalue() == "" or is_terminal
