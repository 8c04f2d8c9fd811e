"""Refuses a training whose settings would need too much memory, before the first step. Imports no torch."""

from peltier_adapters.presets.presets import find_preset
from peltier_adapters.spec.parts import count_parameters
from peltier_backbone.checkpoint.checkpoint import find_checkpoint
from peltier_backbone.checkpoint.config import BackboneConfig, load_config
from peltier_backbone.machine.memory import total_bytes

from peltier_training.config.preparation import Prepared
from peltier_training.config.run import Run
from peltier_training.errors import TrainingError
from peltier_training.fit.passes import as_gib

_FLOAT_BYTES = 4
# The weight, its gradient, and the two moments of the optimizer.
_COPIES_OF_A_WEIGHT = 4
# What a loss of pairs keeps of their outputs: these, their weights or unit vectors, and gradients.
_COPIES_OF_AN_OUTPUT = 6
_PLACE_BYTES = 8
_GIB = 2**30
_LEAST_GIB = 4
# Of a machine's memory, which its server and other workers use too.
_SHARE = 4
# Of a GPU's free memory: the rest is for the backbone, and for the adapter with its gradients and moments.
_GPU_SHARE = 2


def check_memory(prepared: Prepared) -> None:
    """Raise a `TrainingError` if the adapter, or the loss of a batch of pairs, needs more than a pass may."""
    run = prepared.run
    if run.pass_bytes is None:
        return
    config = load_config(find_checkpoint(run.backbone))
    adapter, most = _adapter_bytes(run, prepared.data.labels.names, config), as_gib(run.pass_bytes)
    if adapter > run.pass_bytes:
        raise TrainingError(
            f"the adapter of preset {run.preset!r} with these settings needs {as_gib(adapter)} in training; at most "
            f"{most} are used"
        )
    if (batch := _batch_bytes(run, config)) > run.pass_bytes:
        raise TrainingError(
            f"batch_size is {run.batch_size}; the loss of so many pairs needs about {as_gib(batch)}, and at most "
            f"{most} are used"
        )


def _adapter_bytes(run: Run, labels: tuple[str, ...], config: BackboneConfig) -> int:
    preset = find_preset(run.preset)
    settings = preset.settings(run.overrides, config)
    parts = preset.compose(settings, config, outputs=run.num_outputs(labels, config))
    num = count_parameters(parts, config, head=True) * int(settings.get("experts", 1))
    return _COPIES_OF_A_WEIGHT * _FLOAT_BYTES * num


def _batch_bytes(run: Run, config: BackboneConfig) -> int:
    """The bytes of a loss in which each pair of a batch meets every other."""
    pairs, outputs = run.batch_size, run.num_outputs((), config)
    match run.task_type:
        case "embedding":
            values = 2 * pairs * outputs * (1 + len(run.embedding.dimensions))
        case "sparse-embedding":
            values = 2 * pairs * config.vocab_size
        case "multi-vector-embedding":
            length = run.hyperparameters.max_length
            # The place of the nearest token of each second text, for each token of each first text.
            return pairs * length * (pairs * _PLACE_BYTES + 2 * outputs * _COPIES_OF_AN_OUTPUT * _FLOAT_BYTES)
        case _:
            return 0
    return _COPIES_OF_AN_OUTPUT * _FLOAT_BYTES * values


def pass_bytes(device: str) -> int:
    """On a CPU the same on all machines of a kind, because the division of a step decides its last bits."""
    import torch
    from peltier_backbone.load import resolve_device

    if resolve_device(device).type == "cpu":
        return max(_LEAST_GIB, (total_bytes() or 0) // (_SHARE * _GIB)) * _GIB
    # What torch keeps of former trainings of this process is free for this one.
    kept = torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
    return (torch.cuda.mem_get_info()[0] + kept) // _GPU_SHARE
