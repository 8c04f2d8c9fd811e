"""Makes the part of a soft prompt."""

from peltier_backbone.checkpoint.config import BackboneConfig
from torch import Tensor

from peltier_adapters.errors import AdapterError
from peltier_adapters.importers.shared.imported_part import ImportedPart
from peltier_adapters.spec.parts import PromptSpec


def create_prompt(table: Tensor, config: BackboneConfig) -> ImportedPart:
    """The part of `table` [P, hidden]; raises `AdapterError` if the backbone has no soft prompts."""
    spec = PromptSpec(length=len(table))
    problems = spec.problems(config)
    if problems:
        raise AdapterError(problems[0])
    return ImportedPart(spec, {"weight": table})
