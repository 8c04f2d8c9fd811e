"""The names of labels: one for equal values of JSON, whether a file has texts, numbers or booleans."""

import math
import re
from typing import Any

_WHOLE = re.compile(r"(-?(?:0|[1-9][0-9]*))\.0+")
BOOLEANS = ("true", "false")


def json_name(label: Any) -> str | None:
    """The name of one label: a text as it is, a number or a boolean as JSON spells it. Equal numbers have one name, so
    1.0 is `1`. None for anything else, and for a text without a visible character."""
    if isinstance(label, bool):
        return str(label).lower()
    if isinstance(label, float):
        if not math.isfinite(label):
            return None
        return str(int(label)) if label.is_integer() else str(label)
    return str(label) if isinstance(label, str | int) and str(label).strip() else None


def json_spelling(name: str) -> str:
    """JSON's spelling of a text that stands for a whole number or a boolean; every other text as it is. The cells of
    tables are texts: pandas writes a column of integers with a missing one as `1.0`, and booleans as `True`."""
    if (whole := _WHOLE.fullmatch(name)) is not None:
        return "0" if whole[1] == "-0" else whole[1]
    return name.lower() if name.lower() in BOOLEANS else name
