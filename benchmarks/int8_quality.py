"""What does an int8 backbone cost in quality? MiniLM, 1,000 training rows a set.

    for dtype in float32 int8; do
        .venv/bin/peltier sweep benchmarks/grids/int8-trained-$dtype.toml --data DIR --output runs/int8/$dtype
    done
    .venv/bin/python benchmarks/int8_quality.py --data DIR [--results runs/int8]

The sweeps train the same adapters on a float32 and on an int8 backbone, with the defaults of `peltier train` and five
epochs. The first adapter is measured on both backbones and the second in int8, on the rows of
`DIR/<task>/{validation,test}.jsonl.gz`, 2,000 at most. `--task`, `--preset` and `--seed` of the sweeps choose some.
"""

import statistics
from collections import defaultdict
from pathlib import Path

import torch
from common.harness import create_parser
from common.sweeps import artifact_path, measure_artifact, read_results, read_rows
from peltier_backbone.load import load_backbone
from peltier_training.sweep.trial import TrialResult

MAX_ROWS = 2000
# The precision of the backbone in training, and in serving.
WAYS = (("float32", "float32"), ("float32", "int8"), ("int8", "int8"))
Point = tuple[str, str, int]


def find_points(folder: Path) -> dict[Point, Path]:
    """The artifacts of a sweep by task, preset and seed."""

    def point(one: TrialResult) -> Point:
        return one.task, one.preset, one.seed

    return {point(one): artifact_path(folder, one) for one in read_results(folder)}


def main() -> None:
    parser = create_parser(__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--results", type=Path, default=Path("runs/int8"), help="the folder of both sweeps' outputs")
    options = parser.parse_args()
    torch.set_num_threads(1)
    backbones = {dtype: load_backbone("minilm", dtype=dtype) for dtype in ("float32", "int8")}
    artifacts = {dtype: find_points(options.results / dtype) for dtype in backbones}
    seeds: dict[tuple[str, str], list[list[float]]] = defaultdict(list)
    for task, preset, seed in artifacts["float32"].keys() & artifacts["int8"].keys():
        files = [options.data / task / f"{part}.jsonl.gz" for part in ("validation", "test")]
        found = []
        for trained, served in WAYS:
            artifact = artifacts[trained][task, preset, seed]
            found.append(100 * measure_artifact(backbones[served], artifact, read_rows(artifact, files)[:MAX_ROWS]))
        seeds[task, preset].append(found)
    report(seeds)


def report(seeds: dict[tuple[str, str], list[list[float]]]) -> None:
    """Prints each set and preset: float32, and the differences of the other ways to it, as means over the seeds."""
    print("| set | preset | seeds | float32 | served in int8 | trained and served in int8 |")
    print("| --- | --- | --: | --: | --: | --: |")
    gaps = []
    for (task, preset), found in sorted(seeds.items()):
        base, *others = map(statistics.mean, zip(*found, strict=True))
        gaps.append([value - base for value in others])
        shown = " | ".join(f"{gap:+.2f}" for gap in gaps[-1])
        print(f"| {task} | {preset} | {len(found)} | {base:.2f} | {shown} |")
    for (trained, served), own in zip(WAYS[1:], zip(*gaps, strict=True), strict=False):
        mean, between = statistics.mean(own), f"between {min(own):+.2f} and {max(own):+.2f}"
        print(f"trained in {trained}, served in {served}: {len(own)} cells, {mean:+.2f} on average, {between}")


if __name__ == "__main__":
    main()
