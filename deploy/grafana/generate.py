"""Writes the dashboards as JSON: `python deploy/grafana/generate.py`, or with `--check` says which one is stale."""

import json
import sys
from pathlib import Path

from boards import BOARDS
from grafana_foundation_sdk.cog.encoder import JSONEncoder

DIRECTORY = Path(__file__).parent / "dashboards"


def main() -> None:
    """As the command line says."""
    files = {DIRECTORY / f"{board.name}.json": f"{json.dumps(board.build(), cls=JSONEncoder, indent=2)}\n"
             for board in BOARDS}  # fmt: skip
    if "--check" not in sys.argv[1:]:
        for file, text in files.items():
            file.write_text(text)
        return
    stale = [file.name for file, text in files.items() if not file.exists() or file.read_text() != text]
    if stale:
        sys.exit(f"error: {', '.join(stale)}: run python deploy/grafana/generate.py")


if __name__ == "__main__":
    main()
