"""Parity of the padding-free forwards of BERT, RoBERTa and ModernBERT with transformers."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from peltier_backbone.attention.adaptation import NoAdaptation
from peltier_backbone.backbone import Backbone
from peltier_backbone.checkpoint.checkpoint import find_checkpoint
from peltier_backbone.linear.norm import Norm
from peltier_backbone.load import load_backbone
from peltier_backbone.native.choice import kernels_in_use
from peltier_backbone.text.packing import Encoded
from torch import Tensor
from transformers import (
    AutoModel,
    BertConfig,
    BertModel,
    ModernBertConfig,
    ModernBertModel,
    PreTrainedModel,
    RobertaConfig,
    RobertaModel,
)

from tests.support.levels import fastest_level
from tests.support.parity import distance, draw_rows, ours, save, theirs

BERT_LENGTHS = (1, 2, 3, 7, 16, 31, 33, 64, 5, 5, 1)
BERT_SHAPES = [  # family, hidden, layers, heads, intermediate
    ("bert", 30, 2, 3, 50),
    ("bert", 48, 1, 1, 7),
    ("bert", 7, 4, 7, 129),
    ("roberta", 20, 3, 5, 33),
    ("roberta", 64, 2, 8, 128),
]


def _random_bert(family: str, hidden: int, layers: int, heads: int, inner: int) -> PreTrainedModel:
    torch.manual_seed(hidden)
    sizes = {
        "vocab_size": 300, "hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads,
        "intermediate_size": inner, "max_position_embeddings": 70, "initializer_range": 0.3,
    }  # fmt: skip
    bert = family == "bert"
    model = BertModel(BertConfig(**sizes)) if bert else RobertaModel(RobertaConfig(type_vocab_size=1, **sizes))
    for name, weight in model.named_parameters():
        if weight.dim() == 1:
            torch.nn.init.normal_(weight, mean=1.0 if name.endswith("LayerNorm.weight") else 0.0, std=0.3)
    return model.eval()


MODERNBERT_LENGTHS = (1, 2, 3, 7, 16, 31, 33, 64, 90, 5, 5, 1)
MODERNBERT_SHAPES = [  # hidden, layers, heads, intermediate, local_attention
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


def _random_modernbert(config: ModernBertConfig) -> ModernBertModel:
    torch.manual_seed(config.hidden_size)
    model = ModernBertModel(config)
    for weight in model.parameters():
        if weight.dim() == 1:
            torch.nn.init.normal_(weight, mean=1.0, std=0.3)
        else:
            torch.nn.init.normal_(weight, std=1.2 * weight.shape[1] ** -0.5)
    return model.eval()


def _small_modernbert(
    hidden: int, layers: int, heads: int, inner: int, local: int, positions: int = 96
) -> ModernBertModel:
    config = ModernBertConfig(
        vocab_size=300, hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=heads,
        intermediate_size=inner, max_position_embeddings=positions, local_attention=local, pad_token_id=0,
        bos_token_id=2, cls_token_id=2, eos_token_id=3, sep_token_id=3,
    )  # fmt: skip
    return _random_modernbert(config)


def _published(name: str, layers: int, directory: Path, tokenizer: Path) -> tuple[ModernBertModel, Backbone]:
    """A random checkpoint with the published fields, in their published spelling."""
    raw = PUBLISHED[name] | {"num_hidden_layers": layers}
    model = _random_modernbert(ModernBertConfig(**{key: value for key, value in raw.items() if key != "model_type"}))
    save(model, directory, tokenizer)
    (directory / "config.json").write_text(json.dumps(raw))
    return model, load_backbone(str(directory))


SHAPES = [*BERT_SHAPES, *(("modernbert", *one) for one in MODERNBERT_SHAPES)]


def _random(family: str, *sizes: int) -> tuple[PreTrainedModel, list[Encoded]]:
    """A small model, and rows shorter and longer than the window of its local layers if it has some."""
    if family == "modernbert":
        return _small_modernbert(*sizes), draw_rows(MODERNBERT_LENGTHS, 280)
    return _random_bert(family, *sizes), draw_rows(BERT_LENGTHS, 300, typed=family == "bert")


@pytest.fixture(params=["native", "torch"])
def _kernels(request: pytest.FixtureRequest) -> Iterator[None]:
    """With native kernels, and without any."""
    with kernels_in_use("torch" if request.param == "torch" else fastest_level()):
        yield


@pytest.mark.usefixtures("_kernels")
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_float32_equals_transformers(shape: tuple[Any, ...], tmp_path: Path, bert_directory: Path):
    """Both forwards only differ by rounding: we are as near to the exact (float64) result as transformers is, give or
    take a factor for another order of summation, and always within 1e-4."""
    model, rows = _random(*shape)
    own = load_backbone(save(model, tmp_path, bert_directory))
    found, other, exact = ours(own, rows), theirs(model, rows), theirs(model.double(), rows)
    assert distance(found, other) < 1e-4
    assert distance(found, exact) < 4 * distance(other, exact) + 1e-6


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_bfloat16_is_as_exact_as_transformers(shape: tuple[Any, ...], tmp_path: Path, bert_directory: Path):
    """In bfloat16 we are as near to the float64 result of the rounded weights as transformers in bfloat16 is."""
    model, rows = _random(*shape)
    own = load_backbone(save(model.bfloat16(), tmp_path, bert_directory), dtype="bfloat16")
    found, other, exact = ours(own, rows), theirs(model, rows), theirs(model.double(), rows)
    assert found.dtype == torch.bfloat16
    assert (found.double() - exact).norm() < 1.5 * (other.double() - exact).norm()


@pytest.mark.parametrize("family", ["bert", "modernbert"])
def test_rows_do_not_see_their_neighbours(family: str, request: pytest.FixtureRequest):
    """A row's hidden states are the same alone and between rows of any length."""
    backbone: Backbone = request.getfixturevalue(family)
    rows = draw_rows(MODERNBERT_LENGTHS, 60, typed=backbone.config.typed)
    together = ours(backbone, rows).split([len(row) for row in rows])
    for row, found in zip(rows, together, strict=True):
        assert distance(found, ours(backbone, [row])) < 1e-5


