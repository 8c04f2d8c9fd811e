"""How many adapters with one wrong tensor does an upload's proof refuse, in each precision of the backbone?

    .venv/bin/python benchmarks/golden_proof.py --data DIR [--adapters runs/golden] [--swaps 40]

For each preset of MiniLM it trains an adapter on SST-2 and one on SUBJ, with other seeds, briefly, and keeps their
files in the folder `--adapters`. Then it replaces single tensors, drawn at random, by those of the other adapter of the
preset, and checks the result as a server in float32, bfloat16 and int8 does: as it is, and without the output on the
substitute, as older releases wrote files. The adapters themselves must be accepted everywhere.
"""

import gzip
import json
import random
from collections.abc import Iterator
from pathlib import Path

import torch
from common.harness import create_parser
from peltier_adapters.artifact.artifact import Artifact, load_artifact
from peltier_adapters.artifact.manifest import TrainingRecord
from peltier_adapters.golden.golden import check_golden
from peltier_adapters.golden.proof import Candidate
from peltier_adapters.inputs import encode_input
from peltier_adapters.presets.presets import Preset, presets_for
from peltier_adapters.spec.tasks import TaskSpec
from peltier_backbone.backbone import Backbone
from peltier_backbone.load import load_backbone
from peltier_training.delivery import export
from peltier_training.models.model import HeadedAdapter
from torch.nn import functional as F

SETS = {"sst2": "sentence", "subj": "text"}
TASK = TaskSpec(type="classification", labels=("negative", "positive"), inputs="single", max_length=32)
STEPS, BATCH, RATE = 20, 16, 3e-3
PRECISIONS = ("float32", "int8", "bfloat16")
Rows = list[tuple[str, int]]
Pair = tuple[Artifact, Artifact]


def read_rows(path: Path, column: str, count: int) -> Rows:
    """Some rows of a file in random order, as texts and labels."""
    with gzip.open(path, "rt") as file:
        rows = [json.loads(line) for line in file]
    random.Random(0).shuffle(rows)
    return [(row[column], row["label"]) for row in rows[:count]]


def train(backbone: Backbone, preset: Preset, rows: Rows, seed: int) -> Candidate:
    """An adapter after a few steps."""
    settings = preset.settings({}, backbone.config)
    parts = preset.compose(settings, backbone.config, outputs=len(TASK.labels))
    torch.manual_seed(seed)
    model = HeadedAdapter(backbone, parts, settings, seed=seed).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    for start in range(0, len(rows), BATCH):
        batch = rows[start : start + BATCH]
        packed = backbone.pack([encode_input(backbone, TASK, text) for text, _ in batch])
        loss = F.cross_entropy(model(packed), torch.tensor([label for _, label in batch]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return Candidate(f"{preset.name.replace('+', 'p')}-{seed}", preset.name, parts, model.merged(), TASK)


def make_pairs(backbone: Backbone, data: Path, folder: Path) -> Iterator[Pair]:
    """The two adapters of each preset, from `folder` if they are there."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = {name: read_rows(data / name / "train.jsonl.gz", own, STEPS * BATCH) for name, own in SETS.items()}
    unseen = {name: read_rows(data / name / "validation.jsonl.gz", own, 400) for name, own in SETS.items()}
    for preset in presets_for(backbone.config):
        paths = [folder / f"{preset.name}-{name}.safetensors" for name in SETS]
        for seed, (name, path) in enumerate(zip(SETS, paths, strict=True)):
            if not path.exists():
                trained = train(backbone, preset, rows[name], seed)
                path.write_bytes(export(backbone, trained, [text for text, _ in unseen[name]], TrainingRecord()))
        first, second = (load_artifact(path, backbone) for path in paths)
        yield first, second


def draw_swaps(pairs: list[Pair], count: int) -> list[Artifact]:
    """`count` adapters, of all presets in turn, each with one tensor of the other adapter of its preset."""
    chooser, swaps = random.Random(0), []
    both = [pair for own, other in pairs for pair in ((own, other), (other, own))]
    for number in range(count):
        own, other = both[number % len(both)]
        name = chooser.choice(sorted(own.tensors))
        tensors = {**own.tensors, name: other.tensors[name]}
        swaps.append(Artifact(own.manifest, tensors, f"{own.manifest.name}: {name}"))
    return swaps


def without_substitute(artifact: Artifact) -> Artifact:
    """The artifact as a release without the substitute would have written it."""
    manifest = artifact.manifest.model_copy(update={"substitute_output": None})
    return Artifact(manifest, artifact.tensors, artifact.digest)


def main() -> None:
    parser = create_parser(__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--adapters", type=Path, default=Path("runs/golden"), help="the folder of the trained adapters")
    parser.add_argument("--swaps", type=int, default=40)
    options = parser.parse_args()
    torch.set_num_threads(1)
    backbones = [load_backbone("minilm", dtype=precision) for precision in PRECISIONS]
    pairs = list(make_pairs(backbones[0], options.data, options.adapters))
    swaps = draw_swaps(pairs, options.swaps)
    for backbone in backbones:
        refused = [bool(check_golden(backbone, one)) for one in swaps]
        older = sum(bool(check_golden(backbone, without_substitute(one))) for one in swaps)
        sound = [one for pair in pairs for one in pair]
        wrongly = sum(bool(check_golden(backbone, one)) for one in sound)
        print(
            f"{backbone.precision:9} wrong: {sum(refused)} of {len(swaps)} refused, {older} without the substitute; "
            f"sound: {wrongly} of {len(sound)} refused"
        )
        for swap, found in zip(swaps, refused, strict=True):
            if not found:
                print(f"  accepted: {swap.digest}")


if __name__ == "__main__":
    main()
