"""What the groups of settings are made of."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

MIB = 1024 * 1024

Count = Annotated[int, Field(ge=1)]


def setting(default: object, description: str, **rules: Any) -> Any:
    """A setting with its default, the sentence of its help, and its bounds."""
    return Field(default, description=description, **rules)


class SettingsGroup(BaseModel):
    """Settings that one part of the server reads."""

    model_config = ConfigDict(extra="forbid", frozen=True)
