"""The hand-checkable vectors of the methods specification, initial distributions, and identities of single parts."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from peltier_adapters.errors import AdapterError
from peltier_adapters.ops.backend import AdapterGroup
from peltier_adapters.ops.op import FusedMatmul, Gate, PrefixKeys, Program
from peltier_adapters.ops.torch import TORCH, multiply_all
from peltier_adapters.parts import bottleneck, init_tensors, lora, vera
from peltier_adapters.parts.compacter import kronecker
from peltier_adapters.parts.part import LoweringContext, under
from peltier_adapters.presets.presets import find_preset
from peltier_adapters.spec.maps import LphmMap, MapSpec, PhmMap
from peltier_adapters.spec.parts import BottleneckSpec, LoraSpec
from peltier_backbone.backbone import Backbone
from torch import Tensor

CPU = torch.device("cpu")
RULE = torch.tensor([[[1.0, 2], [3, 4]], [[0, 1], [-1, 0]]])
LEFT = torch.tensor([[1.0, 2], [3, -1]])[:, :, None]  # [n, in / n, 1]
RIGHT = torch.tensor([[1.0, 0, 2], [-1, 1, 0]])[:, None, :]  # [n, 1, out / n]
MATRIX = torch.tensor([[1.0, 0, 2, -1, 3, 4], [2, 0, 4, 5, -1, 8], [6, -3, 6, 4, 0, 8], [5, 1, 12, 8, 0, 16]])
X = torch.tensor([[1, -1, 2, 0.5]])
BIAS = torch.tensor([0, 0.1, 0.2, 0.3, 0.4, 0.5])


def _map(spec: MapSpec, tensors: dict[str, Tensor], x: Tensor, rule: Tensor | None = None) -> Tensor:
    """x through the map of one site and layer."""
    (steps,) = bottleneck.lower_maps(spec, {name: tensor[None, None] for name, tensor in tensors.items()}, rule, CPU)
    return multiply_all(steps, x)


def _act(op: FusedMatmul, y: Tensor, x: Tensor, residual: Tensor | None = None) -> Tensor:
    """y with what the op adds, all of one row."""
    ops = TORCH.group([AdapterGroup(1, Program([op], 1 + op.number))], [len(y)])
    return ops.act(op.site, op.number, y, x, residual)


def test_kronecker_of_vector_1():
    """The index of the rule is the slow one: H of conformance vector 1."""
    assert torch.equal(kronecker(RULE, LEFT @ RIGHT), MATRIX)


def test_compacter_of_vector_1():
    """y = x H + b in factored form."""
    found = _map(LphmMap(n=2), {"left": LEFT, "right": RIGHT, "bias": BIAS}, X, RULE)
    torch.testing.assert_close(found, torch.tensor([[13.5, -5.4, 16.2, 6.3, 4.4, 20.5]]))


def test_phm_of_vector_1():
    """The unfactored map with its own rule gives the same product."""
    tensors = {"rule": RULE, "weight": LEFT @ RIGHT, "bias": BIAS}
    torch.testing.assert_close(_map(PhmMap(n=2), tensors, X), X @ MATRIX + BIAS)


@given(
    n=st.integers(1, 4),
    rank=st.integers(1, 3),
    before=st.integers(1, 6),
    after=st.integers(1, 6),
    seed=st.integers(0, 99),
)
def test_the_factored_map_is_the_kronecker_product(n: int, rank: int, before: int, after: int, seed: int):
    """For both a wider input and a wider output it equals the product with the full matrix."""
    generator = torch.Generator().manual_seed(seed)
    shapes = {"left": (n, before, rank), "right": (n, rank, after), "bias": (n * after,)}
    tensors = {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}
    x, rule = torch.randn(5, n * before, generator=generator), torch.randn(n, n, n, generator=generator)
    expected = x @ kronecker(rule, tensors["left"] @ tensors["right"]) + tensors["bias"]
    found = _map(LphmMap(n=n, rank=rank), tensors, x, rule)
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


def test_gate_of_vector_4():
    """The mean over the real tokens: .75 for scores ln 3, without the zeros of a neighbour."""
    gate = Gate("x", 0, torch.ones(1), torch.tensor(0.0))
    program = Program([PrefixKeys(0, torch.zeros(1, 1, 1), torch.zeros(1, 1, 1), gate)], 1)
    scores = torch.tensor([[3.0], [3.0], [1.0]]).log()
    found = TORCH.group([AdapterGroup(2, program)], [2, 1]).prefix_gates(0, scores)
    torch.testing.assert_close(found, torch.tensor([[0.75], [0.5]]))


def test_lora_of_vector_5(bert: Backbone):
    """y = 2 (1 + 2) 3 = 18; a column without a target does not change."""
    spec = LoraSpec(targets=("output",), rank=1, alpha=2)
    layers = bert.config.num_layers
    down = torch.tensor([1.0, 2]).view(1, 1, 2, 1).expand(1, layers, 2, 1)
    up = torch.tensor([3.0, 0]).view(1, 1, 1, 2).expand(1, layers, 1, 2)
    first = next(lora.lower(spec, {"down": down, "up": up}, LoweringContext(bert)))
    assert (first.site, first.number) == ("attention_output", 0)
    assert _act(first, torch.zeros(1, 2), torch.ones(1, 2)).tolist() == [[18.0, 0.0]]


def test_the_matrices_of_vera_are_the_same_everywhere():
    """Numbers of Philox, which no release and no processor may change: an artifact does not contain them."""
    down, up = vera.shared_matrices(7, 4, 2, 3)
    found = [round(float(x), 6) for x in (down[0, 0], down[3, 1], up[0, 0], up[1, 2])]
    assert found == [0.64445, 0.208819, 0.936849, 0.532149]
    assert [list(one.shape) for one in (down, up)] == [[4, 2], [2, 3]]


def _initial(preset: str, backbone: Backbone, **overrides: str) -> dict[str, Tensor]:
    chosen = find_preset(preset)
    parts = chosen.compose(chosen.settings(overrides, backbone.config), backbone.config, outputs=3)
    return init_tensors(parts, backbone, torch.Generator().manual_seed(0))


def test_compacter_starts_as_the_identity(minilm: Backbone):
    """Conformance vector 8: the first forward pass changes a sub-layer's output by less than 1e-5 of it."""
    chosen = find_preset("compacter")
    spec = chosen.compose(chosen.settings({}, minilm.config), minilm.config, outputs=2)[0]
    assert isinstance(spec, BottleneckSpec)
    ops = bottleneck.lower(spec, under("bottleneck.", _initial("compacter", minilm)), LoweringContext(minilm))
    op = next(one for one in ops if (one.site, one.number) == ("ffn", 0))
    y = torch.randn(50, 384, generator=torch.Generator().manual_seed(1))
    given = y.clone()
    changed = _act(op, given, given, y)
    assert 0 < float((changed - y).abs().max() / y.abs().max()) < 1e-5


