"""The output layer of sparse embeddings: logits of the vocabulary's terms, which are largest over the tokens of a row
(SPLADE; Formal et al. 2021, "SPLADE v2", Eq. 1 and 2, without its logarithm, which keeps their order).

The logits of all tokens together would take a gigabyte for each 8,000 tokens and 30,000 terms. They are computed for
a part of the vocabulary and the tokens of a row at a time, and only the largest of the row are kept. The products of a
row do not depend on the other rows of the batch, so a row has the same bits in any batch.
"""

from collections.abc import Iterator, Sequence

import torch
from peltier_backbone.backbone import Backbone
from peltier_backbone.linear.table import Table
from torch import Tensor

from peltier_adapters.batch.row import Row
from peltier_adapters.ops.backend import AdapterGroup, Backend
from peltier_adapters.residency.bank import Resident, head_spec

# Terms of a part of the vocabulary, and tokens: their logits, 16 MiB, are in memory at a time.
_PART_TERMS = 4096
_PIECE_TOKENS = 1024
# The logits of rows that are in memory at a time: 64 MiB.
_ROW_LOGITS = 2**24
# The kernels of a GPU are compiled for rows that are multiples of 16 apart.
_ALIGNMENT = 16


def read_terms(rows: Sequence[Row], outputs: Sequence[Tensor], backbone: Backbone, backend: Backend) -> list[Tensor]:
    """The `outputs` of rows, in which those of heads with terms, [tokens, width], are replaced by their terms
    [terms, 2] on the CPU: the number and the logit of each, the largest first."""
    found, vocab_size = list(outputs), backbone.config.vocab_size
    sparse = [
        (number, row.resident)
        for number, row in enumerate(rows)
        if row.resident is not None and _num_terms(row.resident) is not None
    ]
    count = max(_ROW_LOGITS // vocab_size, 1)
    for first in range(0, len(sparse), count):
        some = sparse[first : first + count]
        logits = _logits([outputs[number] for number, _ in some], [one for _, one in some], backbone, backend)
        for (number, resident), own in zip(some, logits, strict=True):
            values, terms = own.topk(_num_terms(resident) or 0)
            found[number] = torch.stack((terms.float(), values), 1).cpu()
    return found


def _num_terms(resident: Resident) -> int | None:
    parts = resident.head.parts
    return head_spec(resident.head).terms if parts else None


def _logits(states: Sequence[Tensor], residents: Sequence[Resident], backbone: Backbone, backend: Backend) -> Tensor:
    """The logits of rows, [rows, vocabulary], with the biases of their heads."""
    vocab_size, device = backbone.config.vocab_size, backbone.device
    pieces = [(row, own) for row, all_own in enumerate(states) for own in all_own.to(device).split(_PIECE_TOKENS)]
    padded = -(-vocab_size // _ALIGNMENT) * _ALIGNMENT
    y = torch.full((len(states), padded), float("-inf"), device=device)
    for start, embeddings in vocabulary_parts(backbone.bert.tokens, vocab_size):
        columns = y[:, start : start + len(embeddings)]
        for row, own in pieces:
            torch.maximum(columns[row], (own @ embeddings.T).amax(0), out=columns[row])
    groups = [AdapterGroup(1, one.head.program, one.head_slot.read()) for one in residents]
    return backend.group(groups, [1] * len(groups)).act("vocabulary", 0, y, y)


def vocabulary_parts(table: Table, vocab_size: int) -> Iterator[tuple[int, Tensor]]:
    """The token embeddings [terms, width] of one part of the vocabulary after the other, in float32, and the number of
    the first."""
    for start in range(0, vocab_size, _PART_TERMS):
        yield start, table.part(start, min(start + _PART_TERMS, vocab_size)).float()
