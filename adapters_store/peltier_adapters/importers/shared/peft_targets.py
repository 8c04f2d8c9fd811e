"""Which modules of a model a configuration of PEFT names, by PEFT's rules. A file must have tensors of these and of no
others."""

import json
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from peltier_adapters.errors import AdapterError
from peltier_adapters.importers.shared.checkpoint import Checkpoint, ConfigFile
from peltier_adapters.importers.shared.module_sites import base_names
from peltier_adapters.importers.shared.peft_modules import ModelKind, Module

# What Python raises for a regular expression that it cannot read.
INVALID_PATTERN = (re.error, OverflowError, RecursionError)
_ALL_LINEAR = "all-linear"
# What PEFT adds to `modules_to_save` for each type of tasks.
_ADDED = {
    "SEQ_CLS": ("classifier", "score"),
    "TOKEN_CLS": ("classifier", "score"),
    "QUESTION_ANS": ("qa_outputs",),
}
_UNSAVED = (
    "; PEFT before 0.21 does not save the biases of adapted modules: save the adapter with a later version, or with "
    'bias "all"'
)
# A layer's number is the first in a module's name, and for older versions of PEFT the last, below a name of its own.
_NUMBERS = (r".*?\.[^.]*\.(?P<idx>\d+)\.", r".*\.[^.]*\.(?P<idx>\d+)\.")
_NAMED_NUMBERS = (r"(?:^|.*?\.){}\.(?P<idx>\d+)\.", r".*\.{}\.(?P<idx>\d+)\.")


