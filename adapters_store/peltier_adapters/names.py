"""Lists of names on a command line. Imports no torch."""

import json
from pathlib import Path

from peltier_adapters.errors import AdapterError


def parse_names(option: str, text: str) -> tuple[str, ...]:
    """Names from `a,b,c`, or from a JSON file with a list; an `AdapterError` names the `option`."""
    if not text.endswith(".json"):
        return tuple(name.strip() for name in text.split(","))
    try:
        names = json.loads(Path(text).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise AdapterError(f"--{option} {text} cannot be read as JSON: {error}") from None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise AdapterError(f"--{option} {text} must contain a JSON list of names")
    return tuple(names)
