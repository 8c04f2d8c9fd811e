"""Rows as the Trainer draws them."""

import torch
from peltier_backbone.text.packing import Encoded
from peltier_training.data.dataset import EncodedRows, TextRow, TextRows, collate, collate_texts


def test_rows_stay_ragged():
    """Collating pads nothing and keeps each row by its target."""
    rows = [Encoded((1, 2), (0, 0)), Encoded((1, 3, 2), (0, 0, 0))]
    data = EncodedRows(rows, torch.tensor([4, 5]))
    batch = collate([data[1], data[0]])
    assert len(data) == 2
    assert batch["rows"] == [rows[1], rows[0]]
    assert batch["labels"].tolist() == [5, 4]


def test_texts_stay_ragged():
    """The tokens to say lie back to back, as the decoder will answer; inputs and decoder inputs stay apart."""
    one = TextRow(Encoded((1, 2), (0, 0)), (0, 7), (7, 1))
    two = TextRow(Encoded((3, 2), (0, 0)), (0, 8, 9), (8, 9, 1))
    data = TextRows([one, two])
    batch = collate_texts([data[1], data[0]])
    assert len(data) == 2
    assert batch["rows"] == [two.encoded, one.encoded]
    assert batch["targets"] == [(0, 8, 9), (0, 7)]
    assert batch["labels"].tolist() == [8, 9, 1, 7, 1]
