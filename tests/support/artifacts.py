"""A fixture that makes valid artifacts for a backbone."""

from collections.abc import Callable, Sequence

import pytest
import torch
from peltier_adapters.answers import vectors
from peltier_adapters.artifact.artifact import Artifact, to_bytes
from peltier_adapters.artifact.label_tree import text_tree
from peltier_adapters.artifact.manifest import Golden, Manifest, TaskInput
from peltier_adapters.batch.forward import forward
from peltier_adapters.batch.row import Row
from peltier_adapters.generation import create_draft, generate
from peltier_adapters.golden.identity import SubstituteProof
from peltier_adapters.golden.proof import create_reference
from peltier_adapters.inputs import encode_input
from peltier_adapters.parts import init_tensors
from peltier_adapters.presets.presets import find_preset
from peltier_adapters.residency.bank import Banks, Resident
from peltier_adapters.spec.decoding import Decoding
from peltier_adapters.spec.parts import HeadSpec
from peltier_adapters.spec.tasks import SPAN_LABELS, TaskSpec
from peltier_backbone.backbone import Backbone
from peltier_backbone.checkpoint.config import BackboneConfig

from tests.support.small_tokenizers import TEXTS

MakeArtifact = Callable[..., bytes]


@pytest.fixture(scope="session")
def make_artifact() -> MakeArtifact:
    """`make_artifact(backbone, preset, …) -> bytes`: a valid artifact with random tensors and true golden outputs.

    The same bytes for the same arguments, made once. With `proved=False` its golden outputs are zeros, which takes a
    fifth of the time; a server refuses it.
    """
    made: dict[str, bytes] = {}

    def make(backbone: Backbone, preset: str = "compacter", **options: object) -> bytes:
        key = repr((backbone.name, backbone.fingerprint, backbone.precision, preset, sorted(options.items())))
        if key not in made:
            made[key] = _make_artifact(backbone, preset, **options)
        return made[key]

    return make


def fitting(preset: str, config: BackboneConfig) -> dict[str, str]:
    """Settings that fit a preset to the small backbones."""
    settings = {"adapterdrop": {"skip": "1"}, "prompt-r": {"length": "4"}, "prompt-t": {"length": "3"}}.get(preset, {})
    if config.generates and preset in (
        "houlsby",
        "pfeiffer",
        "pfeiffer-attention",
        "adapterdrop",
        "lowrank",
        "phm",
        "compacter",
        "compacter++",
    ):
        settings = {**settings, "bottleneck": "8"}
    return settings


def _make_artifact(
    backbone: Backbone, preset: str = "compacter", *, name: str = "demo", overrides: dict[str, str] | None = None,
    labels: Sequence[str] = ("negative", "positive"), task_type: str = "classification", inputs: str = "single",
    max_length: int = 64, seed: int = 0, answer: str | None = None, normalized: bool = False,
    normed_head: bool = False, proved: bool = True,
) -> bytes:  # fmt: skip
    chosen = find_preset(preset)
    given = _HEADS.get(task_type, {}) | fitting(preset, backbone.config) | (overrides or {})
    values = chosen.settings(given, backbone.config)
    config = backbone.config
    widths = {"embedding": config.hidden_size, "sparse-embedding": config.token_size, "multi-vector-embedding": 12}
    unnamed = dict.fromkeys(widths, ()) | {"span": SPAN_LABELS, "ranking": ("score",)}
    labels = unnamed.get(task_type, tuple(labels))
    outputs = widths.get(task_type, len(labels))
    parts = chosen.compose(values, backbone.config, outputs=outputs)
    if normed_head:
        parts = tuple(part.model_copy(update=_NORMED) if part.kind == "head" else part for part in parts)
    texts: list[TaskInput] = [_input(text, inputs) for text in TEXTS]
    task = _task(backbone, labels, task_type, inputs, max_length, answer)
    task = task.model_copy(update={"normalized": normalized})
    head = parts[-1]
    width = head.num_values if isinstance(head, HeadSpec) else task.num_outputs
    placeholder = "a" if task_type == "text2text" else None
    manifest = Manifest(
        name=name,
        preset=preset,
        parts=parts,
        backbone=create_reference(backbone),
        task=task,
        golden=tuple(Golden(input=text, output=(0.0,) * width, text=placeholder) for text in texts),
    )
    tensors = _random_tensors(manifest, backbone, seed)
    return to_bytes(_prove(manifest, tensors, backbone) if proved else manifest, tensors)


