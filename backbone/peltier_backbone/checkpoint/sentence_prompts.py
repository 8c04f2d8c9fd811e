"""The prompts of a sentence-transformers checkpoint; imports no torch."""

from collections.abc import Mapping
from pathlib import Path

from peltier_backbone.checkpoint.sentence_pooling import POOLING_FILE, read_object
from peltier_backbone.errors import BackboneError

PROMPTS_FILE = "config_sentence_transformers.json"


def read_sentence_prompts(directory: Path) -> Mapping[str, str]:
    """The texts that come before inputs, by name: `prompts` in `config_sentence_transformers.json` of the checkpoint in
    `directory`. None without that file, and where the pooling leaves the prompt out (`include_prompt`), as no head
    does. Raises a `BackboneError` if it cannot read the file."""
    prompts = (read_object(directory / PROMPTS_FILE) or {}).get("prompts") or {}
    if not isinstance(prompts, dict) or not all(isinstance(one, str) for one in prompts.values()):
        raise BackboneError(f"{directory / PROMPTS_FILE}: prompts is {prompts!r}; it must have a text for each name")
    pooling = read_object(directory / POOLING_FILE) or {}
    return prompts if pooling.get("include_prompt", True) else {}
