"""The config.json files of published checkpoints, without what no forward pass reads, such as dropout."""

import json
from collections.abc import Mapping
from pathlib import Path

CONFIG_FILES: Mapping[str, Mapping[str, object]] = json.loads(Path(__file__).with_suffix(".json").read_text())
