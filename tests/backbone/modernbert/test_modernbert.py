"""Parity of ModernBERT's padding-free forward with transformers."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from peltier_backbone.attention.adaptation import NoAdaptation
from peltier_backbone.backbone import Backbone
from peltier_backbone.linear.norm import Norm
from peltier_backbone.load import load_backbone
from peltier_backbone.native.choice import kernels_in_use
from peltier_backbone.text.packing import Encoded
from torch import Tensor
from transformers import ModernBertConfig, ModernBertModel

from tests.support.levels import fastest_level

LENGTHS = (1, 2, 3, 7, 16, 31, 33, 64, 90, 5, 5, 1)
SHAPES = [  # hidden, layers, heads, intermediate, local_attention
    (24, 3, 3, 50, 8),
    (48, 1, 1, 7, 2),
    (16, 7, 4, 33, 32),
    (64, 2, 8, 128, 128),
]
# The fields of the published config.json files that the forward pass reads; vocabularies are cut.
MODERNBERT = {
    "attention_bias": False, "global_attn_every_n_layers": 3, "global_rope_theta": 160000.0,
    "hidden_activation": "gelu",
    "layer_norm_eps": 1e-05, "local_attention": 128, "local_rope_theta": 10000.0, "max_position_embeddings": 8192,
    "mlp_bias": False, "model_type": "modernbert", "norm_bias": False, "norm_eps": 1e-05, "classifier_bias": False,
    "classifier_pooling": "mean", "position_embedding_type": "absolute", "tie_word_embeddings": True, "vocab_size": 300,
    "pad_token_id": 283, "bos_token_id": 281, "cls_token_id": 281, "eos_token_id": 282, "sep_token_id": 282,
    "decoder_bias": True, "deterministic_flash_attn": False, "sparse_prediction": False,
}  # fmt: skip
MMBERT = MODERNBERT | {"local_rope_theta": 160000.0, "pad_token_id": 0, "position_embedding_type": "sans_pos"}
PUBLISHED = {
    "ModernBERT-base": MODERNBERT | {"hidden_size": 768, "intermediate_size": 1152, "num_attention_heads": 12},
    "ModernBERT-large": MODERNBERT | {"hidden_size": 1024, "intermediate_size": 2624, "num_attention_heads": 16},
    "mmBERT-small": MMBERT | {"hidden_size": 384, "intermediate_size": 1152, "num_attention_heads": 6},
    "mmBERT-base": MMBERT | {"hidden_size": 768, "intermediate_size": 1152, "num_attention_heads": 12},
}


def _random_model(config: ModernBertConfig) -> ModernBertModel:
    torch.manual_seed(config.hidden_size)
    model = ModernBertModel(config)
    for weight in model.parameters():
        if weight.dim() == 1:
            torch.nn.init.normal_(weight, mean=1.0, std=0.3)
        else:
            torch.nn.init.normal_(weight, std=1.2 * weight.shape[1] ** -0.5)
    return model.eval()


def _small_model(hidden: int, layers: int, heads: int, inner: int, local: int, positions: int = 96) -> ModernBertModel:
    config = ModernBertConfig(
        vocab_size=300, hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=heads,
        intermediate_size=inner, max_position_embeddings=positions, local_attention=local, pad_token_id=0,
        bos_token_id=2, cls_token_id=2, eos_token_id=3, sep_token_id=3,
    )  # fmt: skip
    return _random_model(config)


def _rows(lengths: tuple[int, ...] = LENGTHS) -> list[Encoded]:
    generator = torch.Generator().manual_seed(0)
    ids = [torch.randint(5, 280, (length,), generator=generator).tolist() for length in lengths]
    return [Encoded(tuple(row), (0,) * len(row)) for row in ids]


@torch.inference_mode()
def _reference(model: ModernBertModel, rows: list[Encoded]) -> Tensor:
    """transformers on the padded batch; real tokens only, back to back."""
    width = max(map(len, rows))
    ids = torch.tensor([[*row.ids, *[0] * (width - len(row))] for row in rows])
    mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows])
    return model(input_ids=ids, attention_mask=mask).last_hidden_state[mask.bool()]


@torch.inference_mode()
def _ours(backbone: Backbone, rows: list[Encoded]) -> Tensor:
    return backbone.encode(backbone.pack(rows))


def _distance(one: Tensor, other: Tensor) -> float:
    return float((one.double() - other.double()).abs().max())


def _save(model: ModernBertModel, directory: Path, tokenizer: Path) -> str:
    model.save_pretrained(directory)
    (directory / "tokenizer.json").write_bytes((tokenizer / "tokenizer.json").read_bytes())
    return str(directory)


@pytest.fixture(params=["native", "torch"])
def _kernels(request: pytest.FixtureRequest) -> Iterator[None]:
    """With native kernels, and without any."""
    with kernels_in_use("torch" if request.param == "torch" else fastest_level()):
        yield


@pytest.mark.usefixtures("_kernels")
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_float32_equals_transformers(shape: tuple[int, int, int, int, int], tmp_path: Path, bert_directory: Path):
    """We are as near to the float64 result as transformers is, give or take a factor for another order of summation,
    and within 1e-4, for rows shorter and longer than the local window."""
    model = _small_model(*shape)
    ours = load_backbone(_save(model, tmp_path, bert_directory))
    found, theirs, exact = _ours(ours, _rows()), _reference(model, _rows()), _reference(model.double(), _rows())
    assert _distance(found, theirs) < 1e-4
    assert _distance(found, exact) < 4 * _distance(theirs, exact) + 1e-6


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_bfloat16_is_as_exact_as_transformers(shape, tmp_path, bert_directory):
    """In bfloat16 we are as near to the float64 result of the rounded weights as transformers in bfloat16 is."""
    model = _small_model(*shape).bfloat16()
    ours = load_backbone(_save(model, tmp_path, bert_directory), dtype="bfloat16")
    found, theirs, exact = _ours(ours, _rows()), _reference(model, _rows()), _reference(model.double(), _rows())
    assert found.dtype == torch.bfloat16
    assert (found.double() - exact).norm() < 1.5 * (theirs.double() - exact).norm()


def _published(name: str, layers: int, directory: Path, tokenizer: Path) -> tuple[ModernBertModel, Backbone]:
    """A random checkpoint with the published fields, in their published spelling."""
    raw = PUBLISHED[name] | {"num_hidden_layers": layers}
    model = _random_model(ModernBertConfig(**{key: value for key, value in raw.items() if key != "model_type"}))
    _save(model, directory, tokenizer)
    (directory / "config.json").write_text(json.dumps(raw))
    return model, load_backbone(str(directory))


@pytest.mark.parametrize(
    ("name", "layers"),
    [
        ("mmBERT-small", 4),
        # One width stays; these have all layers of the smallest model, and four of the others.
        pytest.param("mmBERT-small", 22, marks=pytest.mark.slow),
        pytest.param("mmBERT-base", 4, marks=pytest.mark.slow),
        pytest.param("ModernBERT-base", 4, marks=pytest.mark.slow),
        pytest.param("ModernBERT-large", 4, marks=pytest.mark.slow),
    ],
)
def test_published_shapes_equal_transformers(name: str, layers: int, tmp_path: Path, bert_directory: Path):
    """To 1e-4, from the published config.json with a smaller vocabulary, also for a text of several local windows."""
    model, ours = _published(name, layers, tmp_path, bert_directory)
    rows = _rows((5, 129, 300))
    assert _distance(_ours(ours, rows), _reference(model, rows)) < 1e-4


@pytest.mark.parametrize("more", [{}, {"attention_factor": 0.9, "beta_fast": 5.0, "beta_slow": 2.0}], ids=str)
def test_stretched_angles_equal_transformers(more: dict[str, float], tmp_path: Path, bert_directory: Path):
    """YaRN, which mmBERT-32k was trained on: four times the positions, to 1e-4 beyond those of the original."""
    yarn = {"rope_type": "yarn", "rope_theta": 160000.0, "factor": 4.0, "original_max_position_embeddings": 64} | more
    parameters = {"full_attention": yarn, "sliding_attention": {"rope_type": "default", "rope_theta": 160000.0}}
    raw = PUBLISHED["mmBERT-small"] | {"max_position_embeddings": 256, "rope_parameters": parameters}
    model = _random_model(
        ModernBertConfig(**{key: raw[key] for key in raw if key != "model_type"}, num_hidden_layers=4)
    )
    ours = load_backbone(_save(model, tmp_path, bert_directory))
    rows = _rows((5, 63, 250))
    assert _distance(_ours(ours, rows), _reference(model, rows)) < 1e-4


def test_newer_files_are_the_same_backbone(modernbert, modernbert_directory, edited):
    """`layer_types` and `rope_parameters` say the same as the keys of older files, and a pretraining checkpoint has the
    same encoder."""
    raw = json.loads((modernbert_directory / "config.json").read_text())
    assert "layer_types" in raw
    assert "rope_parameters" in raw

    def wrap(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        wrapped = {f"model.{name}": tensor for name, tensor in tensors.items()}
        return wrapped | {"head.dense.weight": torch.ones(3, 3), "decoder.bias": torch.ones(3)}

    directory = edited(wrap, modernbert_directory)
    for key in ("layer_types", "rope_parameters"):
        del raw[key]
    older = {"global_attn_every_n_layers": 3, "global_rope_theta": 160000.0, "local_rope_theta": 10000.0}
    (directory / "config.json").write_text(json.dumps(raw | older))
    assert load_backbone(str(directory)).fingerprint == modernbert.fingerprint


# Loads the backbone of the first argument, encodes a short row, and then one of `LONGEST` tokens, whose states it
# writes to the second argument. Prints by how many bytes the peak of its memory grew meanwhile.
_LONGEST_PROGRAM = """
import re, sys
from pathlib import Path
import torch
from peltier_backbone.load import load_backbone
from tests.backbone.modernbert.test_modernbert import LONGEST, _ours, _rows

