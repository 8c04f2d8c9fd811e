"""What the groups of settings are made of."""

from collections.abc import Mapping
from typing import Annotated, Any, get_args

from pydantic import BaseModel, ConfigDict, Field, SecretStr
from pydantic.fields import FieldInfo

MIB = 1024 * 1024
YEAR_SECONDS = 366 * 24 * 3600

Count = Annotated[int, Field(ge=1)]


def setting(default: object, description: str, **rules: Any) -> Any:
    """A setting with its default, the sentence of its help, and its bounds."""
    return Field(default, description=description, **rules)


class SettingsGroup(BaseModel):
    """Settings that one part of the server reads."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def is_hidden(field: FieldInfo) -> bool:
    """Whether messages and `repr` hide the value, because it is a secret or a URL that may contain a password."""
    return not field.repr or is_secret(field.annotation)


def is_secret(annotation: Any) -> bool:
    """Whether a setting of this type is a secret."""
    return annotation is SecretStr or any(map(is_secret, get_args(annotation)))


def groups_of(kind: type[SettingsGroup]) -> Mapping[str, type[SettingsGroup]]:
    """The groups of all settings by their names."""
    return {name: field.annotation for name, field in kind.model_fields.items()}  # type: ignore[misc]


def settings_of(kind: type[SettingsGroup]) -> Mapping[str, FieldInfo]:
    """The settings of all groups by their names."""
    return {name: field for group in groups_of(kind).values() for name, field in group.model_fields.items()}


def group_names(kind: type[SettingsGroup]) -> Mapping[str, str]:
    """The names of the settings, each with that of its group."""
    return {name: group for group, fields in groups_of(kind).items() for name in fields.model_fields}
