"""Packed batches: rows lie back to back, so the model computes no pad tokens but those that a row itself has."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain
from typing import NamedTuple

import torch
from torch import Tensor

from peltier_backbone.checkpoint.shape import BackboneConfig
from peltier_backbone.text.token_places import NO_WORD, NOWHERE, Span


@dataclass(slots=True, unsafe_hash=True)
class Encoded:
    """One tokenised row: ids and token types of equal length. Its last `pads` tokens are padding: they attend to the
    other tokens, and no token attends to them. Its positions begin `offset` after an encoder's first; with
    `counts_padding` each of its tokens takes one, in all families (`BackboneConfig.uncounted_token`). Truncation
    dropped `num_dropped` tokens of its texts; with `unread` it also dropped the rest of texts that the tokenizer did
    not read to the end. It never changes; it is not frozen because a frozen one takes six times as long to create.

    A window of a text (`Tokenizer.read_windows`) has for each token its characters [start, end) in the text,
    `offsets`, and the number of its word in the whole text, `words`; tokens that are not of this text, such as special
    tokens, have (0, 0) and -1."""

    ids: tuple[int, ...]
    types: tuple[int, ...]
    pads: int = 0
    offset: int = 0
    counts_padding: bool = False
    num_dropped: int = 0
    unread: bool = False
    offsets: tuple[Span, ...] = ()
    words: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def truncated(self) -> bool:
        """Whether the row lacks any part of its texts."""
        return self.unread or self.num_dropped > 0

    def padded(self, length: int, pad_id: int) -> "Encoded":
        """The row with pads behind it, up to `length`."""
        pads = max(length - len(self), 0)
        padded = replace(self, ids=self.ids + (pad_id,) * pads, types=self.types + (0,) * pads, pads=self.pads + pads)
        if self.offsets:
            padded = replace(padded, offsets=self.offsets + (NOWHERE,) * pads, words=self.words + (NO_WORD,) * pads)
        return padded


@dataclass(frozen=True)
class Packed:
    """A batch of rows, back to back. Token tensors are [tokens]; `starts` has one entry for each row, then the total;
    `seen` is the number of each row's tokens that are not pads, to which its tokens attend."""

    ids: Tensor
    types: Tensor
    positions: Tensor
    lengths: tuple[int, ...]
    seen: tuple[int, ...]
    starts: tuple[int, ...]

    @property
    def first_tokens(self) -> Tensor:
        """Index of each row's first token, [rows]."""
        return torch.tensor(self.starts[:-1], device=self.ids.device)


class Tokens(NamedTuple):
    """The inputs of the embeddings for each token of some rows, back to back."""

    ids: list[int]
    types: list[int]
    positions: list[int]


def list_tokens(rows: Sequence[Encoded], config: BackboneConfig) -> Tokens:
    """The tokens of `rows` in the order given."""
    ids = list(chain.from_iterable(row.ids for row in rows))
    return Tokens(
        ids=ids,
        types=list(chain.from_iterable(row.types for row in rows)) if config.typed else [0] * len(ids),
        positions=list(chain.from_iterable(_positions(row, config) for row in rows)),
    )


def _positions(row: Encoded, config: BackboneConfig) -> Iterable[int]:
    start, uncounted = config.first_position + row.offset, config.uncounted_token
    if uncounted is None or row.counts_padding or uncounted not in row.ids:
        return range(start, start + len(row))
    nexts = accumulate((token != uncounted for token in row.ids), initial=start)
    return (
        config.first_position - 1 if token == uncounted else own for token, own in zip(row.ids, nexts, strict=False)
    )


def pack(rows: Sequence[Encoded], config: BackboneConfig, device: torch.device) -> Packed:
    """Lay `rows` back to back in the order given."""
    lengths = tuple(len(row) for row in rows)
    tokens = list_tokens(rows, config)
    return Packed(
        ids=torch.tensor(tokens.ids, device=device),
        types=torch.tensor(tokens.types, device=device),
        positions=torch.tensor(tokens.positions, device=device),
        lengths=lengths,
        seen=tuple(len(row) - row.pads for row in rows),
        starts=tuple(accumulate(lengths, initial=0)),
    )
