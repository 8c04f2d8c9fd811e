"""Compacter's maps (Karimi Mahabadi et al. 2021; docs/methods/compacter.md).

PHM (Eq. 3-4): W = sum_i A_i (x) B_i, with n rules A_i [n, n] and n factors B_i [in / n, out / n]. It is built when
it is loaded, and is then a dense map (`kronecker`).

LPHM (Eq. 5-6): B_i = s_i t_i of rank r, and all maps of an adapter share the rules. W is never built. With
x_a the n blocks of x and y_c those of y = x W:

    y_c = sum_a x_a (sum_i A_i[a, c] s_i t_i)

The rules fold into the smaller factor (`fold`), which leaves two products. From a wide x to a narrow y: each block of
x times S = [s_1 ... s_n], [in / n, n r], then all of these times R [n n r, out], R[(a, i)] = (A_i[a, c] t_i)_c. From a
narrow x to a wide y: x times L [in, n (n r + n)], L_c = (A_i[a, c] s_i)_a,i, then each block of that times
T = [t_1; ...; t_n; bias], [n r + n, out / n]. T's last n rows are the n blocks of the map's bias; the bias of the first
product is a constant that picks, in block c, number c of them.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad

from peltier_adapters.ops.op import MatmulStep
from peltier_adapters.parts.part import PartTensors


def kronecker(rule: Tensor, weight: Tensor) -> Tensor:
    """sum_i rule_i (x) weight_i: [..., n, n, n], [..., n, in/n, out/n] -> [..., in, out]; the rule's index is the outer
    (slow) one, as in the authors' code."""
    product = torch.einsum("...iac,...ikp->...akcp", rule, weight)
    return product.flatten(-2).flatten(-3, -2)


def fold(tensors: PartTensors, rule: Tensor) -> dict[str, Tensor]:
    """The tensors of a `FoldedLphmMap` from those of an LPHM map and its `rule` [n, n, n]; exact but for rounding. Left
    is [S, L, n, in / n, r], right [S, L, n, r, out / n] and bias [S, L, out]."""
    left, right, bias = (tensors[name] for name in ("left", "right", "bias"))
    sites, layers, n, width, rank = left.shape
    after = right.shape[-1]
    if width >= after:
        wide = left.transpose(2, 3).reshape(sites, layers, width, n * rank)
        # [a, i, 1, c, 1] times [S, L, 1, i, r, 1, out / n]
        small = rule.transpose(0, 1)[:, :, None, :, None] * right[:, :, None, :, :, None]
        return {"left": wide, "right": small.reshape(sites, layers, n * n * rank, n * after), "bias": bias}
    # [a, 1, c, i, 1] times [S, L, 1, in / n, 1, i, r]
    mixed = rule.permute(1, 2, 0)[:, None, :, :, None] * left.transpose(2, 3)[:, :, None, :, None]
    small = pad(mixed.reshape(sites, layers, n * width, n, n * rank), (0, n)).flatten(-2)
    blocks = right.reshape(sites, layers, n * rank, after)
    return {"left": small, "right": torch.cat((blocks, bias.view(sites, layers, n, after)), -2)}


def folded_steps(tensors: PartTensors, n: int, device: torch.device) -> list[tuple[MatmulStep, MatmulStep]]:
    """The two products of a folded map on `device`, for each site and layer."""
    lefts, rights = (tensors[name].flatten(0, 1).unbind() for name in ("left", "right"))
    if "bias" in tensors:
        biases = tensors["bias"].flatten(0, 1).unbind()
        return [
            (MatmulStep(left, fold=n), MatmulStep(right, bias))
            for left, right, bias in zip(lefts, rights, biases, strict=True)
        ]
    picks = bias_picks(n, rights[0].shape[0], device)
    return [(MatmulStep(left, picks), MatmulStep(right, fold=n)) for left, right in zip(lefts, rights, strict=True)]


def bias_picks(n: int, rows: int, device: torch.device) -> Tensor:
    """The constant [n * rows] that selects for each of n blocks its row among the last n rows of T."""
    return torch.cat((torch.zeros(n, rows - n, device=device), torch.eye(n, device=device)), -1).view(-1)
