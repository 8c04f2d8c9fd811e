"""reference/routes.md: every HTTP route with its parameters, bodies and errors, from the OpenAPI document."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from peltier_server.app import create_app
from peltier_server.extensions.settings import Settings

from docs.generator.table import Schema, default_of, table, type_of

_HEAD = """# Routes

A running server shows the same content, with examples to try, at `/docs` and `/openapi.json`. `/console` is a
page for people, and `/` leads browsers there; programs read links at `/`.
[Errors](errors.md) describes the error codes. **Key** is the scope that the API key needs. `/health`, `/ready`, `/`
and the files of `/console` need no key, and on a server without keys no route needs one.

A task reference (`{task}`, `model`) is `name`, `name@3` (a version), `name@canary` (an alias), or `tenant:name…`
(another tenant's public adapter). Answers of predictions carry the headers `x-request-id`, `x-adapter-version`,
`x-adapter-digest`, `x-adapter-tier` (`device`, `host` or `store`), `x-queue-time-ms`, `x-compute-time-ms` and, if
inputs were truncated, `x-truncated-inputs`. Answers to an authenticated caller carry its tenant in `x-tenant`.
"""
_TITLES = {"openai": "OpenAI's protocol", "predict": "Predictions"}


def routes_page() -> str:
    """The page: routes by their tag, then every body that they take or answer."""
    document = create_app(Settings()).openapi()
    routes = [(path, method, route) for path, methods in document["paths"].items() for method, route in methods.items()]
    tags = dict.fromkeys(route["tags"][0] for _, _, route in routes)
    parts = [_HEAD]
    for tag in tags:
        parts.append(f"\n## {_TITLES.get(tag, tag.capitalize())}\n")
        parts += [_route(path, method, route) for path, method, route in routes if route["tags"][0] == tag]
    parts.append("\n## Bodies\n")
    parts += [_body(name, schema) for name, schema in sorted(document["components"]["schemas"].items())]
    return "".join(parts)


def _route(path: str, method: str, route: Mapping[str, Any]) -> str:
    lines = [f"\n### {method.upper()} {path}\n", f"{_sentence(route)}\n", *_facts(route)]
    parameters = [_parameter(one) for one in route.get("parameters", ()) if one["in"] != "path"]
    if parameters:
        lines += ["", table(("parameter", "in", "type", "default", "description"), parameters)]
    return "\n".join(lines) + "\n"


def _facts(route: Mapping[str, Any]) -> Iterator[str]:
    scopes = [scope for security in route.get("security", ()) for names in security.values() for scope in names]
    yield f"- Key: {', '.join(f'`{scope}`' for scope in scopes) or 'none'}"
    if body := route.get("requestBody"):
        yield f"- Body: {_content(body['content'])}"
    for status, answer in route["responses"].items():
        if status.startswith("2"):
            yield f"- {status}: {_content(answer.get('content', {}))}"
    codes = [
        (status, code)
        for status, answer in route["responses"].items()
        for code in re.findall(r"`(\w+)`:", answer["description"])
        if not status.startswith("2")
    ]
    if codes:
        yield f"- Errors: {', '.join(f'{status} `{code}`' for status, code in sorted(codes))}"


def _content(content: Mapping[str, Any]) -> str:
    shown = [
        type_of(one["schema"]) if kind == "application/json" else f"{_known(one.get('schema', {}))}`{kind}`"
        for kind, one in content.items()
    ]
    return ", or ".join(shown) or "no body"


def _known(schema: Schema) -> str:
    return f"{type_of(schema)} as " if "$ref" in schema else ""


def _sentence(route: Mapping[str, Any]) -> str:
    return str(route.get("description") or f"{route['summary']}.").replace("\n", " ").replace("  ", " ")


def _parameter(one: Mapping[str, Any]) -> tuple[str, ...]:
    schema = one["schema"]
    default = "required" if one.get("required") else default_of(schema)
    return f"`{one['name']}`", one["in"], type_of(schema), default, one.get("description", "")


def _body(name: str, schema: Schema) -> str:
    required = schema.get("required", ())
    rows = [
        (
            f"`{field}`",
            type_of(one),
            "required" if field in required else default_of(one) if "$ref" not in one else "",
            one.get("description", ""),
        )
        for field, one in schema.get("properties", {}).items()
    ]
    described = f"\n{schema['description']}\n".replace("\n\n", "\n") if schema.get("description") else ""
    return f"\n### {name}\n{described}\n{table(('field', 'type', 'default', 'description'), rows)}\n"
