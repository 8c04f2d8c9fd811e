"""Checks a method against a checkpoint by the names of its weights, before any weight is read.

torch and transformers are imported only for a baseline that counts tensors."""

from functools import cache
from pathlib import Path

from peltier_adapters.presets.baselines import Baseline
from peltier_adapters.spec.parts import Parts, pooler_users
from peltier_backbone.checkpoint.checkpoint import read_names
from peltier_backbone.checkpoint.config import BackboneConfig

from peltier_training.config.run import Run
from peltier_training.errors import TrainingError


def check_pooler(parts: Parts, backbone: str, checkpoint: Path) -> None:
    """Raise a `TrainingError` for a part that needs a pooler if the checkpoint of `backbone` has none."""
    users = pooler_users(parts)
    if users and not _has_pooler(checkpoint):
        raise TrainingError(
            f"part {users[0]!r} needs a pooler, which backbone {backbone!r} does not have; set pooling to 'first' or "
            "'mean'"
        )


def check_baseline(baseline: Baseline, run: Run, config: BackboneConfig, checkpoint: Path) -> None:
    """Raise an error for invalid settings of the head, a missing pooler, or a too small intrinsic dimension."""
    settings = baseline.settings(run.overrides, config)
    parts = () if config.generates else (baseline.head(settings, config, outputs=1),)
    check_pooler(parts, run.backbone, checkpoint)
    if "dimension" in settings:
        from peltier_training.baselines.tuned_model import check_dimension

        check_dimension(int(settings["dimension"]), _num_tensors(checkpoint, pooled=bool(pooler_users(parts))))


@cache
def _has_pooler(checkpoint: Path) -> bool:
    return any(name.endswith("pooler.dense.weight") for name in read_names(checkpoint))


@cache
def _num_tensors(checkpoint: Path, *, pooled: bool) -> int:
    import torch
    from transformers import AutoConfig, AutoModel, T5ForConditionalGeneration

    from peltier_training.baselines.tuned_model import pooler_option

    config = AutoConfig.from_pretrained(checkpoint)
    with torch.device("meta"):
        if config.is_encoder_decoder:
            model = T5ForConditionalGeneration(config)
        else:
            model = AutoModel.from_config(config, **pooler_option(config, pooled=pooled))  # type: ignore[no-untyped-call]
    return len(dict(model.named_parameters()))
