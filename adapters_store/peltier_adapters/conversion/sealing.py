"""A process without network: once sealed, it opens no socket and starts no program. Imports no torch."""

import ctypes
import platform
import struct
import sys
from dataclasses import dataclass

_NO_NEW_PRIVILEGES = 38
_FILTER_MODE, _ALL_THREADS = 1, 1
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050001  # the second is EPERM
_LOAD, _RETURN, _IF_EQUAL, _IF_AT_LEAST = 0x20, 0x06, 0x15, 0x35
_NUMBER, _ARCHITECTURE = 0, 4  # offsets in the kernel's struct seccomp_data
_OTHER_ABI = 0x40000000  # numbers of x32 on x86-64; no other machine has such numbers


@dataclass(frozen=True)
class _Machine:
    """A processor by its number in the kernel's audit, and its system calls by number."""

    audit: int
    seccomp: int
    refused: tuple[int, ...]


# socket, connect, execve, execveat, ptrace and io_uring_setup, which opens sockets too.
_MACHINES = {
    "x86_64": _Machine(0xC000003E, 317, (41, 42, 59, 322, 101, 425)),
    "aarch64": _Machine(0xC00000B7, 277, (198, 203, 221, 281, 117, 425)),
}


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p))


def seal_process() -> bool:
    """Take sockets and other programs from this process and all its threads, for ever. False where the system has no
    such filter: only Linux on x86-64 and ARM has it."""
    machine = _MACHINES.get(platform.machine())
    if sys.platform != "linux" or machine is None:
        return False
    code = b"".join(_instructions(machine))
    buffer = ctypes.create_string_buffer(code, len(code))
    program = _Program(len(code) // 8, ctypes.addressof(buffer))
    kernel = ctypes.CDLL(None, use_errno=True)
    kernel.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    return int(kernel.syscall(machine.seccomp, _FILTER_MODE, _ALL_THREADS, ctypes.byref(program))) == 0


def _instructions(machine: _Machine) -> list[bytes]:
    refuse = _instruction(_RETURN, _REFUSE)
    code = [_instruction(_LOAD, _ARCHITECTURE), _instruction(_IF_EQUAL, machine.audit, then=1), refuse]
    code += [_instruction(_LOAD, _NUMBER), _instruction(_IF_AT_LEAST, _OTHER_ABI, otherwise=1), refuse]
    for number in machine.refused:
        code += [_instruction(_IF_EQUAL, number, otherwise=1), refuse]
    return [*code, _instruction(_RETURN, _ALLOW)]


def _instruction(operation: int, value: int, *, then: int = 0, otherwise: int = 0) -> bytes:
    """One instruction of the filter; `then` and `otherwise` are the numbers of instructions that it skips."""
    return struct.pack("HBBI", operation, then, otherwise, value)
