"""What the commands show to people."""

from collections.abc import Iterable, Sequence

import typer
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from peltier_client.protocol import (
    Adapter,
    AliasChange,
    AuditRecord,
    KeyInfo,
    Split,
    TenantInfo,
    TenantQuotas,
    UploadedVersion,
)
from peltier_client.results import Prediction, Predictions


def print_adapters(adapters: Iterable[Adapter]) -> None:
    """One line per adapter, from its newest version."""
    table = Table("name", "version", "preset", "task", "labels", "size", "published")
    for adapter in adapters:
        latest = adapter.latest
        published = f"{latest.created_at.astimezone():%Y-%m-%d %H:%M}"
        columns = (adapter.name, str(latest.version), latest.preset, latest.task.type, str(len(latest.task.labels)))
        table.add_row(*columns, _size(latest.size_bytes), published)
    Console().print(table)


def shown_split(split: Split) -> str:
    """What an alias means, in words."""
    if len(split) == 1:
        return f"version {next(iter(split))}"
    return ", ".join(f"version {number} ({share:.4g})" for number, share in split.items()) or "nothing"


def shown_live(version: UploadedVersion) -> str:
    """Which versions answer the bare name, and what the aliases mean."""
    aliases = ", ".join(f"{name}: {shown_split(split)}" for name, split in version.aliases.items())
    return "; ".join(filter(None, [shown_split(version.live), aliases]))


def print_alias_history(changes: Iterable[AliasChange]) -> None:
    """One line per change."""
    table = Table("at", "who", "means")
    for change in changes:
        at = f"{change.created_at.astimezone():%Y-%m-%d %H:%M:%S}"
        table.add_row(at, change.created_by, shown_split(change.versions))
    Console().print(table)


def print_audit(records: Iterable[AuditRecord]) -> None:
    """One line per record."""
    # Folded, because in a narrow terminal nothing of what was done may be cut off.
    table = Table(*(Column(name, overflow="fold") for name in ("at", "tenant", "who", "did", "to", "detail")))
    for record in records:
        detail = ", ".join(f"{key}: {value}" for key, value in record.detail.items())
        at = f"{record.at.astimezone():%Y-%m-%d %H:%M:%S}"
        # Text, because reasons are what people write, not rich's markup.
        table.add_row(at, record.tenant, record.actor, record.action, record.subject, Text(detail))
    Console().print(table)


def print_keys(keys: Iterable[KeyInfo]) -> None:
    """One line per key."""
    table = Table("prefix", "tenant", "scopes", "note", "made", "ends")
    for key in keys:
        made = f"{key.created_at.astimezone():%Y-%m-%d %H:%M}"
        ends = f"{key.expires_at.astimezone():%Y-%m-%d %H:%M}" if key.expires_at is not None else ""
        if key.revoked_at is not None:
            ends = f"revoked {key.revoked_at.astimezone():%Y-%m-%d %H:%M}"
        table.add_row(key.prefix, key.tenant, ", ".join(key.scopes), Text(key.note), made, ends)
    Console().print(table)


def print_tenants(tenants: Iterable[TenantInfo]) -> None:
    """One line per tenant; what is not limited stays empty."""
    table = Table("tenant", *(name.replace("_", " ") for name in TenantQuotas.model_fields))
    for tenant in tenants:
        table.add_row(tenant.name, *("" if value is None else f"{value:,.15g}" for _, value in tenant.quotas))
    Console().print(table)


def print_predictions(texts: Sequence[str], predictions: Predictions) -> None:
    """One line per text, and who answered."""
    table = Table("text", "answer", "score")
    for text, prediction in zip(texts, predictions, strict=True):
        # Text, because what users write is not rich's markup.
        table.add_row(Text(text), Text(_answer(prediction)), _score(prediction))
    console = Console()
    console.print(table)
    console.print(_provenance(predictions), highlight=False)


def print_texts(predictions: Predictions) -> None:
    """Each generated text as it is, for pipes; who wrote them on stderr."""
    for prediction in predictions:
        print(prediction.text)
    Console(stderr=True).print(_provenance(predictions), highlight=False)


def print_truncation(task: str, num_truncated: int, num_inputs: int) -> None:
    """A warning on stderr where inputs were longer than the task takes."""
    if num_truncated:
        typer.echo(
            f"warning: truncated to the length that {task} takes: {num_truncated} of {num_inputs} inputs", err=True
        )


def _provenance(predictions: Predictions) -> str:
    adapter = predictions.adapter
    return f"{adapter.name} version {adapter.version} ({adapter.preset}), {predictions.timings_ms.total:.1f} ms"


def _answer(prediction: Prediction) -> str:
    if prediction.label is not None:
        return prediction.label
    if prediction.labels is not None:
        return ", ".join(prediction.labels) or "none"
    return f"{prediction.value:.4g}" if prediction.value is not None else "?"


def _score(prediction: Prediction) -> str:
    if prediction.labels is not None and prediction.scores is not None:
        return ", ".join(f"{prediction.scores[label]:.3f}" for label in prediction.labels)
    return f"{prediction.score:.3f}" if prediction.score is not None else ""


def _size(size_bytes: int) -> str:
    return f"{size_bytes / 1024:,.0f} KiB"
