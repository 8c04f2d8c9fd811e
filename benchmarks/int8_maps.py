"""Which maps of a backbone are sensitive to int8? Each kind is left in float32 by itself, the rest in int8.

    .venv/bin/python benchmarks/int8_maps.py --data DIR [--backbone minilm] [--results runs/first-block] [--rows 500]

It prints the cosine of the last hidden states to those in float32, token by token over 128 sentences of SST-2; for a
T5 those of the encoder. With the results of a sweep, such as those for `int8_quality.py`, it takes the artifacts of one
preset that change every block. It also prints their mean metric on the validation rows, and how many of their answers
are the same as in float32.
"""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import torch
from common.harness import create_parser
from common.sweeps import artifact_path, read_results, read_rows
from peltier_adapters.artifact.artifact import Artifact, load_artifact
from peltier_backbone.backbone import Backbone
from peltier_backbone.load import load_backbone
from peltier_training.config.run import BEST_METRICS
from peltier_training.data.examples import Example, read_examples
from peltier_training.evaluate.evaluation import Evaluation
from peltier_training.evaluate.examination import examine
from torch import Tensor

SENTENCES = 128
KINDS = {
    "all in int8": (),
    "token embeddings": ("embeddings.tokens", "embedding"),
    "query, key, value": ("query_key_value", "cross.query", "cross.key_value"),
    "attention output": ("attention_output", "attention.output", "own.output", "cross.output"),
    "intermediate": ("intermediate",),
    "output": ("layers.*.output", "feed_forward.output"),
    "first block": ("layers.0.*", "encoder.blocks.0.*"),
    "last block": ("layers.last.*", "encoder.blocks.last.*"),
}


def mix(exact: Any, rounded: Any, is_kept: Callable[[str], bool], path: str = "") -> Any:
    """The model `rounded` with the parts of `exact` whose path is kept. A list's last item has the index `last`."""
    if is_kept(path):
        return exact
    if is_dataclass(exact) and not isinstance(exact, type):
        names = [field.name for field in fields(exact)]
        parts = {name: mix(getattr(exact, name), getattr(rounded, name), is_kept, _join(path, name)) for name in names}
        return replace(rounded, **parts)
    if isinstance(exact, list):
        indices = [*map(str, range(len(exact) - 1)), "last"]
        items = zip(exact, rounded, indices, strict=True)
        return [mix(one, other, is_kept, _join(path, index)) for one, other, index in items]
    return rounded


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def keeps(patterns: Sequence[str]) -> Callable[[str], bool]:
    """Whether a path ends in one of the patterns, or begins with one that ends in `.*`."""
    return lambda path: any(_matches(path, pattern) for pattern in patterns)


def _matches(path: str, pattern: str) -> bool:
    if pattern.endswith(".*"):
        return path.startswith(pattern.removesuffix("*"))
    if ".*." in pattern:
        first, last = pattern.split(".*.")
        return path.startswith(first) and path.split(".")[2:] == [last]
    return path == pattern or path.endswith(f".{pattern}")


@torch.inference_mode()
def states(backbone: Backbone, texts: Sequence[str]) -> Tensor:
    """The last hidden states of an encoder, [tokens, hidden]."""
    packed = backbone.pack([backbone.tokenizer.encode(text, max_tokens=128) for text in texts])
    return backbone.encode(packed)


def measure(backbone: Backbone, artifacts: Sequence[Artifact], rows: Sequence[Sequence[Example]]) -> list[Evaluation]:
    """The evaluation of each artifact on its rows."""
    return [examine(backbone, artifact, some) for artifact, some in zip(artifacts, rows, strict=True)]


def agreement(found: Sequence[Evaluation], exact: Sequence[Evaluation]) -> float:
    """The mean share of answers that are the same, in percent; of tasks with labels."""
    pairs = [(one, other) for one, other in zip(found, exact, strict=True) if isinstance(one.found[0], int)]
    shares = [statistics.mean(a == b for a, b in zip(one.found, other.found, strict=True)) for one, other in pairs]
    return 100 * statistics.mean(shares)


def main() -> None:
    parser = create_parser(__doc__, backbone="minilm", preset="compacter", rows=500)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--results", type=Path, help="the output of a sweep")
    options = parser.parse_args()
    torch.set_num_threads(1)
    exact, rounded = (load_backbone(options.backbone, dtype=dtype) for dtype in ("float32", "int8"))
    sentences = read_examples(options.data / "sst2/validation.jsonl.gz", ("sentence",), "label")[:SENTENCES]
    texts = [str(example.input) for example in sentences]
    trained = read_results(options.results) if options.results else []
    chosen = (options.preset, 0, 0)
    trained = [one for one in trained if (one.preset, one.seed, one.settings["first_block"]) == chosen]
    paths = [artifact_path(options.results, one) for one in trained]
    files = [options.data / one.task / "validation.jsonl.gz" for one in trained]
    rows = [read_rows(path, [file])[: options.rows] for path, file in zip(paths, files, strict=True)]
    artifacts = [load_artifact(path, exact) for path in paths]
    wanted, answers = states(exact, texts), measure(exact, artifacts, rows)
    print(
        "| in float32 | mean cosine | least cosine | mean metric | same answers, % |\n| --- | --: | --: | --: | --: |"
    )
    for kind, patterns in {"everything": ("",), **KINDS}.items():
        backbone = replace(rounded, model=mix(exact.model, rounded.model, keeps(patterns)))
        cosine = torch.cosine_similarity(states(backbone, texts), wanted)
        found = measure(backbone, artifacts, rows)
        metrics = [one.metrics[BEST_METRICS[own.manifest.task.type]] for one, own in zip(found, artifacts, strict=True)]
        quality = f"{100 * statistics.mean(metrics):.2f} | {agreement(found, answers):.2f}" if found else " | "
        print(f"| {kind} | {cosine.mean():.5f} | {cosine.min():.4f} | {quality} |", flush=True)


if __name__ == "__main__":
    main()
