"""Model cards of artifacts: what the manifest says, with the hub's own metadata in front as YAML."""

import json
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, ModelCard, ModelCardData
from peltier_adapters.artifact.manifest import Golden, Manifest

# The hub's names of tasks.
_PIPELINES = {
    "classification": "text-classification",
    "multilabel": "text-classification",
    "regression": "text-classification",
    "text2text": "text-generation",
    "token-classification": "token-classification",
    "span": "question-answering",
    "embedding": "sentence-similarity",
    "sparse-embedding": "feature-extraction",
    "multi-vector-embedding": "feature-extraction",
    "ranking": "text-ranking",
}
# The checkpoint of the backbone that Peltier names itself.
_HUB_NAMES = {"minilm": "sentence-transformers/all-MiniLM-L6-v2"}
_HUB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)?")
_SHOWN_CHARS = 200
_NUM_EXAMPLES = 8


def create_card(manifest: Manifest, repository: str, base_model: str | None = None) -> ModelCard:
    """The card of an artifact for `owner/name`. `base_model` is the backbone's repository on the hub; without it the
    manifest's name of the backbone, unless that is a directory."""
    data = ModelCardData(
        base_model=base_model or _base_model(manifest),
        base_model_relation="adapter",
        library_name="peltier",
        pipeline_tag=_PIPELINES[manifest.task.type],
        tags=["peltier", "adapter", manifest.preset],
        model_name=manifest.name,
        metrics=[name for name, _ in _metrics(manifest)] or None,
        eval_results=list(_results(manifest)) or None,
    )
    body = "\n".join(_body(manifest, repository))
    return ModelCard(f"---\n{data.to_yaml()}\n---\n\n{body}\n")


def _base_model(manifest: Manifest) -> str | None:
    name = manifest.backbone.name
    if name in _HUB_NAMES:
        return _HUB_NAMES[name]
    return name if _HUB_ID.fullmatch(name) and not Path(name).exists() else None


def _results(manifest: Manifest) -> Iterator[EvalResult]:
    data = manifest.training.data
    rows = str(data.get("validation") or data.get("train") or manifest.name)
    for name, value in _metrics(manifest):
        yield EvalResult(
            task_type=_PIPELINES[manifest.task.type],
            dataset_type=rows,
            dataset_name=rows,
            dataset_split="validation",
            metric_type=name,
            metric_value=round(value, 6),
        )


def _metrics(manifest: Manifest) -> list[tuple[str, float]]:
    # The hub reads no NaN.
    return [(name, value) for name, value in manifest.training.metrics.items() if math.isfinite(value)]


def _body(manifest: Manifest, repository: str) -> Iterator[str]:
    task, backbone = manifest.task, manifest.backbone
    yield f"# {manifest.name}"
    yield ""
    yield (
        f"An adapter of the preset {_code(manifest.preset)} for the backbone {_code(Path(backbone.name).name)} "
        f"({backbone.family}, {backbone.num_layers} layers of {backbone.hidden_size}), which stays frozen."
    )
    yield ""
    yield f"- task: {task.type}, {task.inputs} input, at most {task.max_length} tokens"
    yield f"- parts: {', '.join(part.kind for part in manifest.parts)}"
    yield f"- fingerprint of the backbone: {_code(backbone.fingerprint)}"
    if task.labels:
        yield f"- {len(task.labels)} labels: {_code(', '.join(task.labels))}"
    yield from ("", "## Use", "", "```sh", f"peltier pull hf://{repository} --output adapters")
    yield from (f"peltier upload adapters/{manifest.name}.safetensors", "```")
    if metrics := _metrics(manifest):
        yield from (
            "",
            "## Figures",
            "",
            "On the validation rows of the training:",
            "",
            "| metric | value |",
            "|---|--:|",
        )
        yield from (f"| {_code(name)} | {value:.4f} |" for name, value in metrics)
    yield from ("", "## Recipe", "")
    recipe = manifest.training
    for title, values in (("Data", recipe.data), ("Settings", recipe.hyperparameters), ("Versions", recipe.versions)):
        if values:
            yield from (f"{title}:", "", "```json", _json(values), "```", "")
    yield from (
        "## Golden examples",
        "",
        "The artifact holds them; every server computes them before it accepts it.",
        "",
    )
    yield from (f"- {_code(_input(golden))}: {_code(_answer(manifest, golden))}" for golden in _shown(manifest))
    if len(manifest.golden) > _NUM_EXAMPLES:
        yield f"- and {len(manifest.golden) - _NUM_EXAMPLES} more"


def _shown(manifest: Manifest) -> tuple[Golden, ...]:
    return manifest.golden[:_NUM_EXAMPLES]


def _input(golden: Golden) -> str:
    return golden.input if isinstance(golden.input, str) else " / ".join(golden.input)


def _answer(manifest: Manifest, golden: Golden) -> str:
    """What the recorded output means, in short."""
    task, output = manifest.task, golden.output
    if golden.text is not None:
        return golden.text
    if task.type == "classification":
        return task.labels[max(range(len(output)), key=output.__getitem__)]
    if task.type == "multilabel":
        return ", ".join(label for label, one in zip(task.labels, output, strict=True) if one > 0) or "no label"
    return f"{output[0]:.4g}" if len(output) == 1 else f"{len(output)} values"


def _code(text: str) -> str:
    """Text in a span of code, in which no markup acts; long text is cut."""
    shown = " ".join(text.split()).replace("`", "'").replace("|", "\\|")
    return f"`{shown if len(shown) <= _SHOWN_CHARS else shown[:_SHOWN_CHARS] + '…'}`"


def _json(values: Mapping[str, Any]) -> str:
    # A backtick could end the block.
    return json.dumps(values, indent=2, sort_keys=True, default=str).replace("`", "\\u0060")
