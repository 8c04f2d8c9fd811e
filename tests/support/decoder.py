"""T5's decoder without adapters, by the kernels that serve a backbone, or by torch where these do not."""

from collections.abc import Callable, Sequence

import torch
from peltier_backbone.backbone import Backbone
from peltier_backbone.decoding.cache import Cache, EncoderKV
from peltier_backbone.decoding.targets import Targets
from peltier_backbone.native.choice import serving_library
from peltier_backbone.native.rows import NO_OPS, StackRows
from peltier_backbone.t5.native_rows import StepRows, place_targets


def decode(backbone: Backbone, targets: Targets, memory: EncoderKV) -> torch.Tensor:
    """The states of given tokens, [nodes, hidden]; row r reads memory row r."""
    model, run = backbone.t5, _run_of(backbone)
    if run is None:
        return model.decode(targets, memory)
    rows = place_targets(targets, memory, model.decoder.bias, model.config.num_heads, by_token=False)
    return run(model.embedding(targets.ids), rows)


def arrange(backbone: Backbone, slots: Sequence[int], cache: Cache) -> Callable[[torch.Tensor], torch.Tensor]:
    """The next steps of rows in distinct `slots`, from one more token of each, [rows], to its states [rows, hidden]."""
    model, run = backbone.t5, _run_of(backbone)
    if run is None:
        view = model.arrange(slots, cache)
        return lambda ids: model.step(ids, view)
    rows = StepRows(slots, cache, model.decoder.bias)

    def step(ids: torch.Tensor) -> torch.Tensor:
        hidden = run(model.embedding(ids), rows.begin())
        rows.end()
        return hidden

    return step


def _run_of(backbone: Backbone) -> Callable[[torch.Tensor, StackRows], torch.Tensor] | None:
    library, stacks = serving_library(backbone.device, backbone.dtype), backbone.stacks
    if library is None or stacks is None or stacks.encoder.packed_by is not library:
        return None
    return lambda x, rows: library.run_stack(stacks.decoder, x, rows, NO_OPS)
