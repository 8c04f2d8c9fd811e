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
from peltier_adapters.batch.forward import forward
from peltier_adapters.batch.row import Row
from peltier_adapters.generation import Decoding, Generator, create_draft
from peltier_adapters.residency.bank import Banks
from peltier_backbone.backbone import Backbone
from peltier_backbone.text.packing import Encoded

from tests.server.conftest import Listen

ROUTE = "peltier_server/routes/predict.py"
_NUM_RUNS = 5


class EnteredFiles:
    """The files of this project whose functions run in threads that begin while this is `installed`, in the order in
    which they are entered."""

    def __init__(self) -> None:
        self._recording = False
        self._files: dict[str, None] = {}

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Threads that begin in this block are recorded."""
        before = threading.getprofile()
        threading.setprofile(self._note)
        try:
            yield
        finally:
            threading.setprofile(before)  # type: ignore[arg-type]

    def of(self, work: Callable[[], object]) -> list[str]:
        """The files that `work` enters each time but the first ones. So what the server does by itself, such as its
        polls, does not count."""
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
    """A call that sends `body` on a connection that is kept, and reads the whole answer."""
    content, headers = json.dumps(body), {"content-type": "application/json"}
    with httpx2.Client(base_url=url, timeout=60) as client:
        yield lambda: client.post("/v1/tasks/demo/predict", content=content, headers=headers).raise_for_status()


def _listed(files: list[str]) -> str:
    return "\n".join(f"{number:3} {file}" for number, file in enumerate(files, 1))


def _of_server(files: list[str]) -> list[str]:
    return [file for file in files if file.startswith("peltier_server/")]


@pytest.fixture
def entered() -> Iterator[EnteredFiles]:
    """Records the threads that begin in the test."""
    files = EnteredFiles()
    with files.installed():
        yield files


def test_a_prediction_enters_few_files(
    entered: EnteredFiles, listen: Listen, bert: Backbone, make_artifact: Callable[..., bytes]
) -> None:
    """From the socket to the answer, and from the route on. These numbers may fall, but not rise."""
    with listen() as listening:
        listening.upload(make_artifact(bert, "compacter", name="demo"))
        with _asking(listening.url, {"inputs": "a good film"}) as ask:
            files = entered.of(ask)
    from_route = files[files.index(ROUTE) :]
    assert len(_of_server(files)) <= 36, _listed(files)
    assert len(_of_server(from_route)) <= 23, _listed(from_route)
    # 36 of the server, and 25 below it: the protocol 1, tokens 4, the task 1, the batch 18, labels 1.
    assert len(files) <= 61, _listed(files)
    # 23 of the server and 24 below it.
    assert len(from_route) <= 47, _listed(from_route)


def test_a_streamed_text_enters_few_files(
    entered: EnteredFiles, listen: Listen, t5: Backbone, t5_directory: str, make_artifact: Callable[..., bytes]
) -> None:
    """From the socket to the last event. These numbers may fall, but not rise."""
    with listen(backbone=t5_directory) as listening:
        listening.upload(make_artifact(t5, "compacter", name="demo", task_type="text2text"))
        body = {"inputs": "a good film", "stream": True, "parameters": {"max_new_tokens": 4}}
        with _asking(listening.url, body) as ask:
            files = entered.of(ask)
    assert len(_of_server(files)) <= 39, _listed(files)
    # 39 of the server, and 33 below it.
    assert len(files) <= 72, _listed(files)


def test_a_row_enters_few_files(entered: EnteredFiles, bert: Backbone, make_artifact: Callable[..., bytes]) -> None:
    """A batch of one row of a Compacter on the CPU. This number may fall, but not rise."""
    row = _row(bert, make_artifact(bert, "compacter"))
    files = entered.in_thread(lambda: forward(bert, [row]))
    assert 0 < len(files) <= 22, _listed(files)


def test_a_step_enters_few_files(entered: EnteredFiles, t5: Backbone, make_artifact: Callable[..., bytes]) -> None:
    """One token of a text with a Compacter. This number may fall, but not rise."""
    generator = Generator(t5)
    generator.join([create_draft(t5, _row(t5, make_artifact(t5, "compacter")), Decoding(max_new_tokens=32))])
    files = entered.in_thread(generator.step)
    assert 0 < len(files) <= 16, _listed(files)


def _row(backbone: Backbone, artifact: bytes) -> Row:
    resident = Banks(backbone).add(read_artifact(artifact, backbone))
    return Row(Encoded((5, 8, 13, 21, 34), (0,) * 5), resident)
