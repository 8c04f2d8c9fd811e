"""Markdown tables and JSON schemas as short text."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Schema = Mapping[str, Any]

_BOUNDS = {
    "minimum": "≥ {}",
    "exclusiveMinimum": "> {}",
    "maximum": "≤ {}",
    "exclusiveMaximum": "< {}",
    "minLength": "≥ {} characters",
    "maxLength": "≤ {} characters",
    "minItems": "≥ {} items",
    "maxItems": "≤ {} items",
}


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; a `|` inside a cell is escaped, and a line break becomes a space."""
    lines = [header, ["---"] * len(header), *([" ".join(cell.split()).replace("|", "\\|") for cell in r] for r in rows)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def type_of(schema: Schema) -> str:
    """The type of a value with its bounds, as in `integer, ≥ 1`; a named schema is a link to its heading."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if options := schema.get("anyOf") or schema.get("oneOf"):
        return " or ".join(dict.fromkeys(type_of(option) for option in options if option.get("type") != "null"))
    if "enum" in schema or "const" in schema:
        values = schema.get("enum", [schema.get("const")])
        return ", ".join(f"`{value}`" for value in values)
    bounds = [text.format(schema[key]) for key, text in _BOUNDS.items() if key in schema]
    return ", ".join([_plain_type(schema), *bounds])


def _plain_type(schema: Schema) -> str:
    match schema.get("type"):
        case "array" if "prefixItems" in schema:
            return "list of " + " and ".join(type_of(item) for item in schema["prefixItems"])
        case "array":
            return f"list of {type_of(schema.get('items', {}))}"
        case "object" if isinstance(schema.get("additionalProperties"), Mapping):
            return f"object of {type_of(schema['additionalProperties'])}"
        case None:
            return "any"
        case kind:
            return str(kind)


def default_of(schema: Schema) -> str:
    """The default as JSON, or nothing if it is null or missing."""
    default = schema.get("default")
    return "" if default in (None, "") else f"`{json.dumps(default)}`"