def _prove(manifest: Manifest, tensors: dict[str, torch.Tensor], backbone: Backbone) -> Manifest:
    """With what the adapter really answers."""
    artifact = Artifact(manifest, tensors, f"sha256:{0:064}")
    resident = Banks(backbone).add(artifact)
    proof = {
        "golden": tuple(_golden(backbone, resident, golden.input) for golden in manifest.golden),
        "substitute_output": tuple(SubstituteProof(backbone).run(artifact).tolist()),
    }
    return manifest.model_copy(update=proof)


# The settings of the heads of some types of tasks.
_HEADS = {
    "token-classification": {"pooling": "tokens"},
    "span": {"pooling": "tokens"},
    "embedding": {"pooling": "mean", "head_projection": "false"},
    "sparse-embedding": {"pooling": "tokens", "head_terms": "24", "head_hidden": "false"},
    "multi-vector-embedding": {"pooling": "tokens"},
}
# As ModernBERT's classifiers have it.
_NORMED = {"hidden": True, "activation": "gelu", "normed": True}
_TEMPLATES = {
    "single": "good film: {text}",
    "pair": "good: {text} film: {pair}",
    "triple": "good: {text} film: {pair} plot: {third}",
}


def _input(text: str, inputs: str) -> TaskInput:
    match inputs:
        case "pair":
            return text, text[::-1]
        case "triple":
            return text, text[::-1], text.upper()
    return text


def _task(
    backbone: Backbone, labels: Sequence[str], task_type: str, inputs: str, max_length: int, answer: str | None
) -> TaskSpec:
    given = {"type": task_type, "inputs": inputs, "max_length": max_length}
    if not backbone.config.generates:
        return TaskSpec.model_validate(given | {"labels": tuple(labels)})
    closed = task_type != "text2text"
    return TaskSpec.model_validate(
        given
        | {
            "labels": tuple(labels) if task_type == "classification" else ("value",) if closed else (),
            "targets": tuple(labels) if closed else (),
            "template": _TEMPLATES[inputs],
            "decoding": {"answer": answer or ("score" if closed else "generate"), "max_new_tokens": 12},
        }
    )


def _golden(backbone: Backbone, resident: Resident, value: TaskInput) -> Golden:
    """A golden example with the adapter's own answer."""
    task, text, tree = resident.task, None, None
    encoded = encode_input(backbone, task, value)
    if task.type == "text2text":
        draft = create_draft(backbone, Row(encoded, resident), Decoding(max_new_tokens=8))
        generate(backbone, [draft], max_rows=1)
        text = backbone.tokenizer.decode(draft.ids) or "a"
        tree = text_tree(text, backbone)
    output = forward(backbone, [Row(encoded, resident, tree=tree)])[0]
    return Golden(input=value, output=tuple(vectors.recorded(task, output.logits).flatten().tolist()), text=text)


def _random_tensors(manifest: Manifest, backbone: Backbone, seed: int) -> dict[str, torch.Tensor]:
    """Every tensor far from its initial value, so that no part of the adapter is without effect."""
    generator = torch.Generator().manual_seed(seed)
    tensors = init_tensors(manifest.parts, backbone, generator)
    return {name: _away(name, tensor, generator) for name, tensor in tensors.items()}


def _away(name: str, tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    noise = torch.empty_like(tensor).normal_(generator=generator)
    if name.endswith("rule"):
        return noise / tensor.shape[-1]  # the sum of n Kronecker products is then as large as a dense map
    if name.startswith(("bias", "norm")) or name.endswith("bias"):
        return tensor + 0.2 * noise
    if name.startswith("prefix") and "gate" not in name:
        return noise
    return tensor + 0.7 * tensor.shape[-2 if tensor.dim() > 1 else -1] ** -0.5 * noise
