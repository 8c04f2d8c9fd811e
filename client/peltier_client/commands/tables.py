"""What commands print for people: tables that fit to a terminal, or lists where it is too narrow for a table. Pipes get
every value in full."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime

import typer
from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.table import Column, Table
from rich.text import Text

from peltier_client.errors import PeltierError
from peltier_client.exchange.results import Prediction, Predictions
from peltier_client.protocol.adapters import Adapter, AdapterSummary, UploadedVersion, VersionSummary
from peltier_client.protocol.administration import AuditRecord, KeyInfo, TenantInfo, TenantQuotas
from peltier_client.protocol.aliases import Alias, AliasChange, Split
from peltier_client.protocol.predict import Term

_GAP = 2
_PIPE_WIDTH = 1_000_000
_NARROWEST_COLUMN = len("2026-11-21")  # of wrapped values
_LONGEST_WORD = 24  # characters of a word that is not split where there is room
_MAX_SHOWN_VALUES = 4


def show(
    names: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    whole: Collection[str] = (),
    cut: Collection[str] = (),
    console: Console | None = None,
) -> None:
    """Print rows of plain text; Rich markup in them is not read.

    On a narrow terminal long values are wrapped, except in the columns `whole`, and truncated in the columns `cut`.
    """
    console = console or Console()
    if not console.is_terminal:
        console.width = _PIPE_WIDTH
    widths = _fit(names, rows, whole, cut, console.width - _GAP * (len(names) - 1))
    if widths is None:
        console.print(_list(names, rows), highlight=False)
        return
    table = Table(box=None, padding=(0, _GAP, 0, 0), pad_edge=False)
    for name, width in zip(names, widths, strict=True):
        table.add_column(Text(name, overflow="fold"), width=width, overflow="fold")
    for row in rows:
        cells = zip(names, row, strict=True)
        table.add_row(
            *(Text(cell, no_wrap=True, overflow="ellipsis") if name in cut else Text(cell) for name, cell in cells)
        )
    console.print(table, highlight=False)


def _fit(
    names: Sequence[str], rows: Sequence[Sequence[str]], whole: Collection[str], cut: Collection[str], room: int
) -> list[int] | None:
    """The widths of the columns, the widest of which are narrowed alike until all have room; None if there is too
    little. Words of up to 24 characters stay whole where there is room."""
    columns = list(zip(names, *rows, strict=True))
    wanted = [_widest(column) for column in columns]
    for longest_word in (_LONGEST_WORD, _NARROWEST_COLUMN):
        least = [
            max(
                _widest(name.split()),
                _widest(values) if name in whole else min(_widest(values), _NARROWEST_COLUMN),
                0 if name in cut else min(_widest(" ".join(values).split()), longest_word),
            )
            for name, *values in columns
        ]
        if sum(least) > room:
            continue
        for level in range(min(room, max(wanted)), 0, -1):
            widths = [min(most, max(own, level)) for most, own in zip(wanted, least, strict=True)]
            if sum(widths) <= room:
                return widths
    return None


def _widest(texts: Iterable[str]) -> int:
    return max(map(cell_len, texts), default=0)


def _list(names: Sequence[str], rows: Sequence[Sequence[str]]) -> Group:
    """Each row as lines of a name and a value, without empty values, after an empty line."""
    width = max(map(cell_len, names))
    grids: list[RenderableType] = []
    for row in rows:
        grid = Table.grid(Column(width=width), Column(overflow="fold"), padding=(0, _GAP, 0, 0))
        for name, value in zip(names, row, strict=True):
            if value:
                grid.add_row(Text(name, style="bold"), Text(value))
        grids += [grid, Text()]
    return Group(*grids[:-1])


def print_adapters(adapters: Iterable[AdapterSummary]) -> None:
    """One line per adapter, from its newest version."""
    rows = [
        (
            adapter.name,
            str(adapter.latest.version),
            adapter.latest.preset,
            adapter.latest.task.type,
            str(adapter.latest.task.num_labels),
            _size(adapter.latest.size_bytes),
            shown_minute(adapter.latest.created_at),
        )
        for adapter in adapters
    ]
    names = ("name", "version", "preset", "task", "labels", "size", "published")
    show(names, rows, whole=("version", "task", "labels", "size"))


def print_versions(adapter: Adapter, versions: Iterable[VersionSummary]) -> None:
    """One line per version, with its aliases and its share of their requests."""
    rows = [
        (
            str(version.version),
            shown_minute(version.created_at),
            version.preset,
            _size(version.size_bytes),
            version.digest.removeprefix("sha256:"),
            _state(version, adapter.live),
            ", ".join(
                _with_share(name, split, version) for name, split in adapter.aliases.items() if version.version in split
            ),
        )
        for version in versions
    ]
    names = ("version", "created", "preset", "size", "sha256", "state", "aliases")
    show(names, rows, whole=("version", "size"), cut=("sha256",))


def print_aliases(aliases: Iterable[Alias]) -> None:
    """One line per alias."""
    rows = [
        (alias.alias, shown_split(alias.versions), shown_minute(alias.created_at), alias.created_by)
        for alias in aliases
    ]
    show(("alias", "means", "since", "by"), rows)


def shown_split(split: Split) -> str:
    """The versions that an alias points to, in words."""
    if len(split) == 1:
        return f"version {next(iter(split))}"
    return ", ".join(f"version {number} ({share:.4g})" for number, share in split.items()) or "nothing"


def shown_live(version: UploadedVersion) -> str:
    """The versions behind the bare name and behind each alias."""
    aliases = ", ".join(f"{name}: {shown_split(split)}" for name, split in version.aliases.items())
    return "; ".join(filter(None, [shown_split(version.live), aliases]))


def print_alias_history(changes: Iterable[AliasChange]) -> None:
    """One line per change."""
    rows = [(_second(change.created_at), change.created_by, shown_split(change.versions)) for change in changes]
    show(("at", "who", "means"), rows, whole=("at",))


def print_audit(records: Iterable[AuditRecord]) -> None:
    """One line per record."""
    rows = [
        (
            _second(record.at),
            record.tenant,
            record.actor,
            f"{record.action} {record.subject}",
            ", ".join(f"{key}: {value}" for key, value in record.detail.items()),
        )
        for record in records
    ]
    show(("at", "tenant", "who", "did", "detail"), rows)


def print_keys(keys: Iterable[KeyInfo]) -> None:
    """One line per key."""
    rows = [
        (key.prefix, key.tenant, ", ".join(key.scopes), key.note, shown_minute(key.created_at), _shown_end(key))
        for key in keys
    ]
    show(("prefix", "tenant", "scopes", "note", "made", "ends"), rows, whole=("prefix",))


def print_tenants(tenants: Iterable[TenantInfo]) -> None:
    """One line per tenant; a quota without a limit is empty."""
    rows = [
        (tenant.name, *("" if value is None else f"{value:,.15g}" for _, value in tenant.quotas)) for tenant in tenants
    ]
    quotas = (name.replace("_", " ") for name in TenantQuotas.model_fields)
    show(("tenant", *quotas), rows)


def print_predictions(texts: Sequence[str], predictions: Predictions) -> None:
    """One line per text and then the adapter that answered; generated texts as they are, with the adapter on stderr."""
    if any(prediction.text is not None for prediction in predictions):
        for prediction in predictions:
            print(prediction.text)
        Console(stderr=True, soft_wrap=True).print(_provenance(predictions), highlight=False)
        return
    rows = [(text, _answer(found), _score(found)) for text, found in zip(texts, predictions, strict=True)]
    show(("text", "answer", "score"), rows)
    Console(soft_wrap=True).print(_provenance(predictions), highlight=False)


def print_task_answers(found: Mapping[str, Predictions | PeltierError]) -> None:
    """One line per task that answered."""
    answered = [(task, one) for task, one in found.items() if not isinstance(one, PeltierError)]
    rows = [
        (task, f"{one.adapter.version}", one[0].text if one[0].text is not None else _answer(one[0]), _score(one[0]))
        for task, one in answered
    ]
    if rows:
        show(("task", "version", "answer", "score"), rows, whole=("version",))


def print_truncation(task: str, num_truncated: int, num_inputs: int) -> None:
    """A warning on stderr if inputs were truncated."""
    if num_truncated:
        typer.echo(
            f"warning: {num_truncated} of {num_inputs} inputs exceed {task}'s length and were truncated", err=True
        )


def _provenance(predictions: Predictions) -> str:
    adapter = predictions.adapter
    return f"{adapter.name} version {adapter.version} ({adapter.preset}), {predictions.timings_ms.total:.1f} ms"


def _answer(prediction: Prediction) -> str:
    if prediction.label is not None:
        return prediction.label
    if prediction.labels is not None:
        return ", ".join(prediction.labels) or "none"
    if prediction.entities is not None:
        return ", ".join(f"{entity.label}: {entity.text}" for entity in prediction.entities) or "none"
    if prediction.answer is not None:
        return f"{prediction.answer} ({prediction.start}-{prediction.end})" if prediction.answer else "no answer"
    if prediction.embedding is not None:
        return _shown_vector(prediction.embedding)
    if prediction.terms is not None:
        return _shown_terms(prediction.terms)
    if prediction.vectors:
        return f"{len(prediction.vectors)} vectors of {len(prediction.vectors[0])} values"
    if prediction.value is not None:
        return f"{prediction.value:.4g}"
    return "" if prediction.score is not None else "?"


def _shown_vector(values: Sequence[float]) -> str:
    first = ", ".join(f"{value:.4g}" for value in values[:_MAX_SHOWN_VALUES])
    return first if len(values) <= _MAX_SHOWN_VALUES else f"{first}, … ({len(values)} values)"


def _shown_terms(terms: Sequence[Term]) -> str:
    first = ", ".join(f"{one.term} {one.weight:.3g}" for one in terms[:_MAX_SHOWN_VALUES])
    return first if len(terms) <= _MAX_SHOWN_VALUES else f"{first}, … ({len(terms)} terms)"


def _score(prediction: Prediction) -> str:
    if prediction.labels is not None and prediction.scores is not None:
        return ", ".join(f"{prediction.scores[label]:.3f}" for label in prediction.labels)
    if prediction.entities is not None:
        return ", ".join(f"{entity.score:.3f}" for entity in prediction.entities)
    return f"{prediction.score:.3f}" if prediction.score is not None else ""


def _size(size_bytes: int) -> str:
    return f"{size_bytes / 1024:,.0f} KiB"


def _state(version: VersionSummary, live: Split) -> str:
    states = [_with_share("live", live, version)] if version.version in live else []
    if version.deprecation is not None:
        states.append(f"deprecated: {version.deprecation}")
    return ", ".join(states)


def _with_share(name: str, split: Split, version: VersionSummary) -> str:
    return name if len(split) == 1 else f"{name} ({split[version.version]:.4g})"


def shown_minute(moment: datetime) -> str:
    """A moment in local time, to the minute."""
    return f"{moment.astimezone():%Y-%m-%d %H:%M}"


def _second(moment: datetime) -> str:
    return f"{moment.astimezone():%Y-%m-%d %H:%M:%S}"


def _shown_end(key: KeyInfo) -> str:
    if key.revoked_at is not None:
        return f"revoked {shown_minute(key.revoked_at)}"
    return shown_minute(key.expires_at) if key.expires_at is not None else ""