@dataclass(frozen=True)
class Targets:
    """The modules of a model, and a configuration that names some of them."""

    config: ConfigFile
    modules: Sequence[Module]
    kind: ModelKind

    def check(self, checkpoint: Checkpoint, what: str, found: Collection[str]) -> None:
        """Refuses `found` modules unless they are those that the configuration names for adapters."""
        self.config.ignore("target_modules", "exclude_modules", "layers_to_transform", "layers_pattern")
        known = [module.name for module in self.modules if module.needed or module.name in found]
        named = [{name for name in known if self._is_target(name, rule)} for rule in range(len(_NUMBERS))]
        if not found:
            raise AdapterError(f"{checkpoint.where} has no {what} any module")
        if set(found) not in named:
            checkpoint.check_promise(what, named[0], found, f"target_modules of {self.config.where}")

    @cached_property
    def saved(self) -> tuple[str, ...]:
        """The names in `modules_to_save`, with those that PEFT adds."""
        return (*self._names("modules_to_save"), *_ADDED.get(str(self.config.get("task_type")), ()))

    def is_saved(self, name: str) -> bool:
        """Whether the module or one that holds it is saved whole."""
        parts = name.split(".")
        holders = (".".join(parts[:length]) for length in range(1, len(parts) + 1))
        return any(holder.endswith(self.saved) for holder in holders) if self.saved else False

    def names_pooler(self) -> bool:
        """Whether the pooler of a model that has one is adapted."""
        named = [module.name for module in self.modules if module.name.endswith("pooler.dense")]
        targets = self.config.get("target_modules") is not None and any(self._is_target(name, 0) for name in named)
        return bool(named) and (targets or self.config.get("bias") == "all")

    def check_side(self, checkpoint: Checkpoint, name: str, *, of_input: bool) -> None:
        """Refuses factors of a module's inputs unless it is among the feed-forward modules, and those of outputs if it
        is."""
        named: Any = self.config.get("feedforward_modules")
        if named is None:
            return
        if isinstance(named, str):
            among = self._match(rf"(?:{named})\Z", name, "feedforward_modules") is not None
        else:
            among = name.endswith(self._names("feedforward_modules"))
        if among != of_input:
            side, place = ("inputs", "not among") if of_input else ("outputs", "among")
            raise AdapterError(
                f"{checkpoint.where} has factors of the {side} of {name!r}, which is {place} the feedforward_modules "
                f"of {self.config.where}"
            )

    def check_rest(self, rest: Checkpoint, adapted: Collection[str]) -> None:
        """Refuses a file without the biases and the saved modules that the configuration promises, or with biases of
        `adapted` modules without a promise. `rest` has names as `base_names` makes them."""
        self._check_biases(rest, adapted)
        has_head = any(self._has(rest, module) for module in self.modules if module.of_head)
        saved = [one for one in self.modules if self.is_saved(one.name) and (has_head or not one.of_head)]
        where = f"modules_to_save of {self.config.where}"
        rest.check_promise("weights of", *self._lacking(rest, saved, "weight"), where)
        whole = [one for one in self.modules if one.biased and self._has(rest, one)]
        rest.check_promise("biases of", *self._lacking(rest, whole, "bias"), "a saved weight")

    def _check_biases(self, rest: Checkpoint, adapted: Collection[str]) -> None:
        kind = self.config.get("bias", "none")
        own = [one for one in self.modules if one.biased and not one.of_head and not self.is_saved(one.name)]
        if kind == "none":
            found = {one.name for one in own if one.name in adapted and self._has(rest, one, "bias")}
            rest.check_promise("biases of", (), found, f'bias "none" of {self.config.where}')
            return
        promised = own if kind == "all" else [one for one in own if one.name in adapted]
        promised = [one for one in promised if one.needed or one.name in adapted]
        setting = f"bias {json.dumps(kind)} of {self.config.where}"
        rest.check_promise(
            "biases of", *self._lacking(rest, promised, "bias"), setting, "" if kind == "all" else _UNSAVED
        )
        if kind == "all" and self._trains_tables():
            tables = [one for one in self.modules if one.name.endswith("relative_attention_bias")]
            rest.check_promise("weights of", *self._lacking(rest, tables, "weight"), setting)

    def _trains_tables(self) -> bool:
        """Whether bias "all" trained whatever has "bias" in its name, as PEFT did before 0.21."""
        version = re.match(r"(\d+)\.(\d+)", str(self.config.get("peft_version")))
        return version is None or (int(version[1]), int(version[2])) < (0, 21)

    def _has(self, rest: Checkpoint, module: Module, tensor: str = "weight") -> bool:
        return base_names(f"{module.name}.{tensor}") in rest

    def _lacking(self, rest: Checkpoint, modules: Sequence[Module], tensor: str) -> tuple[list[str], list[str]]:
        """The names of `modules`, and of those whose tensor of this name is there."""
        return [one.name for one in modules], [one.name for one in modules if self._has(rest, one, tensor)]

    def _is_target(self, name: str, rule: int) -> bool:
        if self._is_excluded(name) or any(
            self._match(rf"(^|.*\.){saved}($|\..*)", name, "modules_to_save") for saved in self.saved
        ):
            return False
        targets = self.config.get("target_modules")
        if isinstance(targets, str):
            if targets.lower() == _ALL_LINEAR:
                return name in self._linear
            return self._match(rf"(?:{targets})\Z", name, "target_modules") is not None
        if targets is None:
            raise AdapterError(
                f"{self.config.where}: target_modules is null; it must name the modules that are adapted"
            )
        return _ends(name, self._names("target_modules")) and self._in_layers(name, rule)

    @cached_property
    def _linear(self) -> frozenset[str]:
        head = ("classifier",) if self.kind == "SEQ_CLS" else ()
        outer = (*head, "lm_head")
        return frozenset(one.name for one in self.modules if one.kind == "linear" and one.name not in outer)

    def _is_excluded(self, name: str) -> bool:
        excluded = self.config.get("exclude_modules")
        if isinstance(excluded, str):
            return self._match(rf"(?:{excluded})\Z", name, "exclude_modules") is not None
        return _ends(name, self._names("exclude_modules"))

    def _in_layers(self, name: str, rule: int) -> bool:
        layers: Any = self.config.get("layers_to_transform")
        wanted = layers if isinstance(layers, list) else [layers]
        if layers is None or not wanted:
            return True
        if any(type(number) is not int for number in wanted):
            raise AdapterError(f"{self.config.where}: layers_to_transform is {layers!r}; it must be integers")
        patterns = self.config.get("layers_pattern") or []
        named = [patterns] if isinstance(patterns, str) else self._names("layers_pattern")
        forms = [_NAMED_NUMBERS[rule].format(one) for one in named] or [_NUMBERS[rule]]
        match = next(filter(None, (self._match(form, name, "layers_pattern") for form in forms)), None)
        return match is not None and int(match["idx"]) in wanted

    def _match(self, pattern: str, name: str, setting: str) -> re.Match[str] | None:
        try:
            return re.match(pattern, name)
        except INVALID_PATTERN:
            raise AdapterError(f"{self.config.where}: {setting} has an invalid regular expression") from None

    def _names(self, setting: str) -> tuple[str, ...]:
        names = self.config.get(setting, [])
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise AdapterError(f"{self.config.where}: {setting} is {names!r}; it must be a list of names")
        return tuple(names)


def _ends(name: str, endings: Collection[str]) -> bool:
    return name in endings or any(name.endswith(f".{ending}") for ending in endings)
