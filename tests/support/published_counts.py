"""Every count of docs/methods.md#counts that a preset of ours defines, on the shapes that were published."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from peltier_backbone.checkpoint.config import BackboneConfig, parse_config

# The published config.json of each backbone, as far as shapes go.
FILES: Mapping[str, Mapping[str, object]] = json.loads(Path(__file__).with_name("published_shapes.json").read_text())
CONFIGS: Mapping[str, BackboneConfig] = {name: parse_config(file, "config.json") for name, file in FILES.items()}


@dataclass(frozen=True)
class Published:
    """A method on a backbone: what it serves with, and what an optimizer has while it is `trained` (the same if None),
    both without an encoder's head."""

    backbone: str
    preset: str
    served: int
    trained: int | None = None
    overrides: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        settings = "".join(f",{name}={value}" for name, value in self.overrides.items())
        return f"{self.backbone}-{self.preset}{settings}"


def _by_division(backbone: str, preset: str, **counts: int) -> list[Published]:
    """Counts by the hypercomplex division, `n4=…`."""
    return [Published(backbone, preset, count, overrides={"n": n[1:]}) for n, count in counts.items()]


def _by_size(preset: str, first: int, second: int) -> list[Published]:
    """Counts on t5-base with a bottleneck of 48 and of 96."""
    sizes = {"48": first, "96": second}
    return [Published("t5-base", preset, count, overrides={"bottleneck": size}) for size, count in sizes.items()]


_SHARED, _UNSHARED = {"bottleneck": "16"}, {"bottleneck": "16", "share": "none"}
COMPACTER = [  # sections 5.2 and 5.4
    Published("t5-base", "houlsby", 1_855_104),
    Published("t5-base", "pfeiffer", 951_360),
    Published("t5-base", "adapterdrop", 1_101_984),
    Published("t5-base", "lowrank", 161_664),
    Published("t5-base", "prompt-r", 76_800),
    Published("t5-base", "prompt-t", 76_800),
    Published("t5-base", "bitfit", 280_932),
    *_by_division("t5-base", "phm", n4=534_144, n8=355_968, n12=398_976),
    *_by_division("t5-base", "compacter", n4=161_728, n8=162_176, n12=163_392),
    *_by_division("t5-base", "compacter++", n4=104_704, n8=105_152, n12=106_368),
    *_by_size("houlsby", 3_625_728, 7_166_976),
    *_by_size("compacter", 165_184, 172_096),
    *_by_size("compacter++", 106_432, 109_888),
    Published("t5-small", "houlsby", 422_272),
    Published("t5-small", "pfeiffer", 219_328),
    Published("t5-small", "adapterdrop", 84_032),
    Published("t5-small", "lowrank", 54_400),
    Published("t5-small", "prompt-r", 51_200),
    Published("t5-small", "prompt-t", 51_200),
    Published("t5-small", "bitfit", 115_044),
    *_by_division("t5-small", "phm", n4=130_432, n8=102_784, n16=250_240),
    *_by_division("t5-small", "compacter", n4=54_464, n8=54_912, n16=58_496),
    *_by_division("t5-small", "compacter++", n4=35_456, n8=35_904, n16=39_488),
]
UNIPELT = [  # section 5.5
    Published("bert-base", "bitfit", 102_912),
    Published("bert-base", "prefix", 184_320, 9_857_024),
    Published("bert-base", "lora", 294_912),
    Published("bert-base", "lora", 294_912 + 18_456, overrides={"gated": "true"}),
    Published("bert-base", "pfeiffer", 894_528),
    Published("bert-base", "pfeiffer", 894_528 + 9_228, overrides={"gated": "true"}),
    Published("bert-base", "unipelt-ap", 1_097_304, 10_770_008),
    Published("bert-base", "unipelt-apl", 1_410_672, 11_083_376),
    Published("bert-base", "unipelt-ap-nogate", 1_078_848, 1_078_848 + 9_857_024 - 184_320),
    Published("bert-base", "unipelt-apl-nogate", 1_373_760, 1_373_760 + 9_857_024 - 184_320),
]
ADAMIX = [  # section 5.6
    Published("bert-base", "adamix", 894_528, 2_223_360),
    Published("bert-base", "adamix", 894_528, 3_578_112, {"share": "none"}),
    Published("roberta-large", "adamix", 811_392, 1_992_192, _SHARED),
    Published("roberta-large", "adamix", 811_392, 3_245_568, _UNSHARED),
    Published("roberta-large", "adamix", 2_385_024, 4 * 24 * (1024 * 48 + 48) + 24 * (1024 * 48 + 1024)),
    Published("roberta-large", "lora", 786_432),
]
PUBLISHED = [*COMPACTER, *UNIPELT, *ADAMIX]
