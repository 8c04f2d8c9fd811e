"""What commands print for people. Tables fit to a terminal: with full columns, narrower columns, or as a list. Pipes
get every value in full."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice

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
_MAX_WORD_LEN = 24

CellTexts = Sequence[str]
# A moment is wrapped between its date and its time.
_DATE = len("2026-11-21")
_MAX_SHOWN_VALUES = 4


@dataclass(frozen=True)
class Heading:
    """A column. `floor` is the minimum width to wrap its values to; None keeps each on one line. With `cut`, values are
    truncated with an ellipsis instead of wrapped."""

    name: str
    floor: int | None = None
    cut: bool = False


def show(headings: Sequence[Heading], rows: Sequence[CellTexts], console: Console | None = None) -> None:
    """Print rows of plain text; Rich markup in them is not read."""
    console = console or Console()
    if not console.is_terminal:
        console.width = _PIPE_WIDTH
    widths = fit(headings, rows, console.width)
    console.print(_list(headings, rows) if widths is None else _table(headings, rows, widths), highlight=False)


def fit(headings: Sequence[Heading], rows: Sequence[CellTexts], width: int) -> list[int] | None:
    """The width of each column so that all fit into `width`; None if a column would be below its floor."""
    columns = [[row[number] for row in rows] for number in range(len(headings))]
    wanted = [_widest([heading.name, *values]) for heading, values in zip(headings, columns, strict=True)]
    room = width - _GAP * (len(headings) - 1)
    if sum(wanted) <= room:
        return wanted
    # Keep words whole if there is room.
    for longest_word in (_MAX_WORD_LEN, 0):
        floors = [_floor(*column, longest_word) for column in zip(headings, columns, strict=True)]
        if sum(floors) <= room:
            return _share(floors, wanted, room - sum(floors))
    return None


def _floor(heading: Heading, values: Sequence[str], longest_word: int) -> int:
    least = _widest(values)
    if heading.floor is not None:
        words = 0 if heading.cut else _widest([word for value in values for word in value.split()])
        least = min(least, max(heading.floor, min(words, longest_word)))
    return max(least, _widest(heading.name.split()))


def _widest(texts: Sequence[str]) -> int:
    return max(map(cell_len, texts), default=0)


def _share(floors: Sequence[int], wanted: Sequence[int], room: int) -> list[int]:
    """Share the room above the floors equally, up to what each column wants."""
    widths = list(floors)
    by_need = sorted(range(len(floors)), key=lambda number: wanted[number] - floors[number])
    for place, number in enumerate(by_need):
        given = min(wanted[number] - floors[number], room // (len(floors) - place))
        widths[number] += given
        room -= given
    return widths


def _table(headings: Sequence[Heading], rows: Sequence[CellTexts], widths: Sequence[int]) -> Table:
    columns = [
        Column(heading.name, width=width, no_wrap=heading.cut, overflow="ellipsis" if heading.cut else "fold")
        for heading, width in zip(headings, widths, strict=True)
    ]
    for column in columns:
        # Headings wrap even if their values are truncated.
        column.header = Text(str(column.header), no_wrap=False, overflow="fold")
    table = Table(*columns, box=None, padding=(0, _GAP, 0, 0), pad_edge=False)
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def _list(headings: Sequence[Heading], rows: Sequence[CellTexts]) -> RenderableType:
    """Each row as lines of a name and a value, without empty values."""
    blocks: list[RenderableType] = []
    width = max(cell_len(heading.name) for heading in headings)
    for row in rows:
        grid = Table.grid(Column(width=width), Column(overflow="fold"), padding=(0, _GAP, 0, 0))
        for heading, value in zip(headings, row, strict=True):
            if value:
                grid.add_row(Text(heading.name, style="bold"), Text(value))
        blocks += [Text(), grid]
    return Group(*islice(blocks, 1, None))


def print_adapters(adapters: Iterable[AdapterSummary]) -> None:
    """One line per adapter, from its newest version."""
    headings = ("version", "preset", "task", "labels", "size", "published")
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
    floors = (None, 12, None, None, None, _DATE)
    show([Heading("name", 12), *map(Heading, headings, floors)], rows)


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
    headings = [Heading("version"), Heading("created", _DATE), Heading("preset", 9), Heading("size")]
    show([*headings, Heading("sha256", 10, cut=True), Heading("state", 12), Heading("aliases", 12)], rows)


def print_aliases(aliases: Iterable[Alias]) -> None:
    """One line per alias."""
    rows = [
        (alias.alias, shown_split(alias.versions), shown_minute(alias.created_at), alias.created_by)
        for alias in aliases
    ]
    show([Heading("alias", 12), Heading("means", 16), Heading("since", _DATE), Heading("by", 12)], rows)


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
    show([Heading("at"), Heading("who", 12), Heading("means", 24)], rows)


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
    headings = [Heading("at", _DATE), Heading("tenant", 12), Heading("who", 12), Heading("did", 16)]
    show([*headings, Heading("detail", 20)], rows)


def print_keys(keys: Iterable[KeyInfo]) -> None:
    """One line per key."""
    rows = [
        (key.prefix, key.tenant, ", ".join(key.scopes), key.note, shown_minute(key.created_at), _shown_end(key))
        for key in keys
    ]
    headings = [Heading("prefix"), Heading("tenant", 12), Heading("scopes", 8), Heading("note", 16)]
    show([*headings, Heading("made", _DATE), Heading("ends", _DATE)], rows)


def print_tenants(tenants: Iterable[TenantInfo]) -> None:
    """One line per tenant; a quota without a limit is empty."""
    rows = [
        (tenant.name, *("" if value is None else f"{value:,.15g}" for _, value in tenant.quotas)) for tenant in tenants
    ]
    quotas = (Heading(name.replace("_", " ")) for name in TenantQuotas.model_fields)
    show([Heading("tenant", 12), *quotas], rows)


def print_predictions(texts: Sequence[str], predictions: Predictions) -> None:
    """One line per text and then the adapter that answered; generated texts as they are, with the adapter on stderr."""
    if any(prediction.text is not None for prediction in predictions):
        for prediction in predictions:
            print(prediction.text)
        Console(stderr=True, soft_wrap=True).print(_provenance(predictions), highlight=False)
        return
    rows = [(text, _answer(found), _score(found)) for text, found in zip(texts, predictions, strict=True)]
    show([Heading("text", 24), Heading("answer", 16), Heading("score", 12)], rows)
    Console(soft_wrap=True).print(_provenance(predictions), highlight=False)


def print_task_answers(found: Mapping[str, Predictions | PeltierError]) -> None:
    """One line per task that answered."""
    answered = [(task, one) for task, one in found.items() if not isinstance(one, PeltierError)]
    rows = [
        (task, f"{one.adapter.version}", one[0].text if one[0].text is not None else _answer(one[0]), _score(one[0]))
        for task, one in answered
    ]
    if rows:
        show([Heading("task", 16), Heading("version"), Heading("answer", 16), Heading("score", 12)], rows)


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