# Backbone, tensor, preset, overrides, and the standard deviation that docs/methods.md#initialisation gives.
NORMAL = [
    ("minilm", "bottleneck.down.weight", "houlsby", {}, 0.02),
    ("minilm", "bottleneck.up.weight", "adamix", {}, 0.02),
    ("minilm", "bottleneck.down.rule", "houlsby", {"map": "phm", "n": "12"}, 0.01),
    ("minilm", "bottleneck.rule", "compacter", {"n": "12"}, 1e-4),
    ("minilm", "prefix.keys", "prefix", {}, 0.02),
    ("minilm", "prefix.values", "prefix", {}, 0.02),
    ("minilm", "bottleneck.gate.weight", "unipelt-ap", {}, 0.02),
    ("minilm", "prefix.gate.weight", "unipelt-ap", {}, 0.02),
    ("minilm", "lora.gate.weight", "unipelt-apl", {}, 0.02),
    ("minilm", "central_gate.weight", "unipelt-apl-central", {}, 0.02),
    ("minilm", "bottleneck.down.weight", "pfeiffer-ffn", {}, 0.02),
    ("minilm", "head.weight", "lora", {}, 0.02),
    ("roberta", "bottleneck.down.weight", "houlsby", {}, 0.02),
    ("roberta", "bottleneck.up.weight", "adamix", {}, 0.02),
    ("roberta", "head.dense.weight", "lora", {}, 0.02),
    ("roberta", "head.weight", "lora", {}, 0.02),
    ("t5", "bottleneck.down.weight", "houlsby", {"bottleneck": "24"}, 0.01),
    ("t5", "bottleneck.up.weight", "houlsby", {"bottleneck": "24"}, 0.01),
    ("t5", "bottleneck.down.weight", "pfeiffer-attention", {"bottleneck": "24"}, 0.01),
    ("t5", "bottleneck.up.rule", "phm", {"bottleneck": "24", "n": "12"}, 0.01),
    ("t5", "bottleneck.rule", "compacter", {"bottleneck": "6", "n": "6"}, 1e-4),
    ("t5", "prefix.keys", "prefix", {}, 0.02),
    ("t5", "lora.gate.weight", "unipelt-apl", {}, 0.02),
]
# The bound of a uniform distribution: xavier with gain sqrt 2 per slice, LoRA's 1 / sqrt(in), or PROMPT-R's 1 / 2.
UNIFORM = [
    ("minilm", "bottleneck.down.left", "compacter", {}, (12 / (96 + 1)) ** 0.5),
    ("minilm", "bottleneck.down.right", "compacter", {}, (12 / (1 + 6)) ** 0.5),
    ("minilm", "bottleneck.up.left", "compacter", {}, (12 / (6 + 1)) ** 0.5),
    ("minilm", "bottleneck.up.right", "compacter", {}, (12 / (1 + 96)) ** 0.5),
    ("minilm", "bottleneck.down.weight", "houlsby", {"map": "phm", "n": "12"}, (12 / (32 + 4)) ** 0.5),
    ("minilm", "bottleneck.down.left", "houlsby", {"map": "lowrank"}, (12 / (384 + 1)) ** 0.5),
    ("minilm", "bottleneck.up.right", "houlsby", {"map": "lowrank"}, (12 / (384 + 1)) ** 0.5),
    ("minilm", "lora.down", "lora", {}, 384**-0.5),
    ("minilm", "lora.down", "adamix-lora", {}, 384**-0.5),
    ("t5", "bottleneck.down.left", "compacter", {"bottleneck": "24"}, (12 / (12 + 1)) ** 0.5),
    ("t5", "bottleneck.up.weight", "phm", {"bottleneck": "24"}, (12 / (6 + 12)) ** 0.5),
    ("t5", "lora.down", "lora", {}, 48**-0.5),
    ("t5", "prompt.weight", "prompt-r", {}, 0.5),
]


