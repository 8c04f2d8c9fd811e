"""What does an int8 backbone cost in quality? MiniLM, 1,000 training rows a set.

    .venv/bin/peltier sweep benchmarks/claims/first-block.toml --data DIR --output runs/first-block --seed 0
    .venv/bin/peltier sweep benchmarks/grids/int8.toml --data DIR --output runs/int8 --seed 0
    .venv/bin/python benchmarks/int8_quality.py --data DIR [--results runs]

The sweeps train the same adapters on a float32 and on an int8 backbone; of the first only those from block 0 on count.
The first adapter is measured on both backbones and the second in int8, on the rows of
`DIR/<task>/{validation,test}.jsonl.gz`, 2,000 at most. `--task`, `--preset` and `--seed` of the sweeps choose some.
"""

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from common.harness import create_parser
from common.sweeps import artifact_path, measure_artifact, read_results, read_rows
from peltier_backbone.backbone import Backbone
from peltier_backbone.load import load_backbone
from peltier_training.sweep.trial import TrialResult

MAX_ROWS = 2000
Way = tuple[str, str]
# The precision of the backbone in training, and in serving.
WAYS: tuple[Way, ...] = (("float32", "float32"), ("float32", "int8"), ("int8", "int8"))
# The sweep that trains on a backbone of each precision.
SWEEPS = {"float32": "first-block", "int8": "int8"}
Cell = tuple[str, str]  # task, preset
Point = tuple[str, str, int]  # and seed


def find_points(folder: Path) -> dict[Point, Path]:
    """The artifacts of a sweep by task, preset and seed, of those that change every block."""

    def point(one: TrialResult) -> Point:
        return one.task, one.preset, one.seed

    return {point(one): artifact_path(folder, one) for one in read_results(folder) if one.settings["first_block"] == 0}


def measure_means(
    backbones: Mapping[str, Backbone], artifacts: Mapping[str, Mapping[Point, Path]], cell: Cell, files: Sequence[Path]
) -> dict[Way, float]:
    """The mean metric over the seeds of a task and preset in each way, in percent."""
    means = {}
    for trained, served in WAYS:
        found = [
            measure_artifact(backbones[served], artifact, read_rows(artifact, files)[:MAX_ROWS])
            for point, artifact in artifacts[trained].items()
            if point[:2] == cell
        ]
        if found:
            means[trained, served] = 100 * statistics.mean(found)
    return means


def main() -> None:
    parser = create_parser(__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--results", type=Path, default=Path("runs"), help="the folder of both sweeps' outputs")
    options = parser.parse_args()
    torch.set_num_threads(1)
    backbones = {dtype: load_backbone("minilm", dtype=dtype) for dtype in ("float32", "int8")}
    artifacts = {dtype: find_points(options.results / name) for dtype, name in SWEEPS.items()}
    print("| set | preset | float32 | served in int8 | trained and served in int8 |")
    print("| --- | --- | --: | --: | --: |")
    gaps: dict[Way, list[float]] = defaultdict(list)
    base, *others = WAYS
    for task, preset in sorted({point[:2] for point in artifacts["float32"]}):
        files = [options.data / task / f"{part}.jsonl.gz" for part in ("validation", "test")]
        means = measure_means(backbones, artifacts, (task, preset), files)
        own = {way: means[way] - means[base] for way in others if way in means}
        shown = " | ".join(f"{own[way]:+.2f}" if way in own else "" for way in others)
        print(f"| {task} | {preset} | {means[base]:.2f} | {shown} |", flush=True)
        for way, gap in own.items():
            gaps[way].append(gap)
    for (trained, served), found in gaps.items():
        mean, between = statistics.mean(found), f"between {min(found):+.2f} and {max(found):+.2f}"
        print(f"trained in {trained}, served in {served}: {len(found)} cells, {mean:+.2f} on average, {between}")


if __name__ == "__main__":
    main()
