"""The output layer of sparse embeddings: logits of the vocabulary's terms, which are largest over the tokens of a row
(SPLADE; Formal et al. 2021, "SPLADE v2", Eq. 1 and 2, without its logarithm, which keeps their order).

The logits of all tokens together would take a gigabyte for each 8,000 tokens and 30,000 terms. They are computed for
some tokens and a part of the vocabulary at a time, and only the largest of each row are kept.
"""

from collections.abc import Sequence

import torch
from peltier_backbone.backbone import Backbone
from torch import Tensor

from peltier_adapters.batch.row import Row
from peltier_adapters.ops.backend import AdapterGroup, Backend
from peltier_adapters.residency.bank import Resident

# The logits of so many tokens for a part of the vocabulary, 16 MiB, are in memory at a time.
_BATCH_TOKENS = 1024
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
        if row.resident is not None and row.resident.head.num_terms is not None
    ]
    count = max(_ROW_LOGITS // vocab_size, 1)
    for first in range(0, len(sparse), count):
        some = sparse[first : first + count]
        logits = _logits([outputs[number] for number, _ in some], [one for _, one in some], backbone, backend)
        for (number, resident), own in zip(some, logits, strict=True):
            values, terms = own.topk(resident.head.num_terms or 0)
            found[number] = torch.stack((terms.float(), values), 1).cpu()
    return found


def _logits(states: Sequence[Tensor], residents: Sequence[Resident], backbone: Backbone, backend: Backend) -> Tensor:
    """The logits of rows, [rows, vocabulary], with the biases of their heads."""
    width = -(-backbone.config.vocab_size // _ALIGNMENT) * _ALIGNMENT
    y, start = torch.full((len(states), width), float("-inf"), device=backbone.device), 0
    batches = _batch_pieces([own.to(backbone.device) for own in states])
    for linear in backbone.vocabulary:
        for rows, pieces in batches:
            logits = linear(torch.cat(pieces))
            columns = y[:, start : start + logits.shape[1]]
            for row, own in zip(rows, torch.split(logits, [len(piece) for piece in pieces]), strict=True):
                torch.maximum(columns[row], own.amax(0), out=columns[row])
        start += logits.shape[1]
    groups = [AdapterGroup(1, one.head.program, one.head_slot.read()) for one in residents]
    return backend.group(groups, [1] * len(groups)).act("vocabulary", 0, y, y)


def _batch_pieces(states: Sequence[Tensor]) -> list[tuple[list[int], list[Tensor]]]:
    """The states of all rows in batches of at most `_BATCH_TOKENS` tokens: pieces of rows, with the number of each."""
    batches: list[tuple[list[int], list[Tensor]]] = []
    room = 0
    for row, whole in enumerate(states):
        for piece in torch.split(whole, _BATCH_TOKENS):
            if len(piece) > room:
                batches.append(([], []))
                room = _BATCH_TOKENS
            batches[-1][0].append(row)
            batches[-1][1].append(piece)
            room -= len(piece)
    return batches
