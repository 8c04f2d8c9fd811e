"""The loss curve of a run."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def curve(history: Sequence[Mapping[str, Any]]) -> list[dict[str, float]]:
    """The Trainer's log as points: the step with the training loss since the last point and the learning rate, or with
    the held-out loss. Losses are in nats per token."""
    names = {"loss": "loss", "learning_rate": "learning_rate", "eval_loss": "held_out_loss"}
    points = []
    for entry in history:
        point = {names[name]: entry[name] for name in names if name in entry}
        if "loss" in entry or "eval_loss" in entry:
            points.append({"step": entry["step"]} | point)
    return points


def write_curve(path: Path, points: Sequence[Mapping[str, float]]) -> None:
    """Write one JSON line per point."""
    path.write_text("".join(json.dumps(point) + "\n" for point in points))
