"""The trainable output layer of sparse embeddings, and its start."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

import torch
from peltier_backbone.backbone import VOCABULARY_PART, Backbone
from peltier_backbone.text.packing import Encoded
from torch import Tensor

# The rows that the start is fitted to, the tokens that all of them have at most, and the rows of a pass over them.
_START_ROWS, _START_TOKENS, _PASS_ROWS = 256, 32_768, 32
# Of the mean square of a hidden value, added to the diagonal of the normal equations.
_RIDGE = 1e-2
# The largest logit of a row and the number of positive ones, on average over rows. SPLADE's documents have about 200
# terms, its queries about 20.
_START_LOGIT, _START_TERMS = 2.0, 128


class _LargestLogits(torch.autograd.Function):
    """The logits of `largest_logits`. Neither pass keeps the logits of tokens: the gradient of a row's logit is that of
    the token that has it."""

    @staticmethod
    def forward(ctx: Any, states: Tensor, lengths: Sequence[int], backbone: Backbone) -> Tensor:
        """The logits [rows, vocabulary]."""
        ctx.backbone, ctx.shape = backbone, states.shape
        vocab_size = backbone.config.vocab_size
        logits = states.new_empty(len(lengths), vocab_size)
        places = torch.empty(logits.shape, dtype=torch.int32, device=states.device)
        for start, embeddings in _parts(backbone):
            columns, first = slice(start, start + len(embeddings)), 0
            for row, own in enumerate(torch.split(states @ embeddings.T, list(lengths))):
                logits[row, columns], place = own.max(0)
                places[row, columns] = place + first
                first += len(own)
        ctx.save_for_backward(places)
        return logits

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        """The gradient of the states."""
        (places,), (gradient,) = ctx.saved_tensors, gradients
        found = gradient.new_zeros(ctx.shape)
        for start, embeddings in _parts(ctx.backbone):
            columns = slice(start, start + len(embeddings))
            own = gradient.new_zeros(len(found), len(embeddings))
            found.addmm_(own.scatter_(0, places[:, columns].long(), gradient[:, columns]), embeddings)
        return found, None, None


def _parts(backbone: Backbone) -> Iterator[tuple[int, Tensor]]:
    """The token embeddings [terms, width] of each part of the vocabulary, in float32, and the number of the first."""
    table, size = backbone.bert.tokens, backbone.config.vocab_size
    for start in range(0, size, VOCABULARY_PART):
        yield start, table.part(start, min(start + VOCABULARY_PART, size)).float()


def largest_logits(states: Tensor, lengths: Sequence[int], backbone: Backbone) -> Tensor:
    """The logits [rows, vocabulary], largest over tokens, of the states [tokens, width] of rows of these lengths: those
    of `read_terms` without biases."""
    found: Tensor = _LargestLogits.apply(states, lengths, backbone)  # type: ignore[no-untyped-call]
    return found


def choose_rows(rows: Sequence[Encoded]) -> Sequence[Encoded]:
    """Rows from all over `rows`, in which first and second texts of pairs take turns: an odd step meets both. They are
    at most 256, and have at most 32,768 tokens together, but for a first row that has more."""
    spread = rows[:: -(-len(rows) // _START_ROWS) | 1]
    ends = accumulate(map(len, spread))
    return [row for row, end in zip(spread, ends, strict=True) if end <= _START_TOKENS] or spread[:1]


@torch.no_grad()
def start_at_tokens(head: Mapping[str, Tensor], rows: Sequence[Encoded], backbone: Backbone) -> None:
    """Set the tensors of a head with terms, by the names of `HeadSpec.shapes`, to what fits some training `rows`.

    The projection is the ridge regression of the embedding of each token on its state. So training starts at a bag of
    the words of a text and of words with similar embeddings, as with the head of a masked language model. The bias of a
    term is minus its mean logit over rows, so terms of all texts count little, minus an offset that leaves a row about
    `_START_TERMS` terms."""
    chosen = choose_rows(rows)
    packs = [backbone.pack(list(chosen[first : first + _PASS_ROWS])) for first in range(0, len(chosen), _PASS_ROWS)]
    states = torch.cat([backbone.encode(packed).float() for packed in packs])
    tokens = torch.cat([backbone.bert.tokens(packed.ids).float() for packed in packs])
    mean = states.mean(0)
    x, y = states - mean, tokens - tokens.mean(0)
    ridge = _RIDGE * x.square().mean() * len(x) * torch.eye(x.shape[1], device=x.device)
    weight = torch.linalg.solve(x.T @ x + ridge, x.T @ y)
    parts = torch.split(x @ weight, [sum(packed.lengths) for packed in packs])
    logits = torch.cat([largest_logits(own, one.lengths, backbone) for own, one in zip(parts, packs, strict=True)])
    usual = logits.mean(0)
    top = (logits - usual).topk(min(_START_TERMS, len(usual) // 2)).values.mean(0)
    scale = _START_LOGIT / (top[0] - top[-1]).clamp(min=torch.finfo().tiny)
    head["weight"].copy_(scale * weight)
    head["bias"].copy_(-scale * (mean @ weight))
    head["vocabulary.bias"].copy_(-scale * (usual + top[-1]))
