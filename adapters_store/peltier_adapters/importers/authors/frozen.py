"""What a checkpoint of a whole model holds besides its adapter must be the backbone, or the answers are another's."""

from pathlib import Path

import torch
from peltier_backbone.bert_config import BertConfig
from peltier_backbone.bert_weights import bert_weights, build_bert, canonical_bert
from peltier_backbone.errors import BackboneError
from peltier_backbone.linear import PlainLinear
from peltier_backbone.load import Backbone
from peltier_backbone.t5_config import T5Config
from peltier_backbone.t5_weights import build_t5, canonical_t5, t5_weights
from peltier_backbone.weights import Weights
from torch import Tensor

from peltier_adapters.errors import AdapterError
from peltier_adapters.importers.checkpoint import Checkpoint
from peltier_adapters.importers.module_sites import find_sites

# float32 survives saving bit by bit; a backbone published in half precision is rounded once.
_TOLERANCE = 1e-6


def finish_frozen(rest: Checkpoint, backbone: Backbone) -> None:
    """Consume the tensors left in `rest`: none, or the whole of `backbone`; norms already taken may be missing."""
    rest.skip(r".*embeddings\.position_ids")
    tensors = {name: rest.take(name) for name in rest}
    if not tensors:
        return
    try:
        pairs = _pairs(tensors, backbone, Path(rest.where))
    except BackboneError as error:
        raise AdapterError(f"{error}; the checkpoint must hold an adapter alone, or with the whole backbone") from None
    for name, own, found in pairs:
        if own.shape != found.shape or not torch.allclose(own.cpu().float(), found, rtol=0, atol=_TOLERANCE):
            raise AdapterError(
                f"{rest.where}: the frozen weights {name!r} are not those of backbone {backbone.name!r}; an adapter is "
                "served on the backbone that it was trained on, whose weights it must leave alone"
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
        found = bert_weights(build_bert(config, Weights(canonical_bert(tensors, where), where), PlainLinear))
        own = bert_weights(backbone.bert)
    theirs = dict(found)
    return [(name, tensor, theirs[name]) for name, tensor in own if name in theirs]


def _with_own_norms(tensors: dict[str, Tensor], backbone: Backbone) -> dict[str, Tensor]:
    norms = backbone.model.norms()
    own = {f"{module}.weight": norms[index].weight for module, index in find_sites(backbone.config).norms.items()}
    return own | tensors
