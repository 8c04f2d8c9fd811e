"""Files that the authors' training scripts leave: a checkpoint of the whole model, with its configuration beside it.
The frozen weights in it must be those of the backbone."""

from pathlib import Path

import torch
from peltier_backbone.backbone import Backbone
from peltier_backbone.bert.bert import Bert
from peltier_backbone.bert.weights import bert_weights, build_bert, canonical_bert
from peltier_backbone.checkpoint.bert_config import BertConfig
from peltier_backbone.checkpoint.t5_config import T5Config
from peltier_backbone.checkpoint.weights import Weights
from peltier_backbone.errors import BackboneError
from peltier_backbone.linear.linear import PlainLinear
from peltier_backbone.t5.weights import build_t5, canonical_t5, t5_weights
from torch import Tensor

from peltier_adapters.errors import AdapterError
from peltier_adapters.importers.shared.checkpoint import Checkpoint, ConfigFile, find_file, read_checkpoint, read_config
from peltier_adapters.importers.shared.module_sites import find_sites

_WEIGHTS = ("pytorch_model.bin", "model.safetensors")
# float32 weights are saved exactly; a backbone published in half precision is rounded once.
_TOLERANCE = 1e-6


def read_model(path: Path) -> Checkpoint:
    """The tensors of the checkpoint at `path`, a file or a directory."""
    return read_checkpoint(find_file(path, _WEIGHTS))


def read_settings(path: Path) -> ConfigFile:
    """`config.json` beside the weights; without one every setting is absent."""
    file = (path.parent if path.is_file() else path) / "config.json"
    return read_config(file) if file.is_file() else ConfigFile({}, path)


def only_task(checkpoint: Checkpoint, pattern: str) -> str | None:
    """The task in the first group of the names that match `pattern`; None if no name matches."""
    tasks = sorted({match[1] for match in checkpoint.matches(pattern)})
    if len(tasks) > 1:
        raise AdapterError(
            f"{checkpoint.where} holds adapters of {len(tasks)} tasks: {', '.join(tasks)}; an artifact has one"
        )
    return tasks[0] if tasks else None


def finish_frozen(rest: Checkpoint, backbone: Backbone) -> None:
    """Takes the tensors left in `rest`, which must be none or all of `backbone`, except norms already taken."""
    rest.skip(r".*embeddings\.position_ids")
    tensors = {name: rest.take(name) for name in rest}
    if not tensors:
        return
    try:
        pairs = _pairs(tensors, backbone, Path(rest.where))
    except BackboneError as error:
        raise AdapterError(
            f"{error}; the checkpoint must contain either only an adapter, or also the whole backbone"
        ) from None
    for name, own, found in pairs:
        if own.shape != found.shape or not torch.allclose(own.cpu().float(), found, rtol=0, atol=_TOLERANCE):
            raise AdapterError(
                f"{rest.where}: the frozen weights {name!r} differ from those of backbone {backbone.name!r}; an "
                "adapter needs the backbone that it was trained on, with unchanged weights"
            )


def _pairs(tensors: dict[str, Tensor], backbone: Backbone, where: Path) -> list[tuple[str, Tensor, Tensor]]:
    """Name, own and found weights; BERT's pooler is compared where both have one."""
    config = backbone.config
    if isinstance(config, T5Config):
        whole = _with_own_norms(canonical_t5(tensors, config, where), backbone)
        found = t5_weights(build_t5(config, Weights(whole, where), PlainLinear))
        own = t5_weights(backbone.t5)
    else:
        assert isinstance(config, BertConfig)
        found = bert_weights(build_bert(config, Weights(canonical_bert(tensors, config, where), where), PlainLinear))
        assert isinstance(backbone.model, Bert), "it has this configuration"
        own = bert_weights(backbone.model)
    theirs = dict(found)
    return [(name, tensor, theirs[name]) for name, tensor in own if name in theirs]


def _with_own_norms(tensors: dict[str, Tensor], backbone: Backbone) -> dict[str, Tensor]:
    norms = backbone.model.norms()
    own = {f"{module}.weight": norms[index].weight for module, index in find_sites(backbone.config).norms.items()}
    return own | tensors
