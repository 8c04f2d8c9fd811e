"""Sources of a blob's bytes: read in order into the reader's memory, and hashed as they were read."""

import hashlib
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from peltier_store.blobs import sources
from peltier_store.blobs.errors import BlobDamaged, BlobError
from peltier_store.blobs.sources import CheckedSource, FileSource


@pytest.fixture(scope="module")
def executor() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as executor:
        yield executor


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("files") / "blob"


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _opened(path: Path, data: bytes) -> int:
    path.write_bytes(data)
    return os.open(path, os.O_RDONLY)


@given(
    data=st.binary(max_size=60),
    cuts=st.lists(st.integers(0, 60), max_size=6),
    head=st.integers(0, 10),
    most=st.integers(1, 7),
)
def test_any_pieces_are_filled_in_order(data: bytes, cuts: list[int], head: int, most: int, file: Path) -> None:
    """This holds even if the operating system reads fewer bytes or takes fewer pieces than asked."""
    start = min(head, len(data))
    places = [start, *sorted(start + cut % (len(data) - start + 1) for cut in cuts), len(data)]
    memory = bytearray(len(data))
    pieces = [memoryview(memory)[a:b] for a, b in pairwise(places) if a < b]
    read, readv = os.read, os.readv
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sources, "_MAX_PIECES", 2)
        patch.setattr(os, "read", lambda descriptor, count: read(descriptor, min(count, most)))
        patch.setattr(os, "readv", lambda descriptor, into: readv(descriptor, [into[0][:most]]))
        source = FileSource(descriptor := _opened(file, data))
        memory[:start] = source.read(start)
        assert source.read_into(pieces, lambda: bytes(memory)) == data
    os.close(descriptor)


def test_a_file_that_ends_early_is_damaged(file: Path, executor: ThreadPoolExecutor) -> None:
    """The file was cut off after it was opened."""
    data = bytes(range(100))
    descriptor = _opened(file, data)
    for read in (lambda one: one.read(100), lambda one: one.read_into([memoryview(bytearray(100))], bool)):
        os.lseek(descriptor, 0, os.SEEK_SET)
        checked = CheckedSource(_digest(data), FileSource(descriptor), executor)
        os.truncate(file, 50)
        with pytest.raises(BlobDamaged, match=r"is damaged: the file ends \d+ bytes early"):
            read(checked)
        file.write_bytes(data)
    os.close(descriptor)


def test_a_file_that_cannot_be_read_is_a_sentence(file: Path, executor: ThreadPoolExecutor) -> None:
    """The error is a BlobError instead of an exception of the operating system."""
    source = FileSource(descriptor := _opened(file, b"data"))
    os.close(descriptor)
    with pytest.raises(BlobError, match=r"^the blob sha256:0 cannot be read: "):
        CheckedSource("sha256:0", source, executor).read(4)


@pytest.mark.parametrize("num_bytes", [100, sources._BYTES_OF_TWO_THREADS + 100])
def test_the_digest_is_that_of_the_bytes_that_were_read(num_bytes, file, executor):
    """Later changes of the file do not matter, nor whether the reader has read all of it."""
    data = os.urandom(num_bytes)
    for num_pieces in (0, 1, 3):
        descriptor = _opened(file, data)
        checked = CheckedSource(_digest(data), FileSource(descriptor), executor)
        memory = memoryview(bytearray(num_bytes))
        pieces = [memory[number * num_bytes // 3 : (number + 1) * num_bytes // 3] for number in range(num_pieces)]
        assert checked.read_into(pieces, lambda: "checked") == "checked"
        if num_pieces == 3:
            file.write_bytes(bytes(num_bytes))
            assert memory == data
        checked.require_digest()
        os.close(descriptor)


@pytest.mark.parametrize("place", [0, 50, -1])
def test_one_wrong_byte_is_damage(place: int, file: Path, executor: ThreadPoolExecutor) -> None:
    """It may be at the beginning, in a piece, or in bytes that the reader has skipped."""
    data, wrong = bytes(100), bytearray(100)
    wrong[place] = 1
    descriptor = _opened(file, bytes(wrong))
    checked = CheckedSource(_digest(data), FileSource(descriptor), executor)
    checked.read(10)
    checked.read_into([memoryview(bytearray(60))], bool)
    with pytest.raises(BlobDamaged, match="is damaged: its 100 stored bytes have the digest sha256:"):
        checked.require_digest()
    os.close(descriptor)


def test_a_check_waits_for_no_thread(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the other threads are busy, the hashing thread runs the check itself."""
    monkeypatch.setattr(sources, "_BYTES_OF_TWO_THREADS", 0)
    busy = threading.Event()
    descriptor = _opened(file, b"data")
    with ThreadPoolExecutor(1) as executor:
        executor.submit(busy.wait)
        try:
            checked = CheckedSource(_digest(b"data"), FileSource(descriptor), executor)
            found = checked.read_into([memoryview(bytearray(4))], threading.get_ident)
        finally:
            busy.set()
    assert found == threading.get_ident()
    os.close(descriptor)


def test_a_refusal_in_the_other_thread_is_raised_here(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "_BYTES_OF_TWO_THREADS", 0)
    begun = threading.Event()

    class Waiting(ThreadPoolExecutor):
        def submit(self, *given: object, **options: object) -> object:  # type: ignore[override]
            future = super().submit(*given, **options)  # type: ignore[arg-type]
            begun.wait(60)
            return future

    def refuse() -> None:
        begun.set()
        raise ValueError(f"refused in {threading.get_ident()}")

    descriptor = _opened(file, b"data")
    with Waiting(1) as executor:
        checked = CheckedSource(_digest(b"data"), FileSource(descriptor), executor)
        with pytest.raises(ValueError, match="refused in") as caught:
            checked.read_into([memoryview(bytearray(4))], refuse)
    assert str(caught.value) != f"refused in {threading.get_ident()}"
    checked.require_digest()
    os.close(descriptor)
