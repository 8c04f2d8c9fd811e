"""Prepares the kernels of a GPU for a backbone before its first request."""

from collections.abc import Sequence

import torch
from peltier_backbone.backbone import Backbone
from peltier_backbone.decoding.cache import Cache
from peltier_backbone.text.packing import Encoded
from torch import Tensor

from peltier_adapters.artifact.label_tree import LabelTree, create_tree
from peltier_adapters.batch.choice import choose_runner
from peltier_adapters.batch.packed_batch import TorchBatch
from peltier_adapters.batch.row import Row
from peltier_adapters.batch.runner import Runner
from peltier_adapters.batch.scoring import pack_targets
from peltier_adapters.ops import choice
from peltier_adapters.ops.backend import AdapterGroup, Backend
from peltier_adapters.ops.op import AddedBias, Program
from peltier_adapters.ops.torch import TORCH

# Kernels are compiled for short rows and for others.
_BATCHES = ((3, 1), (17,))
# The mean difference of hidden states or logits over their mean value. A wrong kernel changes them altogether.
_TOLERANCES = {torch.float32: 1e-3, torch.bfloat16: 0.1}
_LABELS = ((0,), (1, 2))


@torch.inference_mode()
def warm_up(backbone: Backbone) -> None:
    """Choose the backends of bodies and of heads, which compares the ops on a GPU with torch and compiles them. Then
    compare rows without an adapter, which compiles the other kernels for the shape of `backbone`; on T5 also label
    trees and a step of a text. So no batch waits for a compiler. If kernels fail, the log has the reason and torch is
    chosen."""
    chosen = [choice.choose_backend(backbone.device, dtype) for dtype in (backbone.dtype, torch.float32)]
    if any(one.name != "triton" for one in chosen):
        return
    try:
        for lengths in _BATCHES:
            rows = [Encoded(tuple(range(length)), (0,) * length) for length in lengths]
            if backbone.config.generates:
                _check(backbone, _decode(backbone, rows, chosen[0]), _decode_by_torch(backbone, rows))
            else:
                _check(backbone, *(_encode(rows, one) for one in (choose_runner(backbone), TorchBatch(backbone))))
    except Exception as error:  # Triton, its compilers and the driver have no common error
        choice.leave_out_kernels(backbone.device, error)


def _check(backbone: Backbone, found: Tensor, expected: Tensor) -> None:
    # The comparison is false for NaN too.
    if not (found - expected).abs().mean() <= _TOLERANCES[backbone.dtype] * expected.abs().mean():
        raise RuntimeError(f"triton computes {backbone.name} wrongly in {backbone.dtype}")


def _encode(rows: Sequence[Encoded], runner: Runner) -> Tensor:
    """The states of the first token of each row, [rows, hidden]."""
    return torch.stack([output.logits for output in runner.run([Row(one) for one in rows])]).float()


def _decode(backbone: Backbone, encoded: Sequence[Encoded], chosen: Backend) -> Tensor:
    """The logits of the nodes of label trees, of a first step, and with a bias, [rows, vocab]."""
    from peltier_adapters.gpu.frame_batch import with_gate_kernels  # needs Triton
    from peltier_adapters.gpu.t5_frame import read_trees

    trees, rows = _trees(backbone, encoded), [Row(one) for one in encoded]
    logits, _ = read_trees(with_gate_kernels(backbone), rows, [AdapterGroup(len(rows))], trees, {})
    cache = Cache(backbone.t5.config, backbone.device, backbone.kept_dtype)
    runner = choose_runner(backbone)
    slots = [slot for own in runner.join(rows, [1] * len(rows), cache) for slot in own]
    step = runner.arrange(rows, slots, cache)([backbone.t5.config.start_token_id] * len(rows))
    return torch.cat((logits, step, _add_bias(backbone, chosen))).float()


def _decode_by_torch(backbone: Backbone, rows: Sequence[Encoded]) -> Tensor:
    """The same by teacher forcing."""
    model, packed, trees = backbone.t5, backbone.pack(list(rows)), _trees(backbone, rows)
    memory = model.project_kv(packed, model.encode(packed))
    targets = pack_targets(trees, backbone.device)
    logits = model.logits(model.decode(targets, memory))
    first = logits.index_select(0, torch.tensor(targets.starts[:-1], device=backbone.device))
    return torch.cat((logits, first, _add_bias(backbone, TORCH))).float()


def _trees(backbone: Backbone, rows: Sequence[Encoded]) -> list[LabelTree]:
    config = backbone.t5.config
    return [create_tree(config.start_token_id, config.eos_token_id, _LABELS) for _ in rows]


def _add_bias(backbone: Backbone, chosen: Backend) -> Tensor:
    """A bias of the output layer, whose width need not be a multiple of 16 as all others are, for one of two rows."""
    width = backbone.t5.config.vocab_size
    program = Program([AddedBias("lm_head", 0, torch.empty(width, device="meta"))], 1)
    kept, flat = chosen.prepare(program, width), torch.ones(width, device=backbone.device)
    groups = [AdapterGroup(1, kept.program, kept.weights(flat)), AdapterGroup(1)]
    x = torch.zeros(2, backbone.config.hidden_size, device=backbone.device, dtype=backbone.dtype)
    return chosen.group(groups, [1, 1]).act("lm_head", 0, x.new_zeros(2, width), x)
