"""reference/settings.md: every setting of the server."""

from typing import Any

from peltier_server.extensions.settings import GROUPS
from peltier_server.settings import SettingsGroup

from docs.generator.commands_page import real_command
from docs.generator.table import default_of, table, type_of

_HEAD = """# Settings

These are the settings of `peltier serve`. A flag wins over the environment variable, and the variable over the TOML
file that `--config` names. The variable of a setting is `PELTIER_` and its name in capitals: `max_inputs` is
`PELTIER_MAX_INPUTS`. The TOML file has a section for each group below, and a key of the section is the name itself;
keys before the first section are accepted too. Unknown flags, variables, sections and keys are errors. Settings with a
secret have no flag, because other users of a machine can read command lines. [Limits](../limits.md) lists the error at
each bound.
"""


def settings_page() -> str:
    """The page, with a table for each group, in the order of the fields."""
    flags = {option.name: option for option in real_command("serve").params}
    return "\n".join([_HEAD, *(_group(name, kind, flags) for name, kind in GROUPS.items())])


def _group(name: str, kind: type[SettingsGroup], flags: dict[str, Any]) -> str:
    rows = [_row(field, schema, flags.get(field)) for field, schema in kind.model_json_schema()["properties"].items()]
    header = ("setting", "flag", "type", "default", "description")
    return f"## {name}\n\n{kind.__doc__}\n\n{table(header, rows)}\n"


def _row(name: str, field: dict[str, Any], option: Any) -> tuple[str, ...]:
    flag = "" if option is None else f"`{option.opts[0]}`"
    return f"`{name}`", flag, type_of(field), default_of(field), field["description"]
