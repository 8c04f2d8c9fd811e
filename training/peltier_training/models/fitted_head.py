"""Sets the output layer of a new adapter to the one that fits the vectors of the frozen backbone best.

Training then begins from a linear probe (Kumar et al. 2022, "Fine-tuning can distort pretrained features"), which takes
one pass over the rows, and not from logits that are the same for all of them.
"""

from collections.abc import Sequence

import torch
from peltier_adapters.spec.tasks import TaskType
from peltier_backbone.text.packing import Encoded
from torch import Tensor
from torch.nn import functional as F

from peltier_training.data.dataset import EncodedRows, collate
from peltier_training.models.model import HeadedAdapter

# On vectors of the mean length 1. Steeper solutions leave the adapter's own parameters without gradients.
_PENALTY = 0.01
_BATCH_ROWS, _MOST_ITERATIONS = 32, 100


def fit_head(adapter: HeadedAdapter, task_type: TaskType, rows: EncodedRows) -> None:
    """Set the weight and the bias of `adapter`'s head to those of a logistic regression with an L2 penalty."""
    batch = collate([rows[place] for place in range(len(rows))])
    vectors, labels = _pool(adapter, batch["rows"]).double(), batch["labels"]
    scale = vectors.square().sum(1).mean().sqrt().clamp(min=torch.finfo(torch.float64).tiny)
    weight, bias = _regress(vectors / scale, labels, task_type, adapter.head_spec.outputs)
    found = {"head/weight": weight / scale, "head/bias": bias}
    with torch.no_grad():
        for name, parameter in adapter.named_parameters():
            if (own := found.get(name.rpartition(".")[2])) is not None:
                parameter.copy_(own)


@torch.no_grad()
def _pool(adapter: HeadedAdapter, rows: Sequence[Encoded]) -> Tensor:
    """The vectors that the head reads before the first step, [rows, hidden]."""
    adapter.eval()
    batches = [rows[first : first + _BATCH_ROWS] for first in range(0, len(rows), _BATCH_ROWS)]
    return torch.cat([adapter.pool(batch) for batch in batches])


def _regress(x: Tensor, labels: Tensor, task_type: TaskType, outputs: int) -> tuple[Tensor, Tensor]:
    """The weight [hidden, outputs] and the bias [outputs]."""
    weight = x.new_zeros(x.shape[1], outputs, requires_grad=True)
    bias = x.new_zeros(outputs, requires_grad=True)
    optimizer = torch.optim.LBFGS([weight, bias], max_iter=_MOST_ITERATIONS, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        logits = torch.addmm(bias, x, weight)
        if task_type == "classification":
            errors = F.cross_entropy(logits, labels, reduction="sum")
        else:
            errors = F.binary_cross_entropy_with_logits(logits, labels.to(x), reduction="sum")
        found: Tensor = (errors + 0.5 * _PENALTY * weight.square().sum()) / len(x)
        found.backward()  # type: ignore[no-untyped-call]
        return found

    optimizer.step(loss)  # type: ignore[no-untyped-call]
    return weight.detach(), bias.detach()
