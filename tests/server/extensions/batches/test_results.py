"""Lines in temporary files."""

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from peltier_server.extensions.batches.results import LineFile, ResultsError


def test_lines_of_several_threads_do_not_mix() -> None:
    file, lines = LineFile(), [b"%d" % number * 50 + b"\n" for number in range(500)]
    with ThreadPoolExecutor(8) as threads:
        places = list(threads.map(file.add, lines))
    assert [file.read(*place) for place in places] == lines
    assert (file.num_lines, file.num_bytes) == (500, sum(map(len, lines)))
    file.close()


def test_a_line_is_written_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Although a call of the system may write less of it."""
    write = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda file, data, start: write(file, data[:3], start))
    file = LineFile()
    assert file.read(*file.add(b"a long line\n")) == b"a long line\n"
    file.close()


def test_a_full_disk_is_an_error_of_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:

    def fail(*_: Any) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", fail)
    file = LineFile()
    with pytest.raises(ResultsError, match="temporary files of a batch cannot be written: No space left on device"):
        file.add(b"a\n")
    file.close()
