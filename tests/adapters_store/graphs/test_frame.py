"""The forward pass of a frame on a device without data: its tensors have shapes but no values."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from peltier_adapters.artifact.artifact import read_artifact
from peltier_adapters.batch.row import Row
from peltier_adapters.graphs.shape import Shape, shape_of
from peltier_adapters.presets.presets import presets_for
from peltier_adapters.residency.bank import Bank, Banks
from peltier_backbone import varlen
from peltier_backbone.bert_weights import build_bert, canonical_bert
from peltier_backbone.checkpoint import read_tensors
from peltier_backbone.linear import PlainLinear
from peltier_backbone.load import Backbone
from peltier_backbone.weights import Weights
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

pytest.importorskip("triton", reason="Triton has no build for this machine")

from peltier_adapters.graphs.frame import Frame

ELSEWHERE = torch.device("meta")


def _shape(elsewhere: Backbone, bert: Backbone, make_artifact: Callable[..., bytes]) -> Shape:
    """Room for an adapter of every preset, on a backbone that is `elsewhere`."""
    banks, encoded = Banks(elsewhere), bert.tokenizer.encode("a good film")
    names = [preset.name for preset in presets_for(bert.config)]
    rows = [Row(encoded, banks.add(read_artifact(make_artifact(bert, name), bert))) for name in names]
    found = shape_of(sorted(rows, key=lambda row: row.order))
    assert found is not None
    return found


@pytest.fixture(scope="module")
def sizes(bert_directory: Path) -> dict[str, torch.Size]:
    """Of the backbone's weights."""
    weights = canonical_bert(read_tensors(bert_directory), bert_directory)
    return {name: weight.shape for name, weight in weights.items()}


def _elsewhere(backbone: Backbone, sizes: dict[str, torch.Size], dtype: torch.dtype) -> Backbone:
    ready = {name: torch.empty(size, dtype=dtype, device=ELSEWHERE) for name, size in sizes.items()}
    model = build_bert(backbone.bert.config, Weights(ready, Path()), PlainLinear)
    return replace(backbone, model=model, device=ELSEWHERE, dtype=dtype)


class NothingOfTheHost(TorchDispatchMode):
    """Refuses tensors that lie elsewhere than the others, also where an operator's fake would not look."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        tensors = [one for one in tree_leaves((args, kwargs, found)) if isinstance(one, Tensor)]
        assert all(one.device == ELSEWHERE for one in tensors), func
        return found


def _stack(bank: Bank, groups: int) -> Tensor:
    return torch.empty(groups, bank.layout.length, device=ELSEWHERE)


@pytest.mark.parametrize(("dtype", "flash"), [(torch.float32, False), (torch.bfloat16, True)])
@torch.inference_mode()
def test_everything_happens_on_the_device(
    dtype: torch.dtype,
    flash: bool,
    bert: Backbone,
    make_artifact: Callable[..., bytes],
    sizes: dict[str, torch.Size],
    monkeypatch: pytest.MonkeyPatch,
):
    """Nothing lies on the host, and no shape and no branch needs a number of the device."""
    elsewhere = _elsewhere(bert, sizes, dtype)
    shape = _shape(elsewhere, bert, make_artifact)
    monkeypatch.setattr(varlen, "fits", lambda device, dtype, head_size: flash)
    frame = Frame(elsewhere, shape, _stack)
    with NothingOfTheHost():
        frame.run()
    assert frame.pooled.keys() == {"first", "mean", "pooler"}
    assert all(len(own) == shape.rows for own in frame.pooled.values())
