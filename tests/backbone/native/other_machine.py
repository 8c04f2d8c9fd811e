"""A library of kernels of another kind of machine, which an emulator of that machine runs (`other_machine.c`).

For each call, all tensors and structures that it can reach are copied to a file that the emulated process maps. There
they lie at other addresses, so each word of a structure, or of a tensor of int64, that is an address here becomes the
address there. What the call has changed is copied back.
"""

import ctypes
import gc
import mmap
import struct
import subprocess
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from peltier_backbone.native.interface import INTERFACE
from torch import Tensor

_MAX_ARGUMENTS = 2
# A `request` and a result in other_machine.c.
_REQUEST, _RESULT = struct.Struct(f"<32s{_MAX_ARGUMENTS}q"), struct.Struct("<q")
_MEMORY, _LINE, _WORD = 1 << 26, 64, 8

_Thing = Tensor | ctypes.Structure | ctypes.Array[Any]
_KINDS = (Tensor, ctypes.Structure, ctypes.Array)


class RemoteKernels:
    """The functions of a library, called as ctypes calls them. `base` is the address of `memory` in the emulated
    process, and `answer` sends it a request."""

    def __init__(self, memory: mmap.mmap, base: int, answer: Callable[[bytes], bytes]) -> None:
        self._memory, self._base, self._answer = memory, base, answer
        # Objects that are frozen are not listed later.
        gc.unfreeze()
        self._constants = list(_things())
        gc.freeze()

    def __getattr__(self, name: str) -> Callable[..., int]:
        return partial(self._call, name)

    def _call(self, name: str, *arguments: ctypes.Structure) -> int:
        function, reach = INTERFACE.functions[name], _Reach([*self._constants, *_things()], self._base)
        for pointer, argument in zip(function.arguments, arguments, strict=True):
            pointer.from_param(argument)  # refuses another struct
        places = [reach.translate(ctypes.addressof(argument)) for argument in arguments]
        sent = [(block, place, self._send(block, place, reach)) for block, place in reach.blocks()]
        places += [0] * (_MAX_ARGUMENTS - len(places))
        (result,) = _RESULT.unpack(self._answer(_REQUEST.pack(name.encode(), *places)))
        for block, place, before in sent:
            after = self._memory[place : place + block.size]
            if after != before:
                ctypes.memmove(block.start, after, block.size)
        return result if function.result is ctypes.c_int64 else ctypes.c_int(result).value

    def _send(self, block: "_Block", place: int, reach: "_Reach") -> bytes:
        """The bytes as they are there."""
        data = ctypes.string_at(block.start, block.size)
        if block.has_addresses:
            words = array("q", data[: block.size // _WORD * _WORD])
            data = array("q", map(reach.translate, words)).tobytes() + data[len(words) * _WORD :]
        self._memory[place : place + block.size] = data
        return data


class _Block(NamedTuple):
    """Bytes of this process."""

    start: int
    size: int
    has_addresses: bool


class _Reach:
    """The blocks to which a call has an address, and their places in the memory at `base`."""

    def __init__(self, things: Iterable[_Thing], base: int) -> None:
        self._live, self._base = _whole_blocks(things), base
        self._starts = [block.start for block in self._live]
        self._places: dict[_Block, int] = {}
        self._found: list[_Block] = []
        self._end = 0

    def translate(self, address: int) -> int:
        """An address of this process becomes one there. Other numbers stay as they are."""
        number = bisect_right(self._starts, address) - 1
        if number < 0 or address >= self._starts[number] + self._live[number].size:
            return address
        return self._base + self._place(self._live[number]) + address - self._starts[number]

    def _place(self, block: _Block) -> int:
        if block not in self._places:
            # A line of the cache holds the same bytes there.
            place = self._places[block] = self._end + block.start % _LINE
            self._end = -(-(place + block.size) // _LINE) * _LINE
            assert self._end <= _MEMORY, "the memory is too small for this call"
            self._found.append(block)
        return self._places[block]

    def blocks(self) -> Iterator[tuple[_Block, int]]:
        """Each with its place; more are found while the caller translates these."""
        for block in self._found:
            yield block, self._places[block]


def _things() -> Iterator[_Thing]:
    """All tensors and structures."""
    for thing in gc.get_objects():
        if issubclass(type(thing), _KINDS):  # a proxy has another __class__
            yield thing


def _whole_blocks(things: Iterable[_Thing]) -> list[_Block]:
    """Their memory, in the order of addresses. Parts of another block are left out."""
    whole: list[_Block] = []
    for block in sorted(map(_block_of, things), key=lambda one: (one.start, -one.size)):
        if block.size and (not whole or block.start >= whole[-1].start + whole[-1].size):
            whole.append(block)
    return whole


def _block_of(thing: _Thing) -> _Block:
    if not isinstance(thing, Tensor):
        return _Block(ctypes.addressof(thing), ctypes.sizeof(thing), has_addresses=True)
    if thing.device.type != "cpu" or thing.layout is not torch.strided:
        return _Block(0, 0, has_addresses=False)
    storage = thing.untyped_storage()
    return _Block(storage.data_ptr(), storage.nbytes(), thing.dtype == torch.int64)


@contextmanager
def run_kernels(emulator: Sequence[str], program: Path, library: Path) -> Iterator[RemoteKernels]:
    """The kernels of `library`, run by the program of other_machine.c."""
    file = library.with_suffix(".memory")
    file.touch()
    with file.open("r+b") as opened:
        opened.truncate(_MEMORY)
        command = (*emulator, str(program), str(library), str(file), str(_MEMORY))
        with (
            mmap.mmap(opened.fileno(), _MEMORY) as memory,
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process,
        ):
            assert process.stdin is not None
            assert process.stdout is not None
            requests, results = process.stdin, process.stdout

            def receive() -> bytes:
                found = results.read(_RESULT.size)
                assert len(found) == _RESULT.size, f"the emulated {library.name} ended with {process.wait()}"
                return found

            def answer(request: bytes) -> bytes:
                requests.write(request)
                requests.flush()
                return receive()

            (base,) = _RESULT.unpack(receive())
            yield RemoteKernels(memory, base, answer)
            requests.close()
