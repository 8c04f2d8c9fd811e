"""Reads the settings from flags, the environment and a TOML file."""

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from peltier_server.settings import CoreSettings, SettingsError
from peltier_server.settings_group import group_names, groups_of, is_hidden, settings_of

_PREFIX = "PELTIER_"
# The client commands read these two from the same environment.
_CLIENT_VARIABLES = frozenset({"PELTIER_URL", "PELTIER_API_KEY"})

T = TypeVar("T", bound=CoreSettings)
_Kind = type[CoreSettings]


def read_settings(flags: Mapping[str, object], kind: type[T]) -> T:
    """The settings of this `kind` from `flags`, the environment and the TOML file that the flag `config` names, in this
    order of precedence.

    `flags` has the values by the names of the settings. Raises `SettingsError` with what is wrong.
    """
    config = flags.get("config")
    file = _read_file(config, kind) if isinstance(config, Path) else {}
    given = {**file, **_read_environment(kind), **flags}
    given.pop("config", None)
    groups: dict[str, dict[str, object]] = {group: {} for group in groups_of(kind)}
    for name, value in given.items():
        groups[_group_of(name, kind)][name] = value
    try:
        return kind.model_validate(groups)
    except ValidationError as error:
        raise SettingsError("; ".join(_sentence(kind, problem["loc"], problem) for problem in error.errors())) from None


def _group_of(name: str, kind: _Kind) -> str:
    groups = group_names(kind)
    if name not in groups:
        raise SettingsError(f"setting {name!r} is unknown; there are {', '.join(sorted(groups))}")
    return groups[name]


def _read_environment(kind: _Kind) -> dict[str, str]:
    """The values of the `PELTIER_*` variables by the names of the settings; an empty variable counts as unset."""
    known = {f"{_PREFIX}{name.upper()}": name for name in settings_of(kind)}
    for name in sorted(os.environ):
        if name.startswith(_PREFIX) and name not in known.keys() | _CLIENT_VARIABLES:
            raise SettingsError(f"environment variable {name} is unknown; there are {', '.join(sorted(known))}")
    return {name: os.environ[variable] for variable, name in known.items() if os.environ.get(variable)}


def _read_file(path: Path, kind: _Kind) -> dict[str, object]:
    """The values of a TOML file by the names of the settings, from its sections and from the keys before them."""
    if not path.is_file():
        raise SettingsError(f"config file {str(path)!r} does not exist")
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"config file {str(path)!r} is not TOML: {error}") from None
    except OSError as error:
        raise SettingsError(f"config file {str(path)!r} cannot be read: {error.strerror}") from None
    found: dict[str, object] = {}
    for key, value in document.items():
        values = _read_section(key, value, kind) if isinstance(value, dict) else {key: value}
        for name in values.keys() & found.keys():
            group = _group_of(name, kind)
            raise SettingsError(f"config file {str(path)!r} has the setting {name!r} twice, in [{group}] too")
        found |= values
    return found


def _read_section(section: str, values: dict[str, object], kind: _Kind) -> dict[str, object]:
    groups = groups_of(kind)
    if section not in groups:
        raise SettingsError(f"section [{section}] is unknown; there are {', '.join(f'[{name}]' for name in groups)}")
    for name in values:
        if (group := _group_of(name, kind)) != section:
            raise SettingsError(f"setting {name!r} is not in section [{section}]; it belongs to [{group}]")
    return values


def _sentence(kind: _Kind, location: tuple[int | str, ...], problem: Mapping[str, Any]) -> str:
    rule = str(problem["msg"]).removeprefix("Value error, ")
    # A rule for several settings of a group names them itself.
    if len(location) == 1:
        return rule
    name = str(location[1])
    shown = "" if is_hidden(settings_of(kind)[name]) else f" is {problem['input']!r}"
    return f"setting {name!r}{shown}: {rule}"
