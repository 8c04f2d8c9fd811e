"""reference/settings.md: every setting of the server."""

from typing import Any

from peltier_server.settings import Settings

from docs.generator.commands_page import real_command
from docs.generator.table import default_of, table, type_of

_HEAD = """# Settings

These are the settings of `peltier serve`. A flag wins over the environment variable, and the variable over the TOML
file that `--config` names. The variable of a setting is `PELTIER_` and its name in capitals: `max_inputs` is
`PELTIER_MAX_INPUTS`. A key of the TOML file is the name itself. Unknown flags, variables and keys are errors. Settings
with a secret have no flag, because other users of a machine can read command lines. [Limits](../limits.md) lists the
error at each bound.

"""


def settings_page() -> str:
    """The page, in the order of the fields."""
    fields = Settings.model_json_schema()["properties"]
    flags = {option.name: option for option in real_command("serve").params}
    rows = [_row(name, field, flags.get(name)) for name, field in fields.items()]
    return _HEAD + table(("setting", "flag", "type", "default", "description"), rows) + "\n"


def _row(name: str, field: dict[str, Any], option: Any) -> tuple[str, ...]:
    flag = "" if option is None else f"`{option.opts[0]}`"
    return f"`{name}`", flag, type_of(field), default_of(field), field["description"]