def test_real_minilm_equals_transformers(minilm: Backbone):
    """The published checkpoint gives the same hidden states as transformers to 1e-4, up to the longest row."""
    model = AutoModel.from_pretrained(find_checkpoint("minilm")).eval()
    rows = draw_rows((1, 2, 5, 16, 31, 33, 64, 301), 30522, typed=True)
    assert distance(ours(minilm, rows), theirs(model, rows)) < 1e-4
    longest = draw_rows((512,), 30522, typed=True)
    assert distance(ours(minilm, longest), theirs(model, longest)) < 1e-4


def test_token_types_matter(bert: Backbone):
    """The second text of a pair is embedded as such."""
    row = draw_rows((9,), 60, typed=True)[0]
    plain = Encoded(row.ids, (0,) * len(row))
    assert distance(ours(bert, [row]), ours(bert, [plain])) > 1e-2


def test_roberta_ignores_token_types(roberta: Backbone):
    """RoBERTa has one token type; transformers never passes it another one."""
    row = draw_rows((9,), 200, typed=True)[0]
    assert torch.equal(ours(roberta, [row]), ours(roberta, [Encoded(row.ids, (0,) * len(row))]))


def test_pooler_equals_transformers(bert: Backbone, bert_directory: Path):
    """tanh of the pooler map on the first token is transformers' pooler_output."""
    model = BertModel.from_pretrained(bert_directory).eval()
    row = draw_rows((12,), 60, typed=True)[0]
    with torch.inference_mode():
        other = model(torch.tensor([row.ids]), token_type_ids=torch.tensor([row.types])).pooler_output
        assert bert.model.pooler is not None
        own = torch.tanh(bert.model.pooler(bert.encode(bert.pack([row]))[:1]))
    assert distance(own, other) < 1e-5


@pytest.mark.parametrize("pad", [0, 1, 2, 5])
def test_roberta_does_not_count_tokens_that_are_its_padding(pad: int, tmp_path: Path, bert_directory: Path):
    """Wherever a row has the padding's id, the states are those of transformers, which gives it the padding's position.
    A tokenizer may begin each row with that id, and a configuration may call it the beginning of a row."""
    torch.manual_seed(pad)
    config = RobertaConfig(
        vocab_size=300, hidden_size=48, num_hidden_layers=2, num_attention_heads=4, intermediate_size=88,
        max_position_embeddings=70, type_vocab_size=1, initializer_range=0.3, pad_token_id=pad, bos_token_id=pad,
    )  # fmt: skip
    model = RobertaModel(config).eval()
    torch.nn.init.normal_(model.embeddings.position_embeddings.weight)
    backbone = load_backbone(save(model, tmp_path, bert_directory))
    rows = [Encoded(ids, (0,) * len(ids)) for ids in ((pad, 9, pad, pad, 7, 8), (9, 8, 7), (8, pad), (pad,) * 40)]
    rows.append(rows[1].padded(6, pad))
    expected = theirs(model, rows)
    assert distance(ours(backbone, rows), expected) < 1e-4
    with torch.inference_mode():
        assert distance(backbone.bert(backbone.pack(rows)), expected) < 1e-4


