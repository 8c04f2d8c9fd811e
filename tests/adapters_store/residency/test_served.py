"""The form in which adapters are served: built once at load, counted exactly, and the same maps as before."""

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from peltier_adapters.artifact.artifact import read_artifact
from peltier_adapters.batch.adaptation import BatchAdaptation
from peltier_adapters.batch.forward import forward
from peltier_adapters.batch.row import Row, group_rows
from peltier_adapters.ops.torch import TORCH, multiply_all
from peltier_adapters.parts import bottleneck
from peltier_adapters.parts.part import under
from peltier_adapters.presets.presets import presets_for
from peltier_adapters.residency.bank import Banks, Resident
from peltier_adapters.residency.served import build_served, device_bytes
from peltier_adapters.spec.maps import DenseMap, FoldedLphmMap, LphmMap, MapSpec, PhmMap
from peltier_adapters.spec.parts import BottleneckSpec, LoraSpec, served_parts
from peltier_backbone.backbone import Backbone
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from tests.support.artifacts import fitting
from tests.support.cover import cover
from tests.support.levels import LEVELS, forced_level, reloaded

CPU = torch.device("cpu")
ENCODER_PRESETS = ("houlsby", "lowrank", "phm", "compacter", "lora", "vera", "prefix", "bitfit", "unipelt-apl")


class Built(TorchDispatchMode):
    """Counts the elements of the memory that operations allocate."""

    def __init__(self) -> None:
        super().__init__()
        self.elements = 0
        self._seen: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = {one.untyped_storage()._cdata for one in torch.utils._pytree.tree_leaves(args) if _is_tensor(one)}
        out = func(*args, **(kwargs or {}))
        for one in torch.utils._pytree.tree_leaves(out):
            if _is_tensor(one) and one.untyped_storage()._cdata not in given:
                self.elements += one.numel()
        return out


def _is_tensor(value: object) -> bool:
    return isinstance(value, Tensor)


def _draw(spec: BottleneckSpec, backbone: Backbone) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = spec.shapes(backbone.config)
    return {f"bottleneck.{name}": torch.randn(shape, generator=generator) for name, shape in shapes.items()}


def _spec(built: MapSpec, size: int, *, gated: bool = False) -> BottleneckSpec:
    return BottleneckSpec(sites=("attention", "ffn"), size=size, activation="relu", map=built, gated=gated)


@pytest.mark.parametrize("size", [24, 96], ids=["narrow", "wide"])
@pytest.mark.parametrize("built", [PhmMap(n=4), LphmMap(n=4, rank=1), LphmMap(n=2, rank=3)], ids=str)
def test_a_built_map_is_the_one_that_is_trained(built: MapSpec, size: int, bert: Backbone):
    """Down and up, towards a narrower and a wider side, within the rounding of `width` products in float32."""
    spec = _spec(built, size, gated=True)
    tensors = _draw(spec, bert)
    (served,) = served_parts((spec,))
    weights = build_served((spec,), tensors, bert.config)
    for side, width in (("down", 48), ("up", size)):
        x = torch.randn(3, width, generator=torch.Generator().manual_seed(width))
        found, expected = (
            bottleneck.lower_maps(one.map, under(f"bottleneck.{side}.", own), own.get("bottleneck.rule"), CPU)
            for one, own in ((served, weights), (spec, tensors))
        )
        for own, wanted in zip(found, expected, strict=True):
            exact = multiply_all(wanted, x)
            rounding = (width + 8) * 2**-23 * (float(exact.abs().max()) + 1)
            torch.testing.assert_close(multiply_all(own, x), exact, atol=rounding, rtol=0)
    assert torch.equal(weights["bottleneck.gate.weight"], tensors["bottleneck.gate.weight"])


def test_only_what_is_built_changes_its_parts(bert: Backbone):
    """A PHM bottleneck becomes dense, an LPHM bottleneck folded, and VeRA a LoRA; all other parts stay."""
    for preset in presets_for(bert.config):
        settings = preset.settings(fitting(preset.name, bert.config), bert.config)
        parts = preset.compose(settings, bert.config, outputs=2)
        for before, after in zip(parts, served_parts(parts), strict=True):
            built = {("phm", DenseMap), ("lphm", FoldedLphmMap), ("vera", LoraSpec)}
            kind = getattr(before, "map", before).kind
            assert after == before or (kind, type(getattr(after, "map", after))) in built


@pytest.mark.parametrize("preset", ENCODER_PRESETS)
def test_what_is_reserved_is_what_the_device_holds(preset: str, bert: Backbone, make_artifact: Callable[..., bytes]):
    """By the parts alone, before anything is built: the resident, and the memory behind it."""
    artifact = read_artifact(make_artifact(bert, preset), bert)
    resident = Banks(bert).add(artifact)
    reserved = device_bytes(artifact.manifest.parts, bert)
    assert resident.nbytes == reserved
    assert resident.body_slot.flat.untyped_storage().nbytes() == reserved


@pytest.fixture
def large(make_artifact: Callable[..., bytes]) -> Callable[[str, Backbone], list[Resident]]:
    """Two adapters of a preset whose maps are larger than everything that a batch gathers of others."""

    def make(preset: str, backbone: Backbone) -> list[Resident]:
        files = [make_artifact(backbone, preset, overrides={"bottleneck": "384"}, seed=seed) for seed in range(2)]
        banks = Banks(backbone)
        return [banks.add(read_artifact(data, backbone)) for data in files]

    return make


@pytest.mark.parametrize("preset", ["houlsby", "phm", "compacter"])
@torch.inference_mode()
def test_a_batch_builds_no_maps(preset: str, large: Callable[[str, Backbone], list[Resident]], bert: Backbone):
    """A batch builds only small tables that map rows to adapters, for maps of any size."""
    residents = large(preset, bert)
    rows = [Row(bert.tokenizer.encode("a good film"), one) for one in residents]
    packed = bert.pack([row.prompted for row in rows])
    with Built() as built:
        BatchAdaptation(bert, group_rows(rows, record_gates=False), packed.lengths, TORCH)
    assert built.elements < sum(one.nbytes for one in residents) / 4 / 10


@pytest.mark.parametrize(("preset", "level"), cover({"preset": ("phm", "compacter"), "level": LEVELS}))
def test_mixed_is_alone_to_the_last_bit(preset, level, large, bert):
    """Beside another adapter of its kind, in any order, at each level of the kernels."""
    with forced_level(level):
        backbone = reloaded(bert)
        residents = large(preset, backbone)
        encoded = [backbone.tokenizer.encode(text) for text in ("bad", "the actor is dull")]
        rows = [Row(one, resident) for resident in residents for one in encoded]
        alone = [forward(backbone, [row])[0].logits for row in rows]
        order = random.Random(1).sample(range(len(rows)), len(rows))
        mixed = forward(backbone, [rows[number] for number in order])
    assert all(torch.equal(one.logits, alone[number]) for one, number in zip(mixed, order, strict=True))
