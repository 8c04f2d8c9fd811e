"""Random adapters of every kind that a mixed batch may hold."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import cache
from unittest.mock import patch

import torch
from peltier_adapters.artifact.artifact import Artifact
from peltier_adapters.artifact.manifest import Golden, Manifest
from peltier_adapters.golden.proof import create_reference
from peltier_adapters.gpu.backend import TritonBackend
from peltier_adapters.ops import choice
from peltier_adapters.ops.backend import AdapterGroup
from peltier_adapters.ops.torch import TORCH
from peltier_adapters.parts import init_tensors
from peltier_adapters.presets.presets import find_preset
from peltier_adapters.residency.bank import Banks, Resident
from peltier_adapters.spec.parts import Parts
from peltier_adapters.spec.tasks import DecodingSpec, TaskSpec
from peltier_backbone.backbone import Backbone
from peltier_backbone.checkpoint.config import BackboneConfig
from torch import Tensor

# In the order in which a batch is sorted: no prefix and no norm, norms, prefixes.
PRESETS = ("lora", "adamix", "compacter", "unipelt-apl")
_MOVED = 0.1
_TASK = TaskSpec(type="classification", labels=("no", "yes"), inputs="single", max_length=64)
_TEXT_TASK = TaskSpec(
    **_TASK.model_dump(exclude={"template", "targets", "decoding"}), template="{text}", targets=("</s>", "<unk> <unk>"),
    decoding=DecodingSpec(answer="score"),
)  # fmt: skip


def use_kernels() -> AbstractContextManager[object]:
    """Chooses Triton's kernels on any device while the block runs."""
    return patch.object(choice, "choose_backend", cache(TritonBackend))


def by_torch() -> AbstractContextManager[object]:
    """Replaces kernels by torch while the block runs."""
    return patch.object(choice, "choose_backend", lambda device, dtype: TORCH)


def draw_adapters(exact: Backbone, count: int) -> list[Artifact]:
    """`count` adapters of each preset with their heads; `exact` is the backbone in float32 on the CPU."""
    drawn = []
    for preset in PRESETS:
        parts = _compose(preset, exact.config)
        manifest = Manifest(
            name="bench", preset=preset, parts=parts, backbone=create_reference(exact),
            task=_TEXT_TASK if exact.config.generates else _TASK,
            golden=(Golden(input="a text", output=(0.0, 0.0)),),
        )  # fmt: skip
        drawn += [Artifact(manifest, _draw(exact, parts, seed), f"sha256:{seed:064x}") for seed in range(count)]
    return drawn


def _compose(preset: str, config: BackboneConfig) -> Parts:
    """The parts of `preset`, with a head of two outputs where there is one."""
    # The T5 of a dry run is too narrow for the default bottleneck.
    own = {"bottleneck": "8"} if preset == "compacter" and config.hidden_size < 128 else {}
    recipe = find_preset(preset)
    return recipe.compose(recipe.settings(own, config), config, outputs=2)


def _draw(exact: Backbone, parts: Parts, seed: int) -> dict[str, Tensor]:
    """Tensors of `parts`, each moved away from its start."""
    generator = torch.Generator().manual_seed(seed)
    tensors = init_tensors(parts, exact, generator)
    return {name: t + _MOVED * torch.randn(t.shape, generator=generator) for name, t in tensors.items()}


def load(adapters: Sequence[Artifact], backbone: Backbone) -> list[Resident]:
    """The adapters as a server keeps them on the device of `backbone`."""
    banks = Banks(backbone)
    return [banks.add(one) for one in adapters]


def groups_of(residents: Sequence[Resident]) -> list[AdapterGroup]:
    """One row for each adapter."""
    return [AdapterGroup(1, one.body.program, one.body_slot.read()) for one in residents]
