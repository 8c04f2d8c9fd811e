"""Hidden states of encoders: ours, and those of transformers."""

from collections.abc import Sequence
from pathlib import Path

import torch
from peltier_backbone.backbone import Backbone
from peltier_backbone.text.packing import Encoded
from torch import Tensor
from transformers import PreTrainedModel


def draw_rows(lengths: Sequence[int], vocab_size: int, *, typed: bool = False) -> list[Encoded]:
    """Rows of random tokens; the second halves of `typed` ones have the type 1."""
    generator = torch.Generator().manual_seed(0)
    ids = [torch.randint(5, vocab_size, (length,), generator=generator).tolist() for length in lengths]
    return [Encoded(tuple(row), tuple(int(typed and at > len(row) // 2) for at in range(len(row)))) for row in ids]


@torch.inference_mode()
def ours(backbone: Backbone, rows: list[Encoded]) -> Tensor:
    """The states of all tokens, back to back."""
    return backbone.encode(backbone.pack(rows))


@torch.inference_mode()
def theirs(model: PreTrainedModel, rows: list[Encoded]) -> Tensor:
    """The same by transformers on the padded batch, which masks the pads that rows have themselves too."""
    width, pad = max(map(len, rows)), model.config.pad_token_id
    ids = torch.tensor([[*row.ids, *[pad] * (width - len(row))] for row in rows])
    types = torch.tensor([[*row.types, *[0] * (width - len(row))] for row in rows])
    lengths, seen = (torch.tensor(own)[:, None] for own in zip(*((len(r), len(r) - r.pads) for r in rows), strict=True))
    places = torch.arange(width)
    more = {"token_type_ids": types} if types.any() else {}
    return model(input_ids=ids, attention_mask=(places < seen).long(), **more).last_hidden_state[places < lengths]


def distance(one: Tensor, other: Tensor) -> float:
    """The largest difference of two numbers."""
    return float((one.double() - other.double()).abs().max())


def save(model: PreTrainedModel, directory: Path, tokenizer: Path) -> str:
    """The checkpoint of `model` with the tokenizer of another one."""
    model.save_pretrained(directory)
    (directory / "tokenizer.json").write_bytes((tokenizer / "tokenizer.json").read_bytes())
    return str(directory)