@pytest.mark.parametrize("name", ["xlm_roberta", "camembert", "mpnet", "jina", "bert"])
def test_a_padding_token_in_a_text_is_placed_as_in_transformers(name: str, request: pytest.FixtureRequest):
    """By each family in its own way: some count it, and some do not."""
    backbone: Backbone = request.getfixturevalue(name)
    model = AutoModel.from_pretrained(request.getfixturevalue(f"{name}_directory")).eval()
    pad = backbone.config.pad_token_id
    rows = [Encoded(ids, (0,) * len(ids)) for ids in ((6, pad, 7, pad, 8, 9), (6, 7, 8))]
    expected = theirs(model, rows)
    assert distance(ours(backbone, rows), expected) < 1e-4


@pytest.mark.parametrize("lengths", [(7, 7), (40, 40), (5, 33, 50, 1)])
def test_pads_of_a_row_see_it_and_are_not_seen(lengths: tuple[int, ...], tmp_path: Path, bert_directory: Path):
    """Rows that bring pads of their own give transformers' states under a mask, at the pads too, whoever shares the
    batch: rows of one length in one call, and long ones apart."""
    model = _random_bert("bert", 48, 2, 4, 88)
    backbone = load_backbone(save(model, tmp_path, bert_directory))
    rows = [row.padded(len(row) + 3 * number, 0) for number, row in enumerate(draw_rows(lengths, 300, typed=True), 1)]
    rows = [*rows, *draw_rows(lengths, 300, typed=True)]
    expected = theirs(model, rows)
    assert distance(ours(backbone, rows), expected) < 1e-4


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
    model, own = _published(name, layers, tmp_path, bert_directory)
    rows = draw_rows((5, 129, 300), 280)
    assert distance(ours(own, rows), theirs(model, rows)) < 1e-4


@pytest.mark.parametrize("more", [{}, {"attention_factor": 0.9, "beta_fast": 5.0, "beta_slow": 2.0}], ids=str)
def test_stretched_angles_equal_transformers(more: dict[str, float], tmp_path: Path, bert_directory: Path):
    """YaRN, which mmBERT-32k was trained on: four times the positions, to 1e-4 beyond those of the original."""
    yarn = {"rope_type": "yarn", "rope_theta": 160000.0, "factor": 4.0, "original_max_position_embeddings": 64} | more
    parameters = {"full_attention": yarn, "sliding_attention": {"rope_type": "default", "rope_theta": 160000.0}}
    raw = PUBLISHED["mmBERT-small"] | {"max_position_embeddings": 256, "rope_parameters": parameters}
    model = _random_modernbert(
        ModernBertConfig(**{key: raw[key] for key in raw if key != "model_type"}, num_hidden_layers=4)
    )
    own = load_backbone(save(model, tmp_path, bert_directory))
    rows = draw_rows((5, 63, 250), 280)
    assert distance(ours(own, rows), theirs(model, rows)) < 1e-4


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
from tests.backbone.test_encoders import LONGEST
from tests.support.parity import draw_rows, ours

def memory(field):
    return 1024 * int(re.search(rf"^{field}:\\s+(\\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)[1])

backbone = load_backbone(sys.argv[1])
assert backbone.kernels["attention"].startswith("native"), backbone.kernels
ours(backbone, draw_rows((300,), 280))
Path("/proc/self/clear_refs").write_text("5")
before = memory("VmRSS")
states = ours(backbone, draw_rows((LONGEST,), 280))
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
    name = save(_small_modernbert(48, 3, 3, 64, 128, LONGEST), tmp_path, bert_directory)
    command = [sys.executable, "-c", _LONGEST_PROGRAM, name, str(tmp_path / "states")]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert int(done.stdout) < 4 * LONGEST**2
    with kernels_in_use("torch"):
        expected = ours(load_backbone(name), draw_rows((LONGEST,), 280))
    torch.testing.assert_close(torch.load(tmp_path / "states"), expected, atol=1e-4, rtol=0)


class _Leaf(NoAdaptation):
    """Adds a number to the embeddings, so that gradients are recorded."""

    def __init__(self) -> None:
        self.leaf = torch.zeros(1, requires_grad=True)

    def norm(self, index: int, x: Tensor, base: Norm, residual: Tensor | None = None) -> Tensor:
        return base(x, residual) + (self.leaf if index == 0 else 0)


def test_gradients_pass_through_the_frozen_encoder(modernbert: Backbone):
    """The states with gradients recorded, where attention is padded, are those without, and the gradient is finite."""
    rows = [Encoded(tuple(one % 60 for one in row.ids), row.types) for row in draw_rows(MODERNBERT_LENGTHS, 280)]
    packed = modernbert.pack(rows)
    expected = ours(modernbert, rows)
    adaptation = _Leaf()
    found = modernbert.bert(packed, adaptation)
    assert distance(found.detach(), expected) < 1e-4
    found.square().sum().backward()
    assert adaptation.leaf.grad is not None
    assert bool(adaptation.leaf.grad.isfinite().all())
