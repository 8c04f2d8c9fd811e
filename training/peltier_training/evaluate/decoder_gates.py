"""UniPELT's gates in a T5's decoder, one per token."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import torch
from peltier_adapters.batch.adaptation import BatchAdaptation
from peltier_adapters.batch.row import Row, group_rows, repeat_rows
from peltier_adapters.batch.scoring import pack_targets
from peltier_adapters.ops.backend import AdapterGroup
from peltier_adapters.ops.torch import TORCH
from peltier_backbone.backbone import Backbone
from peltier_backbone.checkpoint.config import T5Config
from torch import Tensor

from peltier_training.evaluate.evaluation import BATCH_ROWS, MeanGates


@torch.inference_mode()
def decoder_gates(backbone: Backbone, rows: Sequence[Row]) -> MeanGates:
    """For each part and stack ("prefix, cross-attention") the mean gate of each block of the decoder, None for a block
    without that part. The mean is over the scored tokens of `rows`, which share an adapter; gates of what
    cross-attention reads from the encoder are one per row, and their mean is over rows."""
    found: dict[tuple[str, int], list[Tensor]] = defaultdict(list)
    for first in range(0, len(rows), BATCH_ROWS):
        for group in _decoded(backbone, rows[first : first + BATCH_ROWS]):
            for part, layers in (group.gates or {}).items():
                for layer, gates in layers.items():
                    found[part, layer].append(gates)
    return _by_stack(backbone.t5.config, {place: float(torch.cat(gates).mean()) for place, gates in found.items()})


def _decoded(backbone: Backbone, rows: Sequence[Row]) -> Iterator[AdapterGroup]:
    """The groups of one scoring pass, with their gates: those of the rows, and those of the decoder's tokens."""
    model, packed = backbone.t5, backbone.pack([row.prompted for row in rows])
    reading = _adapt(backbone, rows, packed.lengths)
    memory = model.project_kv(packed, model.encode(packed, reading), reading)
    trees = [tree for row in rows if (tree := row.scored) is not None]
    tokens = repeat_rows(rows, [len(tree.ids) for tree in trees])
    writing = _adapt(backbone, tokens, [1] * len(tokens))
    model.decode(pack_targets(trees, backbone.device), memory, writing)
    yield from (*reading.groups, *writing.groups)


def _adapt(backbone: Backbone, rows: Sequence[Row], lengths: Sequence[int]) -> BatchAdaptation:
    """The adaptation of rows of `lengths` tokens that records gates. Torch reads the weights of a T5's adapter as any
    backend keeps them: no bias of them replaces one of the backbone, which has none."""
    return BatchAdaptation(backbone, group_rows(rows, record_gates=True), lengths, TORCH)


def _by_stack(config: T5Config, means: Mapping[tuple[str, int], float]) -> MeanGates:
    """Blocks and attentions are numbered from the encoder's first, and cross-attentions come last."""
    blocks = range(config.num_decoder_layers)
    starts = {"decoder": config.num_layers, "cross-attention": config.num_layers + config.num_decoder_layers}
    named = {
        f"{part}, {stack}": [means.get((part, start + block)) for block in blocks]
        for part in dict.fromkeys(part for part, _ in means)
        for stack, start in starts.items()
    }
    return {name: gates for name, gates in named.items() if any(gate is not None for gate in gates)}
