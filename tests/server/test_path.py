"""The files that one request, one row and one step enter: a reader of their paths has to open no more.

`pytest -rP tests/server/test_path.py` prints them.
"""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import httpx2
import pytest
from peltier_adapters.artifact.artifact import read_artifact
from peltier_adapters.batch.choice import choose_runner
from peltier_adapters.batch.forward import forward
from peltier_adapters.batch.row import Row
from peltier_adapters.generation import Draft, Generator, create_search
from peltier_adapters.residency.bank import Banks
from peltier_adapters.spec.decoding import Decoding
from peltier_backbone.text.packing import Encoded

from tests.support.levels import fastest_level, forced_level, reloaded

ROUTE = "peltier_server/routes/predict.py"
_NUM_RUNS = 20
TOKENS = Encoded((5, 8, 13, 21, 34), (0,) * 5)


class EnteredFiles:
    """The files of this project whose functions run in threads that begin while this is `installed`, in the order in
    which they are entered."""

    def __init__(self) -> None:
        self._recording = False
        self._files: dict[str, None] = {}

    @contextmanager
    def installed(self) -> Iterator[None]:
        before = threading.getprofile()
        threading.setprofile(self._note)
        try:
            yield
        finally:
            threading.setprofile(before)  # type: ignore[arg-type]

    def of(self, work: Callable[[], object]) -> list[str]:
        """The files that `work` enters each time but the first ones. So what the server does by itself does not
        count."""
        for _ in range(3):
            work()
        first, *others = [self._record(work) for _ in range(_NUM_RUNS)]
        found = [file for file in first if all(file in other for other in others)]
        print(_listed(found))
        return found

    def _note(self, frame: FrameType, event: str, _: Any) -> None:
        if self._recording and event == "call":
            _, found, path = frame.f_code.co_filename.rpartition("/peltier_")
            if found:
                self._files.setdefault(f"peltier_{path}")

    def _record(self, work: Callable[[], object]) -> list[str]:
        self._files = {}
        self._recording = True
        work()
        self._recording = False
        return list(self._files)

    def in_thread(self, work: Callable[[], object]) -> list[str]:
        """The same of work that uses no other thread; it runs in a new one."""
        files: list[str] = []
        thread = threading.Thread(target=lambda: files.extend(self.of(work)))
        thread.start()
        thread.join()
        return files


@contextmanager
def _asking(url: str, body: dict[str, object]) -> Iterator[Callable[[], object]]:
    content, headers = json.dumps(body), {"content-type": "application/json"}
    with httpx2.Client(base_url=url, timeout=60) as client:
        yield lambda: client.post("/v1/tasks/demo/predict", content=content, headers=headers).raise_for_status()


def _listed(files: list[str]) -> str:
    return "\n".join(f"{number:3} {file}" for number, file in enumerate(files, 1))


def _of_server(files: list[str]) -> list[str]:
    return [file for file in files if file.startswith("peltier_server/")]


@pytest.fixture
def entered(monkeypatch: pytest.MonkeyPatch) -> Iterator[EnteredFiles]:
    """Records the threads that begin in the test. Servers do not poll their registry, because on a loaded machine every
    request would last longer than the pause between two polls."""
    monkeypatch.setattr("peltier_server.catalog.sync._POLL_SECONDS", 3600)
    files = EnteredFiles()
    with files.installed():
        yield files


def test_a_prediction_enters_few_files(entered, listen, bert, make_artifact):
    """From the socket to the answer, and from the route on. These numbers may fall, but not rise."""
    with listen() as listening:
        listening.upload(make_artifact(bert, "compacter", name="demo"))
        with _asking(listening.url, {"inputs": "a good film"}) as ask:
            files = entered.of(ask)
    from_route = files[files.index(ROUTE) :]
    assert len(_of_server(files)) <= 37, _listed(files)
    assert len(_of_server(from_route)) <= 24, _listed(from_route)
    # 37 of the server, and 20 below it: the protocol 1, visible texts 1, tokens 4, the task 1, the batch 12, labels 1.
    assert len(files) <= 57, _listed(files)
    # 24 of the server and 19 below it.
    assert len(from_route) <= 43, _listed(from_route)


def test_a_streamed_text_enters_few_files(entered, listen, t5, t5_directory, make_artifact):
    """From the socket to the last event. These numbers may fall, but not rise."""
    with listen(backbone=t5_directory) as listening:
        listening.upload(make_artifact(t5, "compacter", name="demo", task_type="text2text"))
        body = {"inputs": "a good film", "stream": True, "parameters": {"max_new_tokens": 4}}
        with _asking(listening.url, body) as ask:
            files = entered.of(ask)
    assert len(_of_server(files)) <= 39, _listed(files)
    # 39 of the server, and 23 below it.
    assert len(files) <= 62, _listed(files)


def test_a_row_and_a_step_enter_few_files(entered, bert, t5, make_artifact):
    """By the native kernels: a batch of one row, and one token of a text. These numbers may fall, but not rise."""
    with forced_level(fastest_level()):
        bert, t5 = reloaded(bert), reloaded(t5)
        runner = choose_runner(bert)
        row = Row(TOKENS, Banks(bert).add(read_artifact(make_artifact(bert, "compacter"), bert)))
        files = entered.in_thread(lambda: forward(bert, [row], runner=runner))
        assert len(files) <= 13, _listed(files)
        generator = Generator(t5)
        own = read_artifact(make_artifact(t5, "compacter", task_type="text2text"), t5)
        # More tokens than steps are taken, and no end.
        decoding = Decoding(max_new_tokens=64)
        row = Row(TOKENS, Banks(t5).add(own))
        generator.join([Draft(row, decoding, create_search(decoding, t5.t5.config.start_token_id, -1))])
        files = entered.in_thread(generator.step)
        assert len(files) <= 11, _listed(files)
