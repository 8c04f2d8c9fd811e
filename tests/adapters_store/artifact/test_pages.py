"""Freed memory goes to the next request of the same size, or back to the system."""

import ctypes
import threading
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st
from peltier_adapters.artifact.pages import Memory, Pages

PAGE = 4096


def _address(memory: Memory) -> int:
    return ctypes.addressof(memory)


def test_what_is_given_back_is_used_again():
    """By the next who asks for as many pages, not for more or fewer."""
    pages = Pages(max_kept_bytes=10 * PAGE)
    memory = pages.take(3 * PAGE - 5)
    address, size = _address(memory), len(memory)
    del memory
    assert size == 3 * PAGE
    others = [pages.take(2 * PAGE), pages.take(4 * PAGE)]
    assert address not in map(_address, others)
    assert _address(pages.take(3 * PAGE)) == address


def test_memory_stays_while_a_view_of_it_does():
    """Memory with a live view is not reused."""
    pages = Pages()
    view = memoryview(pages.take(PAGE)).cast("B")[100:]
    view[0] = 7
    other = memoryview(pages.take(PAGE)).cast("B")
    other[100] = 8
    assert view[0] == 7


@given(sizes=st.lists(st.integers(0, 5 * PAGE), max_size=40), limit=st.integers(0, 12 * PAGE))
def test_no_more_is_kept_than_allowed(sizes: list[int], limit: int):
    """However much comes back, and what came back first goes first."""
    pages = Pages(max_kept_bytes=limit)
    held = [pages.take(size) for size in sizes]
    while held:
        held.pop()
        assert pages.kept_bytes <= limit


def test_threads_share_no_memory():
    """Each finds what it wrote until it lets go of it."""
    pages, wrong = Pages(max_kept_bytes=4 * PAGE), []

    def work(number: int) -> Callable[[], None]:
        def write() -> None:
            for _ in range(300):
                view = memoryview(pages.take(PAGE)).cast("B")
                view[:] = bytes([number]) * PAGE
                wrong.extend([number] * (bytes(view) != bytes([number]) * PAGE))

        return write

    threads = [threading.Thread(target=work(number)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert wrong == []
