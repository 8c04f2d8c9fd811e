"""What the groups of settings are made of."""

from typing import Annotated, Any, get_args

from pydantic import BaseModel, ConfigDict, Field, SecretStr
from pydantic.fields import FieldInfo

MIB = 1024 * 1024

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