@pytest.fixture
def drawn(request: pytest.FixtureRequest) -> Backbone:
    """The backbone that a row of a table names."""
    return request.getfixturevalue(request.param)


@pytest.mark.parametrize(("drawn", "tensor", "preset", "overrides", "std"), NORMAL, ids=str, indirect=["drawn"])
def test_normal_draws(tensor: str, preset: str, overrides: dict[str, str], std: float, drawn: Backbone):
    """The mean is 0 and the deviation is the published one, each within five standard errors."""
    values = _initial(preset, drawn, **overrides)[tensor]
    error = values.numel() ** -0.5
    assert abs(float(values.mean())) < 5 * std * error
    assert abs(float(values.std()) / std - 1) < 5 * error
    assert float(values.abs().max()) > 2 * std


@pytest.mark.parametrize(("drawn", "tensor", "preset", "overrides", "bound"), UNIFORM, ids=str, indirect=["drawn"])
def test_uniform_draws(tensor: str, preset: str, overrides: dict[str, str], bound: float, drawn: Backbone):
    """All values are within the published bound, and some are close to it."""
    values = _initial(preset, drawn, **overrides)[tensor]
    assert 0.97 * bound < float(values.abs().max()) <= bound
    assert abs(float(values.std()) / (bound / 3**0.5) - 1) < 5 * values.numel() ** -0.5


@pytest.mark.parametrize("preset", ["houlsby", "compacter", "unipelt-apl", "unipelt-apl-central"])
def test_new_biases_are_zero(preset: str, bert: Backbone):
    """Biases of maps, gates and the head start at zero, and so does LoRA's up map."""
    tensors = _initial(preset, bert)
    zero = [name for name in tensors if name.endswith("bias") and not name.startswith("norm")]
    assert len(zero) >= 3
    assert not any(tensors[name].any() for name in [*zero, *(["lora.up"] if "lora.up" in tensors else [])])


def test_replaced_values_start_as_the_backbones(bert: Backbone):
    """Biases and norms start with the frozen values."""
    tensors = _initial("bitfit", bert) | _initial("compacter", bert)
    layers = bert.model.layers
    assert torch.equal(tensors["bias.output"], torch.stack([layer.output.bias for layer in layers]))
    assert torch.equal(tensors["bias.key"][2], layers[2].query_key_value.bias[48:96])
    assert torch.equal(tensors["norm.weight"][6], layers[2].output_norm.weight)


def test_the_same_seed_draws_the_same_tensors(bert: Backbone):
    one, other = _initial("unipelt-apl", bert), _initial("unipelt-apl", bert)
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_a_part_without_its_pooler_is_refused(roberta: Backbone):
    """The error comes before the first training step."""
    with pytest.raises(AdapterError, match=r"part 'head' needs a pooler, which backbone .* does not have; set pooling"):
        _initial("lora", roberta, pooling="pooler")
