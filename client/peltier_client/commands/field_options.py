"""Options of a command that are fields of a dataclass, so that an option's type, default and help are written once."""

import inspect
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from dataclasses import MISSING, dataclass, fields
from functools import wraps
from inspect import Parameter
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")
OptionValues = dict[str, Any]


@dataclass(frozen=True)
class FieldOptions:
    """Annotates a parameter whose options are the fields of the dataclass `model` that a `typer.Option` annotates, or
    those of them in `names`. The command gets their values by field name.

    With `given` it gets only those on the command line, and the help names the field's default, or says `unset` in its
    place. `repeated` options collect a list of values. The model's own check answers for the values of a `Literal`.
    """

    model: type
    names: Sequence[str] = ()
    given: bool = False
    unset: str | None = None
    repeated: bool = False
    panel: str | None = None

    def parameters(self) -> list[Parameter]:
        """What Typer makes the options from."""
        hints = get_type_hints(self.model, include_extras=True)
        defaults = {field.name: field.default for field in fields(self.model)}
        annotated = [name for name in defaults if get_origin(hints[name]) is Annotated]
        return [self._parameter(name, hints[name], defaults[name]) for name in self.names or annotated]

    def take(self, values: OptionValues) -> OptionValues:
        """Move the values of these options out of all `values` of a command."""
        taken = {parameter.name: values.pop(parameter.name) for parameter in self.parameters()}
        found = {name: tuple(value) if isinstance(value, list) else value for name, value in taken.items()}
        return {name: value for name, value in found.items() if value is not None} if self.given else found

    def _parameter(self, name: str, hint: Any, default: Any) -> Parameter:
        kind, option = get_args(hint)
        option = copy(option)
        option.rich_help_panel = self.panel
        value: Any = _value_type(kind)
        if self.repeated:
            value, option.help = list[value], f"{option.help} Repeat for several."
        if self.given:
            option.help = f"{option.help} {self.unset or _default_note(default)}".rstrip()
            value, default = value | None, None
        elif NoneType in get_args(kind):
            value |= None
        initial = Parameter.empty if default is MISSING else default
        return Parameter(name, Parameter.KEYWORD_ONLY, default=initial, annotation=Annotated[value, option])


def with_field_options(command: Callable[..., T]) -> Callable[..., T]:
    """`command` with the options of its `FieldOptions` in the place of the parameters that they annotate."""
    own = inspect.signature(command).parameters.values()
    groups = {parameter.name: found for parameter in own if (found := _field_options(parameter))}

    @wraps(command)
    def call(**values: Any) -> T:
        taken = {name: group.take(values) for name, group in groups.items()}
        return command(**taken, **values)

    parameters: list[Parameter] = []
    for parameter in own:
        group = groups.get(parameter.name)
        parameters += group.parameters() if group else [parameter]
    set_parameters(call, parameters)
    return call


def set_parameters(command: Callable[..., object], parameters: Iterable[Parameter]) -> None:
    """Let Typer make the options and arguments of `command` from these parameters."""
    named = [parameter.replace(kind=Parameter.KEYWORD_ONLY) for parameter in parameters]
    command.__signature__ = inspect.Signature(named)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in named}


def _field_options(parameter: Parameter) -> FieldOptions | None:
    return next((found for found in get_args(parameter.annotation) if isinstance(found, FieldOptions)), None)


def _default_note(default: Any) -> str:
    if default is None or default is MISSING or isinstance(default, bool):
        return ""
    return f"Default {', '.join(default) if isinstance(default, tuple) else default}."


def _value_type(kind: Any) -> Any:
    """The type of an option for a field of type `kind`, without None."""
    if get_origin(kind) in (Union, UnionType):
        (kind,) = (member for member in get_args(kind) if member is not NoneType)
    if get_origin(kind) is Literal:
        return str
    return list[get_args(kind)[0]] if get_origin(kind) is tuple else kind  # type: ignore[misc]
