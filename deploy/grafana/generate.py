"""`python deploy/grafana/generate.py FOLDER` writes the dashboards as JSON, one file each."""

import argparse
import json
from pathlib import Path

from boards import BOARDS
from grafana_foundation_sdk.cog.encoder import JSONEncoder


def main() -> None:
    """Writes, and says where."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    for board in BOARDS:
        text = json.dumps(board.build(), cls=JSONEncoder, indent=2)
        (folder / f"{board.name}.json").write_text(f"{text}\n")
    print(f"wrote {len(BOARDS)} dashboards to {folder}")


if __name__ == "__main__":
    main()
