"""Parity of the padding-free forward with transformers."""

from pathlib import Path

import pytest
import torch
from peltier_backbone.backbone import Backbone
from peltier_backbone.checkpoint.checkpoint import find_checkpoint
from peltier_backbone.load import load_backbone
from peltier_backbone.text.packing import Encoded
from torch import Tensor
from transformers import AutoModel, BertConfig, BertModel, PreTrainedModel, RobertaConfig, RobertaModel

LENGTHS = (1, 2, 3, 7, 16, 31, 33, 64, 5, 5, 1)
SHAPES = [  # family, hidden, layers, heads, intermediate
    ("bert", 30, 2, 3, 50),
    ("bert", 48, 1, 1, 7),
    ("bert", 7, 4, 7, 129),
    ("roberta", 20, 3, 5, 33),
    ("roberta", 64, 2, 8, 128),
]


def _random_model(family: str, hidden: int, layers: int, heads: int, inner: int) -> PreTrainedModel:
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


def _rows(vocabulary: int, typed: bool, lengths: tuple[int, ...] = LENGTHS) -> list[Encoded]:
    generator = torch.Generator().manual_seed(0)
    ids = [torch.randint(5, vocabulary, (length,), generator=generator).tolist() for length in lengths]
    return [Encoded(tuple(row), tuple(int(typed and at > len(row) // 2) for at in range(len(row)))) for row in ids]


@torch.inference_mode()
def _reference(model: PreTrainedModel, rows: list[Encoded]) -> Tensor:
    """transformers on the padded batch; real tokens only, back to back."""
    width = max(map(len, rows))
    pad = model.config.pad_token_id
    ids = torch.tensor([[*row.ids, *[pad] * (width - len(row))] for row in rows])
    types = torch.tensor([[*row.types, *[0] * (width - len(row))] for row in rows])
    mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows])
    return model(input_ids=ids, attention_mask=mask, token_type_ids=types).last_hidden_state[mask.bool()]


@torch.inference_mode()
def _reference_with_pads(model: PreTrainedModel, row: Encoded) -> Tensor:
    """transformers on one row whose last tokens are masked, those tokens' states included."""
    mask = torch.tensor([[1] * (len(row) - row.pads) + [0] * row.pads])
    ids, types = torch.tensor([row.ids]), torch.tensor([row.types])
    return model(input_ids=ids, attention_mask=mask, token_type_ids=types).last_hidden_state[0]


@torch.inference_mode()
def _ours(backbone: Backbone, rows: list[Encoded]) -> Tensor:
    return backbone.encode(backbone.pack(rows))


def _distance(one: Tensor, other: Tensor) -> float:
    return float((one.double() - other.double()).abs().max())


def _save(model: PreTrainedModel, directory: Path, tokenizer: Path) -> str:
    model.save_pretrained(directory)
    (directory / "tokenizer.json").write_bytes((tokenizer / "tokenizer.json").read_bytes())
    return str(directory)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_float32_equals_transformers(shape: tuple[str, int, int, int, int], tmp_path: Path, bert_directory: Path):
    """Both forwards only differ by rounding: we are as near to the exact (float64) result as transformers is, give or
    take a factor for another order of summation, and always within 1e-4."""
    model = _random_model(*shape)
    ours = load_backbone(_save(model, tmp_path, bert_directory))
    rows = _rows(300, typed=shape[0] == "bert")
    found, theirs, exact = _ours(ours, rows), _reference(model, rows), _reference(model.double(), rows)
    assert _distance(found, theirs) < 1e-4
    assert _distance(found, exact) < 4 * _distance(theirs, exact) + 1e-6


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_bfloat16_is_as_exact_as_transformers(shape, tmp_path, bert_directory):
    """In bfloat16 we are as near to the float64 result of the rounded weights as transformers in bfloat16 is."""
    model = _random_model(*shape).bfloat16()
    ours = load_backbone(_save(model, tmp_path, bert_directory), dtype="bfloat16")
    rows = _rows(300, typed=shape[0] == "bert")
    found, theirs, exact = _ours(ours, rows), _reference(model, rows), _reference(model.double(), rows)
    assert found.dtype == torch.bfloat16
    assert (found.double() - exact).norm() < 1.5 * (theirs.double() - exact).norm()


def test_real_minilm_equals_transformers(minilm: Backbone):
    """The published checkpoint gives the same hidden states as transformers to 1e-4, up to the longest row."""
    model = AutoModel.from_pretrained(find_checkpoint("minilm")).eval()
    rows = _rows(30522, typed=True, lengths=(1, 2, 5, 16, 31, 33, 64, 301))
    assert _distance(_ours(minilm, rows), _reference(model, rows)) < 1e-4
    longest = _rows(30522, typed=True, lengths=(512,))
    assert _distance(_ours(minilm, longest), _reference(model, longest)) < 1e-4


def test_rows_do_not_see_their_neighbours(bert: Backbone):
    """A row's hidden states are the same alone and between rows of any length."""
    rows = _rows(60, typed=True)
    together = _ours(bert, rows).split([len(row) for row in rows])
    for row, found in zip(rows, together, strict=True):
        assert _distance(found, _ours(bert, [row])) < 1e-5


def test_token_types_matter(bert: Backbone):
    """The second text of a pair is embedded as such."""
    row = _rows(60, typed=True, lengths=(9,))[0]
    plain = Encoded(row.ids, (0,) * len(row))
    assert _distance(_ours(bert, [row]), _ours(bert, [plain])) > 1e-2


def test_roberta_ignores_token_types(roberta: Backbone):
    """RoBERTa has one token type; transformers never passes it another one."""
    row = _rows(200, typed=True, lengths=(9,))[0]
    assert torch.equal(_ours(roberta, [row]), _ours(roberta, [Encoded(row.ids, (0,) * len(row))]))


def test_pooler_equals_transformers(bert: Backbone, bert_directory: Path):
    """tanh of the pooler map on the first token is transformers' pooler_output."""
    model = BertModel.from_pretrained(bert_directory).eval()
    row = _rows(60, typed=True, lengths=(12,))[0]
    with torch.inference_mode():
        theirs = model(torch.tensor([row.ids]), token_type_ids=torch.tensor([row.types])).pooler_output
        assert bert.model.pooler is not None
        ours = torch.tanh(bert.model.pooler(bert.encode(bert.pack([row]))[:1]))
    assert _distance(ours, theirs) < 1e-5


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
    backbone = load_backbone(_save(model, tmp_path, bert_directory))
    rows = [Encoded(ids, (0,) * len(ids)) for ids in ((pad, 9, pad, pad, 7, 8), (9, 8, 7), (8, pad), (pad,) * 40)]
    rows.append(rows[1].padded(6, pad))
    expected = torch.cat([_reference_with_pads(model, row) for row in rows])
    assert _distance(_ours(backbone, rows), expected) < 1e-4
    with torch.inference_mode():
        assert _distance(backbone.bert(backbone.pack(rows)), expected) < 1e-4


@pytest.mark.parametrize("name", ["xlm_roberta", "camembert", "mpnet", "jina", "bert"])
def test_a_padding_token_in_a_text_is_placed_as_in_transformers(name: str, request: pytest.FixtureRequest):
    """By each family in its own way: some count it, and some do not."""
    backbone: Backbone = request.getfixturevalue(name)
    model = AutoModel.from_pretrained(request.getfixturevalue(f"{name}_directory")).eval()
    pad = backbone.config.pad_token_id
    rows = [Encoded(ids, (0,) * len(ids)) for ids in ((6, pad, 7, pad, 8, 9), (6, 7, 8))]
    expected = torch.cat([_reference_with_pads(model, row) for row in rows])
    assert _distance(_ours(backbone, rows), expected) < 1e-4


@pytest.mark.parametrize("lengths", [(7, 7), (40, 40), (5, 33, 50, 1)])
def test_pads_of_a_row_see_it_and_are_not_seen(lengths: tuple[int, ...], tmp_path: Path, bert_directory: Path):
    """Rows that bring pads of their own give transformers' states under a mask, at the pads too, whoever shares the
    batch: rows of one length in one call, and long ones apart."""
    model = _random_model("bert", 48, 2, 4, 88)
    backbone = load_backbone(_save(model, tmp_path, bert_directory))
    rows = [row.padded(len(row) + 3 * number, 0) for number, row in enumerate(_rows(300, True, lengths), 1)]
    rows = [*rows, *_rows(300, True, lengths)]
    expected = torch.cat([_reference_with_pads(model, row) for row in rows])
    assert _distance(_ours(backbone, rows), expected) < 1e-4
