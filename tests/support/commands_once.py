"""The tree of all commands, made once: it takes most of the run of a command, and every run may share it."""

from functools import cache

from peltier_client import cli

create_command = cache(cli.create_command)
