"""The computed cost of adapters, compared with torch's operations and memory when the real parts run."""

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from peltier_adapters.artifact.artifact import read_artifact
from peltier_adapters.artifact.label_tree import create_tree
from peltier_adapters.batch.adaptation import BatchAdaptation
from peltier_adapters.batch.row import Row, group_rows
from peltier_adapters.batch.scoring import pack_targets
from peltier_adapters.ops import choice
from peltier_adapters.ops.torch import TORCH, multiply_all
from peltier_adapters.parts import head
from peltier_adapters.presets.presets import PRESETS, Preset, find_preset, presets_for
from peltier_adapters.residency.bank import Banks, Resident
from peltier_adapters.spec.cost import AdapterCost, BackboneCost
from peltier_adapters.spec.parts import HeadSpec, Parts
from peltier_backbone.backbone import Backbone
from peltier_backbone.checkpoint.bert_config import BertConfig
from peltier_backbone.checkpoint.config import BackboneConfig
from peltier_backbone.checkpoint.t5_config import T5Config
from peltier_backbone.linear.linear import NativeLinear
from peltier_backbone.text.packing import Encoded
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from tests.support.artifacts import MakeArtifact, fitting

# Rows of so many keys attend by plain products, which torch counts.
NUM_TOKENS = 20
MAPS = (
    {"map": "dense"},
    {"map": "lowrank", "rank": "3"},
    {"map": "phm", "n": "4"},
    {"map": "lphm", "n": "4", "rank": "2"},
    {"map": "lphm", "n": "2", "rank": "1", "bottleneck": "96"},
)
ON_BERT = [name for name, one in PRESETS.items() if one.encoder]
PUBLISHED: dict[str, BackboneConfig] = {
    "minilm": BertConfig("bert", 30522, 384, 6, 12, 1536, 0, 1e-12, 512, 2, 384),
    "bert-base": BertConfig("bert", 30522, 768, 12, 12, 3072, 0, 1e-12, 512, 2, 768),
    "bert-large": BertConfig("bert", 30522, 1024, 24, 16, 4096, 0, 1e-12, 512, 2, 1024),
    "t5-small": T5Config("t5", 32100, 512, 6, 8, 2048, 0, 1e-6, 6, 64, 32, 128, False, "relu", True, True, 0, 1),
    "t5-base": T5Config("t5", 32100, 768, 12, 12, 3072, 0, 1e-6, 12, 64, 32, 128, False, "relu", True, True, 0, 1),
}


# Where among its arguments a product's left factor stands.
_PRODUCTS = {"mm": 0, "bmm": 0, "addmm": 1, "addmm_": 1, "baddbmm": 1}


class Counted(TorchDispatchMode):
    """Counts the multiply-adds of the matrix products that torch computes."""

    def __init__(self) -> None:
        super().__init__()
        self.macs = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        place = _PRODUCTS.get(func.overloadpacket.__name__)
        if place is not None:
            self.macs += out.numel() * args[place].shape[-1]
        return out


def _compose(preset: Preset, config: BackboneConfig, **overrides: str) -> Parts:
    settings = preset.settings(fitting(preset.name, config) | overrides, config)
    return preset.compose(settings, config, outputs=2)


def _macs(backbone: Backbone, resident: Resident | None) -> int:
    """Multiply-adds of one row, on a T5 with as many decoder tokens, outside heads and T5's output layer."""
    row = Row(Encoded((5,) * NUM_TOKENS, (0,) * NUM_TOKENS), resident)
    packed = backbone.pack([row.prompted])
    # With gradients on, so that torch computes the backbone too, and not the native kernels.
    with Counted() as counted, pytest.MonkeyPatch.context() as patch:
        patch.setattr(choice, "choose_backend", lambda device, dtype: TORCH)
        patch.setattr(NativeLinear, "multiply", lambda own, x: F.linear(x, *own.weights()))
        groups = group_rows([row], record_gates=False)
        adaptation = BatchAdaptation(backbone, groups, packed.lengths, TORCH)
        if backbone.config.generates:
            model, tree = backbone.t5, create_tree(0, 1, [(5,) * (NUM_TOKENS - 1)])
            memory = model.project_kv(packed, model.encode(packed, adaptation), adaptation)
            tokens = group_rows([row] * NUM_TOKENS, record_gates=False)
            writing = BatchAdaptation(backbone, tokens, [1] * NUM_TOKENS, TORCH)
            model.decode(pack_targets([tree], backbone.device), memory, writing)
        else:
            backbone.bert(packed, adaptation)
    return counted.macs


GATED = {"bottleneck": "24", "gated": "true"}
COUNTED = [
    *(("bert", preset, {"first_block": first}) for preset in ON_BERT for first in "01"),
    *(("bert", "houlsby", GATED | overrides) for overrides in MAPS),
    *(
        (backbone, "lora", {"targets": "all-linear", "rank": "3", "gated": gated})
        for backbone in ("bert", "t5", "t5_gated")
        for gated in ("true", "false")
    ),
    *(("t5", preset, {}) for preset in ("houlsby", "adapterdrop", "compacter", "lora", "unipelt-apl", "prefix")),
]


