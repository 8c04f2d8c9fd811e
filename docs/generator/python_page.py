"""reference/python.md: the public names of `peltier_client`, from its sources."""

import inspect
from collections.abc import Iterable, Iterator

import peltier_client
from griffe import Attribute, Class, Function, Object, load
from peltier_client.errors import PeltierError
from peltier_client.exchange import connection
from peltier_client.protocol.predict import Parameters
from pydantic import BaseModel

from docs.generator.table import table

_HEAD = """# Python client

`pip install peltier` brings the client without torch. Every name on this page is imported from `peltier_client`.
[HTTP routes](routes.md) describes the same operations without Python.
"""
_ASYNC = "\nThe same methods; await those with `async def`, and iterate over the others with `async for`.\n"
_OPTIONS = "\nThe keyword arguments of the methods above.\n"
_LINE = 100
_RESOURCES = ("Files", "Trainings")
# Events of streams, which the OpenAPI does not describe.
_STREAMED = ("TrainingEvent",)
_OPTION_CLASSES = (
    "predict.PredictOptions",
    "trainings.TrainingOptions",
    "trainings.TrainingSources",
    "administration.KeyOptions",
    "administration.QuotaOptions",
)


def python_page() -> str:
    """The page: clients, their options, results, bodies and errors."""
    package = load("peltier_client")
    assert isinstance(package, Object)
    known = {name: _final(package[name]) for name in peltier_client.__all__}
    models = {name for name in known if inspect.isclass(found := getattr(peltier_client, name)) and _is_wire(found)}
    classes = [name for name, one in known.items() if isinstance(one, Class) and name not in models]
    parts_of_clients = {f"{prefix}{name}" for prefix in ("", "Async") for name in ("Client", *_RESOURCES)}
    results = [name for name in classes if not _is_error(name) and name not in parts_of_clients]
    parts = [
        _HEAD,
        *_class(known["Client"], methods=True),
        *(text for name in _RESOURCES for text in _resource(known[name])),
        *_class(known["AsyncClient"], methods=False),
        _ASYNC,
        _block(_signature(one) for one in _public(known["AsyncClient"])),
        *(text for name in _RESOURCES for text in _async_resource(known[f"Async{name}"])),
        f"\n## Options\n{_OPTIONS}",
        *_options(package),
        "\n## Results\n",
        *(text for name in results for text in _result(known[name])),
        "\n## Bodies\n",
        *(_wire(name) for name in sorted(models)),
        f"\n## Errors\n{_text(known['PeltierError'])}\n",
        _errors(name for name in known if _is_error(name) and name != "PeltierError"),
    ]
    return "".join(parts)


def _final(one: Object) -> Object:
    return one.final_target if one.is_alias else one  # type: ignore[attr-defined]


def _is_error(name: str) -> bool:
    found = getattr(peltier_client, name)
    return inspect.isclass(found) and issubclass(found, PeltierError)


def _is_wire(found: type) -> bool:
    """Whether it is a body of the wire protocol, whose fields the page of the routes lists."""
    is_body = issubclass(found, BaseModel) and found.__module__.startswith("peltier_client.protocol")
    return is_body and found.__name__ not in _STREAMED


def _class(one: Object, *, methods: bool) -> Iterator[str]:
    assert isinstance(one, Class)
    start = _final(one.all_members["__init__"])
    yield f"\n## {one.name}\n{_text(one)}{_block([_signature(start, one.name)])}"
    for method in _public(one) if methods else ():
        yield f"\n### {one.name}.{method.name}\n{_block([_signature(method)])}{_text(method)}"


def _resource(one: Object) -> Iterator[str]:
    """An attribute of the client with methods of its own."""
    yield f"\n## {one.name}\n{_text(one)}"
    for method in _public(one):
        yield f"\n### {one.name}.{method.name}\n{_block([_signature(method)])}{_text(method)}"


def _async_resource(one: Object) -> Iterator[str]:
    yield f"\n### {one.name}\n{_text(one)}{_block(_signature(method) for method in _public(one))}"


def _result(one: Object) -> Iterator[str]:
    """A class that methods answer: its fields, properties and methods."""
    yield f"\n### {one.name}\n{_text(one)}"
    lines = [f"{name}: {field.annotation}" for name, field in _fields(one)]
    lines += [_signature(member) for member in _public(one)]
    if lines:
        yield _block(lines)


def _fields(one: Object) -> Iterator[tuple[str, Attribute]]:
    for name, member in one.members.items():
        if isinstance(member, Attribute) and not name.startswith("_"):
            yield name, member


def _public(one: Object) -> Iterator[Function]:
    """Its own methods, and those of its bases in this package."""
    for name, member in one.all_members.items():
        found = _final(member)
        if isinstance(found, Function) and not name.startswith("_"):
            yield found


def _options(package: Object) -> Iterator[str]:
    described = {name: field.description or "" for name, field in Parameters.model_fields.items()}
    for path in _OPTION_CLASSES:
        one = package[f"resources.{path}"]
        rows = [(f"`{name}`", f"`{field.annotation}`", described.get(name, "")) for name, field in _fields(one)]
        header = ("option", "type", "description") if any(row[2] for row in rows) else ("option", "type")
        yield f"\n### {one.name}\n{_text(one)}\n{table(header, [row[: len(header)] for row in rows])}\n"


def _wire(name: str) -> str:
    text = inspect.getdoc(getattr(peltier_client, name)) or ""
    return f"\n### {name}\n\n{text}\n\n[Its fields](routes.md#{name.lower()})\n"


def _errors(names: Iterable[str]) -> str:
    found = [getattr(peltier_client, name) for name in names]
    rows = [
        (f"`{one.__name__}`", f"`{one.__base__.__name__}`", str(one.status), f"`{one.code}`", inspect.getdoc(one) or "")
        for one in sorted(found, key=lambda one: (one.status, one.__name__))
    ]
    return table(("error", "base", "status", "code", "meaning"), rows) + "\n"


def _text(one: Object) -> str:
    return f"\n{one.docstring.value}\n" if one.docstring else ""


def _block(lines: Iterable[str]) -> str:
    return "\n```py\n" + "\n".join(lines) + "\n```\n"


def _signature(function: Object, name: str | None = None) -> str:
    """The head of a function, on one line if it fits."""
    assert isinstance(function, Function)
    if "property" in function.labels:
        return f"{function.name}: {function.returns}"
    head = ("async def " if "async" in function.labels else "") + (name or function.name)
    tail = f" -> {function.returns}" if function.returns and name is None else ""
    arguments = list(_arguments(function))
    line = f"{head}({', '.join(arguments)}){tail}"
    return line if len(line) <= _LINE else f"{head}(\n    " + ",\n    ".join(arguments) + f",\n){tail}"


def _arguments(function: Function) -> Iterator[str]:
    starred = False
    for one in function.parameters:
        if one.name == "self":
            continue
        kind = one.kind.value if one.kind else ""
        if kind == "keyword-only" and not starred:
            starred = True
            yield "*"
        stars = {"variadic positional": "*", "variadic keyword": "**"}.get(kind, "")
        starred = starred or stars == "*"
        default = f" = {_value(str(one.default))}" if one.default is not None and not stars else ""
        yield f"{stars}{one.name}: {one.annotation}{default}"


def _value(default: str) -> str:
    """A default as the value of the constant that the sources name."""
    return repr(getattr(connection, default)) if hasattr(connection, default) else default
