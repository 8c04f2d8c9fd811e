"""The name by which a process holds trainings and batches."""

import os
import secrets
import socket


def create_holder_name() -> str:
    """`HOST:PID:TOKEN`, another one at every call.

    Containers may share the host's name and have the same process id, and so may a process that is started again."""
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
