"""Tables, in a pipe, as JSON and in a narrow terminal."""

import json
import re
from io import StringIO
from typing import Any

import pytest
from peltier_client.commands.tables import show
from peltier_client.protocol.administration import TenantQuotas
from rich.console import Console

from tests.client.conftest import KEY, QUOTAS, TENANT, VERSION, adapter, alias, outlined, summary

LONG = "intents-of-customers.of-the-bank_in-every-language.with-slang-2"
WIDE: dict[str, tuple[tuple[str, ...], dict[str, Any], list[str]]] = {
    "list": (
        ("list",),
        {
            "adapters": [
                {**summary(LONG), "latest": outlined({**VERSION, "name": LONG, "preset": "unipelt-apl-central"})}
            ]
        },
        [LONG, "unipelt-apl-central", "classification"],
    ),
    "keys": (
        ("keys", "list"),
        {
            "keys": [
                {
                    **KEY,
                    "tenant": LONG,
                    "scopes": ["admin", "predict", "publish"],
                    "note": "nightly scoring of the [data] warehouse, asked for by the team of risk",
                    "revoked_at": KEY["created_at"],
                }
            ]
        },
        [LONG, "nightly scoring of the [data] warehouse, asked for by the team of risk", "abcdefgh"],
    ),
    "tenants": (
        ("tenants", "list"),
        {"tenants": [{**TENANT, "name": LONG, "quotas": {**QUOTAS, "max_stored_bytes": 2**40}}]},
        [LONG, "1,099,511,627,776"],
    ),
    "audit": (
        ("audit",),
        {
            "records": [
                {
                    "id": 1,
                    "at": VERSION["created_at"],
                    "tenant": LONG,
                    "actor": "key:abcdefgh",
                    "action": "deprecate",
                    "subject": f"{LONG}@12",
                    "detail": {"reason": "slower than the version before it, and no better on any set"},
                }
            ]
        },
        [LONG, f"deprecate {LONG}@12", "reason: slower than the version before it, and no better on any set"],
    ),
    "aliases": (
        ("alias", "sst2"),
        {"aliases": [{**alias({"1": 0.9, "2": 0.1}), "alias": LONG, "created_by": f"oidc:{LONG}"}]},
        [LONG, "version 1 (0.9), version 2 (0.1)", f"oidc:{LONG}"],
    ),
    "versions": (
        ("versions", "sst2"),
        {
            "versions": [
                outlined({**VERSION, "preset": "unipelt-apl-central", "deprecation": "slower than the one before"})
            ]
        },
        ["unipelt-apl-central", "deprecated: slower than the one before", f"{LONG}, production (0.9)"],
    ),
    "alias": (
        ("alias", "sst2", "live", "--history"),
        {"changes": [{**alias({str(number): 0.2 for number in range(1001, 1006)}), "created_by": f"oidc:{LONG}"}]},
        [f"oidc:{LONG}", "version 1005 (0.2)"],
    ),
}

# What the server answers to a command's second request.
SECOND = {"versions": {**adapter("sst2"), "aliases": {LONG: {"1": 1.0}, "production": {"1": 0.9, "2": 0.1}}}}


@pytest.mark.parametrize("name", WIDE)
def test_a_pipe_gets_whole_values(peltier, server, answer, name: str) -> None:
    """Each row of a table is one line with complete values."""
    words, body, values = WIDE[name]
    server.planned.extend(answer(200, one) for one in (body, SECOND.get(name)) if one is not None)
    lines = peltier(*words).out.splitlines()
    assert len(lines) == 2
    assert all(value in lines[1] for value in values)


@pytest.mark.parametrize("name", WIDE)
def test_what_is_a_table_is_also_one_document(peltier, server, answer, name: str) -> None:
    """`--json` prints the contents of each table as one JSON document, and nothing else."""
    words, body, _ = WIDE[name]
    server.planned.extend(answer(200, one) for one in (body, SECOND.get(name)) if one is not None)
    outcome = peltier(*words, "--json")
    assert outcome.err == ""
    key = next(iter(body))
    assert len(json.loads(outcome.out)[key]) == len(body[key])


@pytest.mark.parametrize("columns", [40, 80])
@pytest.mark.parametrize("name", WIDE)
def test_a_terminal_can_be_narrow(peltier, monkeypatch, server, answer, name, columns):
    """No line is longer than the terminal, and every word of ordinary length is complete."""
    words, body, values = WIDE[name]
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", str(columns))
    server.planned.extend(answer(200, one) for one in (body, SECOND.get(name)) if one is not None)
    shown = re.sub(r"\x1b\[[0-9;]*m", "", peltier(*words).out)
    assert max(len(line.rstrip()) for line in shown.splitlines()) <= columns
    pieces = set(shown.split())
    assert all(word in pieces for value in values for word in value.split() if len(word) <= 10)
    assert min(len(piece) for line in shown.splitlines()[1:] for piece in [line.strip()] if piece) >= 2


NAMES = ("name", "at", "digest", "count")
ROWS = [("a" * 63, "2026-11-21 10:00", "0123456789abcdef" * 4, "12"), ("short [b]name", "", "z" * 64, "1")]


def shown(width, rows=ROWS, names=NAMES):
    """The lines on a terminal of so many columns, or in a pipe."""
    console = Console(file=StringIO(), width=width, force_terminal=width is not None, color_system=None)
    show(names, rows, whole=("count",), cut=("digest",), console=console)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def test_a_pipe_gets_every_value_whole() -> None:
    """One line a row, however long it is; what looks like markup is text."""
    lines = shown(None)
    assert len(lines) == 1 + len(ROWS)
    for line, row in zip(lines[1:], ROWS, strict=True):
        assert line.split() == " ".join(row).split()


@pytest.mark.parametrize("width", [45, 60, 80, 120])
def test_a_narrow_terminal_wraps_and_cuts(width: int) -> None:
    """No line is longer than the terminal, no column narrower than a date, and a count is never cut."""
    lines = shown(width)
    assert max(map(len, lines)) <= width
    assert any("12" in line.split() for line in lines)
    assert all(word in " ".join(lines) for word in ("2026-11-21", "10:00", "name", "digest", "a" * 10))
    assert any(line.endswith("…") or "… " in line for line in lines)


SHORT = ("tenant", *(name.replace("_", " ") for name in TenantQuotas.model_fields))


@pytest.mark.parametrize(
    ("width", "names", "row"),
    [
        (110, SHORT, ("acme", *["1,000,000"] * (len(SHORT) - 1))),
        (
            70,
            ("alias", "means", "since", "by"),
            ("live", "version 1 (0.9), version 2 (0.1)", "2026-11-21 10:00", "oidc:someone@example.com"),
        ),
    ],
)
def test_a_table_that_has_room_keeps_words_whole(width, names, row):
    """Of up to 24 characters; names are wrapped between words."""
    lines = shown(width, [row], names)
    assert any(line.startswith(f"{row[0]} ") for line in lines)
    assert set(" ".join([*names, *row]).split()) <= set(" ".join(lines).split())


def test_too_many_columns_become_a_list() -> None:
    """A name and a value a line, nothing cut away; empty values have no line."""
    lines = shown(30)
    assert max(map(len, lines)) <= 30
    assert lines[0].startswith("name    aaaa")
    assert "".join(line.split()[-1] for line in lines if line).count("z") == 64
    assert sum(line.startswith("at ") for line in lines) == 1


def test_a_table_may_have_no_row():
    """Its names are shown."""
    assert shown(40, []) == ["name  at  digest  count"]
