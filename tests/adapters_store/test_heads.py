"""Many heads in one batch."""

from collections.abc import Callable

import pytest
import torch
from peltier_adapters import heads
from peltier_adapters.artifact import read_artifact
from peltier_adapters.bank import Banks
from peltier_adapters.heads import read_heads
from peltier_adapters.row import Row
from peltier_backbone.load import Backbone
from peltier_backbone.native.library import load_library
from torch import Tensor

CPU = torch.device("cpu")


@pytest.mark.parametrize("serving", [False, True], ids=["torch", "serving"])
@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_heads_together_answer_as_each_alone(
    family: str,
    serving: bool,
    make_artifact: Callable[..., bytes],
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
):
    """Of several numbers of labels, with and without a layer of their own, two rows of one head and rows of none."""
    backbone: Backbone = request.getfixturevalue(family)
    banks, drawn = Banks(backbone), [(seed, labels) for seed in range(2) for labels in (("a", "b"), ("a", "b", "c"))]
    residents = [
        banks.add(read_artifact(make_artifact(backbone, "lora", seed=seed, labels=labels), backbone))
        for seed, labels in drawn
    ]
    encoded = backbone.tokenizer.encode("a good film")
    rows = [Row(encoded, one) for one in (*residents, None, residents[0], residents[3])]
    vectors = torch.randn(len(rows), backbone.config.hidden_size, generator=torch.Generator().manual_seed(0))

    def pooled(pooling: str) -> Tensor:
        return vectors if pooling == "first" else vectors.tanh()

    with torch.inference_mode(serving):
        alone = [read_heads([row], lambda kind, k=k: pooled(kind)[k : k + 1], CPU)[0] for k, row in enumerate(rows)]
        for together in (False, True):
            monkeypatch.setattr(heads, "_compute_together", lambda device, answer=together: answer)
            for own, expected in zip(read_heads(rows, pooled, CPU), alone, strict=True):
                torch.testing.assert_close(own, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.skipif(load_library() is None, reason="no native kernels were built here")
@torch.inference_mode()
def test_heads_of_equal_parts_are_one_product(
    bert: Backbone, make_artifact: Callable[..., bytes], monkeypatch: pytest.MonkeyPatch
):
    """Where native kernels serve, however many tasks they are of."""
    banks, drawn = Banks(bert), [(seed, labels) for seed in range(3) for labels in (("a", "b"), ("a", "b", "c"))]
    residents = [
        banks.add(read_artifact(make_artifact(bert, "lora", seed=seed, labels=labels), bert)) for seed, labels in drawn
    ]
    sizes: list[int] = []
    apply_each = heads.head.apply_each
    monkeypatch.setattr(heads.head, "apply_each", lambda own, x: sizes.append(len(x)) or apply_each(own, x))
    rows = [Row(bert.tokenizer.encode("bad"), one) for one in residents]
    read_heads(rows, lambda kind: torch.zeros(len(rows), bert.config.hidden_size), CPU)
    assert sizes == [3, 3]


def test_the_host_waits_for_a_gpu_once(
    bert: Backbone, make_artifact: Callable[..., bytes], monkeypatch: pytest.MonkeyPatch
):
    """However many heads there are, what they say comes in one copy."""
    banks = Banks(bert)
    residents = [banks.add(read_artifact(make_artifact(bert, "lora", seed=seed), bert)) for seed in range(3)]
    rows = [Row(bert.tokenizer.encode("bad"), one) for one in (*residents, None)]
    copies: list[int] = []
    to_host = Tensor.cpu
    monkeypatch.setattr(Tensor, "cpu", lambda tensor: copies.append(tensor.numel()) or to_host(tensor))
    read_heads(rows, lambda kind: torch.zeros(len(rows), bert.config.hidden_size), CPU)
    assert copies == [3 * 2 + bert.config.hidden_size]