@pytest.mark.parametrize(("backbone", "preset", "overrides"), COUNTED, ids=str)
def test_multiply_adds_are_those_that_torch_counts(backbone, preset, overrides, make_artifact, request):
    """In addition to the backbone's: of every preset and kind of map, on both stacks, and on narrow attentions."""
    own: Backbone = request.getfixturevalue(backbone)
    artifact = read_artifact(make_artifact(own, preset, overrides=overrides), own)
    added = _macs(own, Banks(own).add(artifact)) - _macs(own, None)
    assert added == NUM_TOKENS * sum(AdapterCost.of(artifact.manifest.parts, own.config).blocks)


@pytest.mark.parametrize("backbone", ["bert", "roberta", "t5", "t5_gated"])
def test_blocks_of_the_backbone(backbone: str, request: pytest.FixtureRequest):
    loaded: Backbone = request.getfixturevalue(backbone)
    config, cost = loaded.config, BackboneCost.of(loaded.config)
    pairs = NUM_TOKENS * config.num_attentions * cost.pair
    assert _macs(loaded, None) == NUM_TOKENS * (sum(cost.blocks) + pairs)


def test_a_head_is_counted_by_the_row(bert: Backbone):
    spec = HeadSpec(pooling="first", hidden=True, outputs=7)
    tensors = {name: torch.zeros(shape) for name, shape in spec.shapes(bert.config).items()}
    with Counted() as counted:
        multiply_all(head.steps(spec, tensors), torch.zeros(3, bert.config.hidden_size))
    assert counted.macs == 3 * AdapterCost.of((spec,), bert.config).row


@pytest.mark.parametrize("preset", ["houlsby", "phm", "compacter", "lora", "prefix", "bitfit", "unipelt-apl"])
def test_elements_are_those_that_the_device_holds(preset: str, bert: Backbone, make_artifact: MakeArtifact):
    artifact = read_artifact(make_artifact(bert, preset), bert)
    resident = Banks(bert).add(artifact)
    slots = ((resident.body, resident.body_slot), (resident.head, resident.head_slot))
    held = [tensor for bank, slot in slots for tensor in bank.layout.views(slot.read()).values()]
    assert AdapterCost.of(artifact.manifest.parts, bert.config).elements == sum(tensor.numel() for tensor in held)


@pytest.mark.parametrize("backbone", PUBLISHED)
def test_presets_of_published_sizes_are_far_below_the_bound(backbone: str):
    """They reach at most a twentieth of the default bound on every backbone of a published size."""
    config = PUBLISHED[backbone]
    for preset in presets_for(config):
        cost = AdapterCost.of(preset.compose(preset.settings({}, config), config, outputs=2), config)
        assert max(_ratios(cost)) < 0.05
        assert cost.problems(1.0, "max_adapter_cost") == []


@given(size=st.integers(1, 4096), bound=st.floats(0.01, 10))
def test_the_bound_is_on_the_worst_block(size: int, bound: float):
    """An adapter is refused exactly if some block's multiply-adds or its elements are beyond it."""
    config = PUBLISHED["minilm"]
    cost = AdapterCost.of(_compose(find_preset("adapterdrop"), config, bottleneck=str(size), skip="5"), config)
    compute, elements = 4 * 384 * size / 1_769_472, cost.elements / 10_616_832
    assert len(cost.problems(bound, "max_adapter_cost")) == (compute > bound) + (elements > bound)


def test_a_refusal_names_part_value_limit_and_setting():
    config = PUBLISHED["minilm"]
    parts = _compose(find_preset("phm"), config, n="32", bottleneck="4096")
    assert AdapterCost.of(parts, config).problems(1.0, "max_adapter_cost") == [
        "part 'bottleneck' takes 6,291,456 multiply-adds a token of the 6,291,456 that the adapter adds to block 0, "
        "3.56 times the block's own 1,769,472; at most 1 times is allowed (max_adapter_cost)",
        "part 'bottleneck' takes 37,802,496 elements of the 37,803,266 that the adapter takes on the device, "
        "3.56 times the 10,616,832 weights in the backbone's blocks; at most 1 times is allowed (max_adapter_cost)",
    ]


def test_the_table_of_the_document_is_what_is_counted():
    """It has every preset, in percent of each backbone."""
    lines = (Path(__file__).parents[3] / "docs" / "methods.md").read_text().splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| `")]
    table = {row[0].strip("`"): row[1:] for row in cells if len(row) == 1 + len(PUBLISHED)}
    assert table == {
        name: [_percents(preset, config) for config in PUBLISHED.values()] for name, preset in PRESETS.items()
    }


def _percents(preset: Preset, config: BackboneConfig) -> str:
    if preset not in presets_for(config):
        return "-"
    cost = AdapterCost.of(preset.compose(preset.settings({}, config), config, outputs=2), config)
    compute, elements = _ratios(cost)
    return f"{100 * compute:.1f} %, {100 * elements:.1f} %"


def _ratios(cost: AdapterCost) -> tuple[float, float]:
    """The most multiply-adds that the adapter adds to a block, and its elements, as multiples of the backbone's."""
    blocks = cost.backbone.blocks
    return max(own / base for own, base in zip(cost.blocks, blocks, strict=True)), cost.elements / sum(blocks)
