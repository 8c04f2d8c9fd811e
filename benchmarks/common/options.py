"""The command line of a benchmark."""

import argparse
import json
from pathlib import Path


def create_parser(doc: str | None, **defaults: int | float | str | tuple[int, ...]) -> argparse.ArgumentParser:
    """A parser whose help begins with the docstring of the benchmark, as it is written. It has a flag for each of
    `defaults`, whose value has the same type; a tuple stands for one value or several."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in defaults.items():
        flag = f"--{name.replace('_', '-')}"
        if isinstance(default, tuple):
            parser.add_argument(
                flag, type=type(default[0]), nargs="+", default=list(default), help=f"default: {default}"
            )
        else:
            parser.add_argument(flag, type=type(default), default=default, help=f"default: {default}")
    return parser


def add_data(parser: argparse.ArgumentParser, what: str = "SST-2's validation.jsonl.gz") -> None:
    """The flag of a benchmark that reads sentences."""
    parser.add_argument("--data", type=Path, help=f"{what}; without it, sentences of such lengths")


def add_json(parser: argparse.ArgumentParser, what: str = "what was measured in each round") -> None:
    """The flag of a benchmark whose figures other programs read."""
    parser.add_argument("--json", type=Path, help=f"also write {what} to this file")


def write_json(options: argparse.Namespace, found: object) -> None:
    """Writes `found` to the file of `--json`, if there is one."""
    if options.json:
        options.json.write_text(json.dumps(found))
