"""The command line in this process, for every test of a command."""

from tests.client.typed_commands import peltier

__all__ = ["peltier"]
