"""The adapters of the UniPELT authors' code: after the feed-forward block, on the normed residual sum, with relu."""

import re
from typing import Any

from peltier_backbone.backbone import Backbone

from peltier_adapters.errors import AdapterError
from peltier_adapters.importers.authors.authors import only_task
from peltier_adapters.importers.shared.bottleneck import Bottleneck, Kind, create_bottleneck
from peltier_adapters.importers.shared.checkpoint import Checkpoint
from peltier_adapters.importers.shared.config_file import ConfigFile
from peltier_adapters.importers.shared.gate import Gate, take_gate
from peltier_adapters.importers.shared.imported_part import ImportedPart
from peltier_adapters.importers.shared.map import take_maps
from peltier_adapters.importers.shared.module_sites import ModuleSite, find_sites

_ADAPTER = r".*\.adapters\.([^.]+)\..*"
_ELSEWHERE = r"(?!encoder\.layer\.\d+\.output\.).*\.adapters\..*"
_PFEIFFER = "pfeiffer"
_WITHOUT_EFFECT = (
    "mh_adapter", "output_adapter", "reduction_factor", "leave_out", "adapter_residual_before_ln",
    "inv_adapter_reduction_factor",
)  # fmt: skip


def find_task(checkpoint: Checkpoint) -> str | None:
    """The task of the checkpoint's adapters; None if it has none."""
    return only_task(checkpoint, _ADAPTER)


def take_adapter(config: ConfigFile, checkpoint: Checkpoint, backbone: Backbone, task: str) -> ImportedPart:
    """The part; raises `AdapterError` for adapters at other places or of another kind."""
    elsewhere = checkpoint.matches(_ELSEWHERE)
    if elsewhere:
        raise AdapterError(
            f"{checkpoint.where}: {elsewhere[0][0]!r} belongs to an adapter at another place; UniPELT's are only "
            "after the feed-forward blocks"
        )
    _check(config, task)
    found: dict[ModuleSite, Bottleneck] = {}
    hidden = backbone.config.hidden_size
    for module, place in find_sites(backbone.config).sublayers.items():
        name = f"{module}.adapters.{task}"
        if checkpoint.matches(rf"{re.escape(name)}\..*"):
            down, up = take_maps(checkpoint, f"{name}.adapter_down.0", f"{name}.adapter_up", hidden)
            gate = used(take_gate(checkpoint, f"{name}.gate", hidden), config, "add_adapter_gate")
            found[place] = Bottleneck(down, up, gate)
    if not found:
        raise AdapterError(f"{checkpoint.where} has adapters of task {task!r} at no layer of this backbone")
    return create_bottleneck(found, Kind("relu", "normed"), backbone.config)


def used(gate: Gate | None, config: ConfigFile, flag: str) -> Gate | None:
    """The gate if its flag is on, which is the default. If the flag is set, the gate must exist."""
    if gate is None and config.get(flag, False):
        raise AdapterError(f"{config.where}: {flag} is true, but the checkpoint has no such gate")
    return gate if config.get(flag, True) else None


def _check(config: ConfigFile, task: str) -> None:
    """Checks the adapter's settings, which the model's configuration contains under a name or a hash."""
    saved = _object(config.get("adapters"))
    name = str(_object(saved.get("adapters")).get(task, _PFEIFFER))
    settings = _object(saved.get("config_map")).get(name, {} if name == _PFEIFFER else None)
    if not isinstance(settings, dict):
        if settings == _PFEIFFER:
            return
        raise AdapterError(f"{config.where}: the adapter of task {task!r} is {name!r}; only {_PFEIFFER!r} is supported")
    own = ConfigFile(settings, f"{config.where}: config_map")
    own.only("non_linearity", "relu")
    for key in ("original_ln_before", "original_ln_after", "residual_before_ln"):
        own.only(key, True)
    for key in ("ln_before", "ln_after", "cross_adapter"):
        own.only(key, False)
    own.only("inv_adapter", None)
    own.ignore(*_WITHOUT_EFFECT)
    own.finish()


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
