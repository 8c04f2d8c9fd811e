"""Converts the outputs of multi-vector embeddings to vectors of tokens, and compares texts by them (Khattab and Zaharia
2020, "ColBERT", section 3).

All tokens of a text have a vector, its first and last one included. Unlike ColBERT's queries, queries are not padded
with mask tokens, and no marker tells them from documents."""

import torch
from torch import Tensor
from torch.nn import functional as F

from peltier_adapters.answers import embeddings
from peltier_adapters.batch.row import Row, RowOutput
from peltier_adapters.spec.tasks import TaskSpec

# The tokens of a golden example whose vectors are recorded: a header has room for about 100,000 values.
_MAX_RECORDED = 16


def read(output: Tensor, *, raw: bool = False) -> Tensor:
    """The vectors of an output [tokens, size], of unit length unless they are wanted `raw`. They share no memory with
    the outputs of other rows."""
    return output.clone() if raw else F.normalize(output, dim=-1)


def read_row(row: Row, output: RowOutput, *, raw: bool = False) -> RowOutput:
    """The output of a row with its vectors in place of the outputs of its head."""
    return RowOutput(read(output.logits, raw=raw), output.gates)


def score_row(row: Row, output: RowOutput, *, query: Tensor, mean: bool = True) -> RowOutput:
    """The output of a row whose logit [1] is the `similarity` of its text with the vectors [tokens, size] of a
    query."""
    return RowOutput(similarity(query, read(output.logits), mean=mean).reshape(1))


def similarity(query: Tensor, document: Tensor, *, mean: bool = True) -> Tensor:
    """MaxSim of vectors of unit length [tokens, size]: the largest cosine of each of the query's vectors with one of
    the document's, added up (Eq. 3), or their `mean`, which is from -1 to 1 for queries of any length."""
    largest = (query @ document.T).amax(1)
    return largest.mean() if mean else largest.sum()


def to_lists(vectors: Tensor) -> list[list[float]]:
    """The values of vectors [tokens, size], as `embeddings.to_list` rounds them."""
    return [embeddings.to_list(one) for one in vectors]


def recorded(task: TaskSpec, output: Tensor) -> Tensor:
    """What a golden example records of an output: all of it, or those vectors of at most 16 tokens, evenly spaced."""
    if task.type != "multi-vector-embedding" or len(output) <= _MAX_RECORDED:
        return output
    return output[torch.linspace(0, len(output) - 1, _MAX_RECORDED).round().long()]


def num_recorded(num_tokens: int) -> int:
    """The number of tokens whose vectors a golden example records."""
    return min(num_tokens, _MAX_RECORDED)


def relative_distance(found: Tensor, wanted: Tensor) -> float:
    """The length of the difference of the vectors of two outputs [tokens, size], relative to that of the wanted
    ones."""
    return embeddings.relative_distance(read(found), read(wanted))