def memory(field):
    return 1024 * int(re.search(rf"^{field}:\\s+(\\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)[1])

backbone = load_backbone(sys.argv[1])
assert backbone.kernels["attention"].startswith("native"), backbone.kernels
_ours(backbone, _rows((300,)))
Path("/proc/self/clear_refs").write_text("5")
before = memory("VmRSS")
states = _ours(backbone, _rows((LONGEST,)))
print(memory("VmHWM") - before)
torch.save(states, sys.argv[2])
"""
LONGEST = 8192


# Slow, as torch needs seconds for it; the tests above have shorter rows.
@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="only Linux says how much memory is in use")
def test_the_longest_row_needs_no_square_of_scores(tmp_path: Path, bert_directory: Path):
    """Native attention of 8,192 tokens keeps less than the scores of one head, and its states are those of torch. One
    of the three layers is global."""
    name = _save(_small_model(48, 3, 3, 64, 128, LONGEST), tmp_path, bert_directory)
    command = [sys.executable, "-c", _LONGEST_PROGRAM, name, str(tmp_path / "states")]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert int(done.stdout) < 4 * LONGEST**2
    with kernels_in_use("torch"):
        expected = _ours(load_backbone(name), _rows((LONGEST,)))
    torch.testing.assert_close(torch.load(tmp_path / "states"), expected, atol=1e-4, rtol=0)


def test_rows_do_not_see_their_neighbours(modernbert: Backbone):
    """A row's hidden states are the same alone and between rows of any length."""
    rows = [Encoded(tuple(one % 60 for one in row.ids), row.types) for row in _rows()]
    together = _ours(modernbert, rows).split([len(row) for row in rows])
    for row, found in zip(rows, together, strict=True):
        assert _distance(found, _ours(modernbert, [row])) < 1e-5


class _Leaf(NoAdaptation):
    """Adds a number to the embeddings, so that gradients are recorded."""

    def __init__(self) -> None:
        self.leaf = torch.zeros(1, requires_grad=True)

    def norm(self, index: int, x: Tensor, base: Norm, residual: Tensor | None = None) -> Tensor:
        return base(x, residual) + (self.leaf if index == 0 else 0)


def test_gradients_pass_through_the_frozen_encoder(modernbert: Backbone):
    """The states with gradients recorded, where attention is padded, are those without, and the gradient is finite."""
    rows = [Encoded(tuple(one % 60 for one in row.ids), row.types) for row in _rows()]
    packed = modernbert.pack(rows)
    expected = _ours(modernbert, rows)
    adaptation = _Leaf()
    found = modernbert.bert(packed, adaptation)
    assert _distance(found.detach(), expected) < 1e-4
    found.square().sum().backward()
    assert adaptation.leaf.grad is not None
    assert bool(adaptation.leaf.grad.isfinite().all())
