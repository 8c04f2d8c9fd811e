"""The command line of a benchmark."""

import argparse
import json
from pathlib import Path


def create_parser(doc: str | None) -> argparse.ArgumentParser:
    """A parser whose help begins with the docstring of the benchmark, as it is written."""
    return argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)


def add_json(parser: argparse.ArgumentParser, what: str = "what was measured in each round") -> None:
    """The flag of a benchmark whose figures other programs read."""
    parser.add_argument("--json", type=Path, help=f"also write {what} to this file")


def write_json(options: argparse.Namespace, found: object) -> None:
    """Writes `found` to the file of `--json`, if there is one."""
    if options.json:
        options.json.write_text(json.dumps(found))
