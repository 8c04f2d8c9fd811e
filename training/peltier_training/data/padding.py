"""Padded rows for transformers models."""

from collections.abc import Sequence

import torch
from peltier_backbone.checkpoint.config import BackboneConfig
from peltier_backbone.text.packing import Encoded
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from peltier_training.data.dataset import TextRow

IGNORED = -100  # torch's cross-entropy ignores such labels


def pad_rows(rows: Sequence[Encoded], config: BackboneConfig) -> dict[str, Tensor]:
    """Ids, mask and, if the model reads them, token types, each [rows, tokens]."""
    ids = [torch.tensor(row.ids) for row in rows]
    pad = 0 if config.generates else config.pad_token_id
    padded = {
        "input_ids": pad_sequence(ids, batch_first=True, padding_value=pad),
        "attention_mask": pad_sequence([torch.ones_like(row) for row in ids], batch_first=True),
    }
    if config.typed:
        padded["token_type_ids"] = pad_sequence([torch.tensor(row.types) for row in rows], batch_first=True)
    return padded


def pad_texts(rows: Sequence[TextRow], config: BackboneConfig) -> dict[str, Tensor]:
    """Padded inputs and decoder tokens; `label_grid` [rows, tokens] has the token that follows each."""
    labels = pad_sequence([torch.tensor(row.labels) for row in rows], batch_first=True, padding_value=IGNORED)
    read = pad_sequence([torch.tensor(row.read) for row in rows], batch_first=True)
    return pad_rows([row.encoded for row in rows], config) | {"decoder_input_ids": read, "label_grid": labels}
