"""An adapter that an example has trained."""

import json
from dataclasses import dataclass
from pathlib import Path

from common.commands import print_command, run_command


@dataclass(frozen=True)
class TrainedAdapter:
    """The file of an artifact, and what `peltier inspect` says about it: the parameters, also in percent of the
    backbone, and the metrics on the validation rows."""

    file: Path
    num_parameters: int
    percent: float
    metrics: dict[str, float]


def train_adapter(file: Path, *options: object) -> TrainedAdapter:
    """Prints and runs `peltier train` with these options; the artifact is written to `file`."""
    command = ("train", *options, "--directory", file.parent / "runs", "--output", file)
    print_command(*command)
    run_command(*command)
    inspected = json.loads(run_command("inspect", file, "--json"))
    metrics = inspected["manifest"]["training"]["metrics"]
    return TrainedAdapter(file, inspected["parameters"], inspected["percent"], metrics)
