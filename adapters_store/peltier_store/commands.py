"""`peltier store`: back up, restore, check and clean a store, also while servers use it."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Annotated, TypeVar

import typer
from peltier_adapters.commands import JsonOption

from peltier_store.backup import BackupSummary, export_store, import_store, read_backup, require_room
from peltier_store.blobs.blobs import Blobs
from peltier_store.garbage import Collected, Collector
from peltier_store.location import StoreLocation, require_not_foreign, require_own
from peltier_store.registry.extensions.registry import Registry
from peltier_store.verification import VerificationReport, verify_store

Result = TypeVar("Result")
_ACTOR = "peltier store"
_MAX_SHOWN_ORPHANS = 20
_MAX_GRACE_SECONDS = 10 * 366 * 24 * 3600

StoreUrl = Annotated[
    str, typer.Option(envvar="PELTIER_STORE", help="Directory, or s3://, gs:// or az:// URL, as for peltier serve.")
]
RegistryUrl = Annotated[
    str, typer.Option(envvar="PELTIER_REGISTRY", help="sqlite+aiosqlite:///PATH or postgresql+asyncpg://…")
]
# No default: with a shorter grace period than the server's, it would purge what the server can still undelete.
Grace = Annotated[
    float | None,
    typer.Option(
        min=0,
        max=_MAX_GRACE_SECONDS,
        envvar="PELTIER_UNDELETE_SECONDS",
        help="Purge versions that were deleted longer ago than this, as peltier serve does. Default: none.",
    ),
]

app = typer.Typer(
    add_completion=False, no_args_is_help=True, help="Back up, restore, check and clean a server's store."
)


@app.command("export")
def export(
    output: Annotated[Path, typer.Argument(help="The backup to write, *.tar; it must not exist.")],
    store: StoreUrl = ".peltier",
    registry: RegistryUrl = "",
    json_output: JsonOption = False,
) -> None:
    """Write a backup of everything: tenants, keys (as digests), adapters, versions, aliases, audit log and bytes."""
    location = StoreLocation.of(store, registry).existing()
    summary = _run(location, lambda opened, blobs: export_store(opened, blobs, output), read_only=True)
    _print_summary(f"exported to {output}", summary, json_output)


@app.command("import")
def import_(
    backup: Annotated[Path, typer.Argument(help="A backup that `peltier store export` wrote.")],
    store: StoreUrl = ".peltier",
    registry: RegistryUrl = "",
    json_output: JsonOption = False,
) -> None:
    """Restore a backup into an empty registry and blob store. If it fails, the registry stays empty."""
    location = StoreLocation.of(store, registry)
    # Opening a location creates the store, which a refused import must not leave behind.
    with read_backup(backup) as verified:
        if not isinstance(location.blobs, Path) or location.blobs.is_dir():
            asyncio.run(require_room(Blobs.open(location.blobs, read_only=True), verified))
        summary = _run(location, lambda opened, blobs: import_store(opened, blobs, verified))
    _print_summary(f"imported from {backup}", summary, json_output)


@app.command("verify")
def verify(store: StoreUrl = ".peltier", registry: RegistryUrl = "", json_output: JsonOption = False) -> None:
    """Check the bytes of every version. Exit status 1 if something is wrong."""
    report = _run(StoreLocation.of(store, registry).existing(), verify_store, read_only=True)
    if json_output:
        print(json.dumps(asdict(report), default=str))
    else:
        _print_report(report)
    if report.problems:
        raise typer.Exit(1)


@app.command("gc")
def gc(
    store: StoreUrl = ".peltier",
    registry: RegistryUrl = "",
    undelete_seconds: Grace = None,
    json_output: JsonOption = False,
) -> None:
    """Delete blobs that no version needs. With --undelete-seconds, first purge versions deleted longer ago."""

    async def collect(opened: Registry, blobs: Blobs) -> Collected:
        await require_own(opened, blobs)
        if undelete_seconds is not None:
            await opened.purge(timedelta(seconds=undelete_seconds), actor=_ACTOR)
        return await Collector(opened, blobs).run()

    collected = _run(StoreLocation.of(store, registry).existing(), collect)
    if json_output:
        print(json.dumps(asdict(collected)))
        return
    print(f"deleted {collected.num_deleted} blobs ({collected.deleted_bytes:,} bytes); {collected.num_kept} are kept")
    if collected.num_partial_files:
        print(f"removed {collected.num_partial_files} partial files of interrupted uploads")
    if collected.num_failed:
        print(f"{collected.num_failed} blobs could not be deleted; uploads of the same bytes are refused for an hour")


@app.command("migrate")
def migrate(store: StoreUrl = ".peltier", registry: RegistryUrl = "", json_output: JsonOption = False) -> None:
    """Create the registry, or upgrade its schema to that of this release, as the first start of a server does."""

    async def run(url: str) -> str | None:
        opened = await Registry.open(url)
        try:
            return await opened.schema()
        finally:
            await opened.close()

    schema = asyncio.run(run(StoreLocation.of(store, registry).registry))
    print(json.dumps({"schema": schema}) if json_output else f"the registry has the schema of this release, {schema}")


def _run(
    location: StoreLocation, work: Callable[[Registry, Blobs], Awaitable[Result]], *, read_only: bool = False
) -> Result:
    """The result of `work` on a store, which `read_only` leaves as it is."""

    async def run() -> Result:
        blobs = await asyncio.to_thread(Blobs.open, location.blobs, read_only=read_only)
        registry = await Registry.open(location.registry, migrate=not read_only)
        try:
            if read_only:
                await require_not_foreign(registry, blobs)
            return await work(registry, blobs)
        finally:
            await registry.close()

    return asyncio.run(run())


def _print_summary(done: str, summary: BackupSummary, json_output: bool) -> None:
    if json_output:
        print(summary.model_dump_json())
        return
    rows = ", ".join(f"{count} {table}" for table, count in sorted(summary.num_rows.items()))
    print(f"{done}: {rows}; {summary.num_blobs} blobs of {summary.blob_bytes:,} bytes")


def _print_report(report: VerificationReport) -> None:
    for problem in report.problems:
        print(problem)
    for orphan in report.orphans[:_MAX_SHOWN_ORPHANS]:
        print(f"no version needs {orphan.digest} ({orphan.size_bytes:,} bytes, {orphan.modified_at:%Y-%m-%d})")
    if report.orphans:
        total = sum(orphan.size_bytes for orphan in report.orphans)
        print(f"{len(report.orphans)} orphans of {total:,} bytes, which `peltier store gc` deletes")
    print(
        f"{report.num_versions} versions, {report.num_blobs} blobs of {report.blob_bytes:,} bytes: "
        f"{f'{len(report.problems)} problems' if report.problems else 'all as recorded'}"
    )
