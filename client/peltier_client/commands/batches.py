"""`peltier batches`: files of requests that the server answers in the background."""

import gzip
import json as json_lines
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, cast, get_args

import typer

from peltier_client.commands.arguments import ApiKey, Json, Result, Url, connect, print_result, url_option
from peltier_client.commands.tables import show, shown_minute
from peltier_client.errors import InvalidInput
from peltier_client.exchange.connection import DEFAULT_URL
from peltier_client.protocol.batches import Batch, BatchEndpoint
from peltier_client.synchronous import Client

_MAX_LINE_BYTES = 2**21
_NAME_WIDTH = len("endpoint")


def _check_folder(output: Path | None) -> Path | None:
    """Refuses an output in a folder that does not exist, before anything is sent."""
    if output is not None and (output.is_dir() or not output.parent.is_dir()):
        raise typer.BadParameter(f"{output} must be a file in a folder that exists")
    return output


FileArgument = Annotated[
    Path, typer.Argument(metavar="FILE", help="Requests, .jsonl (.gz): custom_id, method, url and body in each line.")
]
IdArgument = Annotated[str, typer.Argument(metavar="ID", help="The id of the batch, batch_….")]
OutputOption = Annotated[
    Path | None,
    typer.Option(
        "--output",
        callback=_check_folder,
        help="File for the answers, and the errors after them. Default: standard output.",
    ),
]
WaitOption = Annotated[bool, typer.Option("--wait/--no-wait", help="Wait for the answers.")]


def run(  # noqa: PLR0913 - each is a word of the command line
    file: FileArgument,
    output: OutputOption = None,
    wait: WaitOption = True,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
    json: Json = False,
) -> None:
    """Send a file of requests to one endpoint, and write the answers. Ctrl-C leaves the batch running."""
    endpoint = _endpoint(file)
    with connect(url, api_key) as client:
        batch = client.batches.create(client.files.create(file, purpose="batch").id, endpoint)
        if wait:
            _finish(client, batch.id, output, url, json=json)
        else:
            print_result(batch, batch.id, json=json)


def wait_for(
    batch_id: IdArgument, output: OutputOption = None, url: Url = DEFAULT_URL, api_key: ApiKey = None,
    json: Json = False,
) -> None:  # fmt: skip
    """Wait until a batch has ended, and write its answers."""
    with connect(url, api_key) as client:
        _finish(client, batch_id, output, url, json=json)


def list_batches(client: Client) -> Result:
    """List the batches, newest first."""
    found = list(client.batches.list())
    none = "no batches; begin one with: peltier batches run FILE"
    return {"batches": found}, (lambda: _print_batches(found)) if found else none


def show_batch(client: Client, batch_id: IdArgument) -> Result:
    """Show one batch: its status, requests and files."""
    batch = client.batches.get(batch_id)
    return batch, "\n".join(_lines(batch))


def cancel(client: Client, batch_id: IdArgument) -> Result:
    """Cancel a batch; what it has computed stays in its files."""
    batch = client.batches.cancel(batch_id)
    return batch, f"{batch.id} is {batch.status}"


def _endpoint(file: Path) -> BatchEndpoint:
    """The endpoint of the first request, which is that of all. Empty lines before it are passed over, as by the
    server."""
    with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as lines:
        numbered = enumerate(iter(lambda: lines.readline(_MAX_LINE_BYTES), b""), 1)
        number, first = next((one for one in numbered if one[1].strip()), (1, b""))
    where = f"{file}, line {number}"
    try:
        url = json_lines.loads(first)["url"]
    except (ValueError, KeyError, TypeError):
        raise InvalidInput(f"{where}: it must be a JSON object with custom_id, method, url and body") from None
    if url not in get_args(BatchEndpoint):
        raise InvalidInput(f"{where}: url is {url!r}; it must be one of {', '.join(get_args(BatchEndpoint))}")
    return cast(BatchEndpoint, url)


def _finish(client: Client, batch_id: str, output: Path | None, url: str, *, json: bool) -> None:
    """Wait, write the answers, and end with status 1 if there are errors."""
    try:
        batch = client.batches.wait(batch_id, on_progress=_Progress())
    except KeyboardInterrupt:
        command = f"peltier batches wait {batch_id}{url_option(url)}"
        typer.echo(f"the batch goes on; get its answers with: {command}", err=True)
        raise
    results = [client.files.content(one) for one in (batch.output_file_id, batch.error_file_id) if one is not None]
    if output is not None:
        output.write_bytes(b"".join(results))
    elif not json:
        typer.echo(b"".join(results), nl=False)
    if json:
        print_result(batch, "", json=True)
    if reason := _failure(batch):
        typer.echo(f"error: {reason}", err=True)
        raise typer.Exit(1)


def _failure(batch: Batch) -> str | None:
    """What went wrong with a batch that has ended; None if all of its requests have answers."""
    counts = batch.request_counts
    if batch.status != "completed":
        reasons = "; ".join(error.message for error in batch.errors.data) if batch.errors is not None else ""
        ended = "was cancelled" if batch.status == "cancelled" else batch.status
        return f"batch {batch.id} {ended}" + (f": {reasons}" if reasons else "")
    if counts.failed:
        return f"{counts.failed} of {counts.total} requests of batch {batch.id} failed; their errors follow the answers"
    return None


class _Progress:
    """Prints on stderr how far a batch is, when that has changed."""

    def __init__(self) -> None:
        self._last = ""

    def __call__(self, batch: Batch) -> None:
        line = "  ".join(filter(None, (batch.id, batch.status, _shown_counts(batch))))
        if line != self._last:
            typer.echo(line, err=True)
        self._last = line


def _shown_counts(batch: Batch) -> str:
    counts = batch.request_counts
    failed = f", {counts.failed} failed" if counts.failed else ""
    return f"{counts.completed} of {counts.total} answered{failed}" if counts.total else ""


def _print_batches(found: Iterable[Batch]) -> None:
    """One line per batch."""
    rows = [
        (batch.id, batch.endpoint, batch.status, _shown_counts(batch), _shown_moment(batch.created_at))
        for batch in found
    ]
    show(("id", "endpoint", "status", "requests", "created"), rows, whole=("id", "endpoint", "status"))


def _lines(batch: Batch) -> Iterator[str]:
    """Everything about one batch, a line each."""
    values = {
        "batch": batch.id,
        "endpoint": batch.endpoint,
        "status": batch.status,
        "requests": _shown_counts(batch),
        "input": batch.input_file_id,
        "answers": batch.output_file_id,
        "errors": batch.error_file_id,
        "created": _shown_moment(batch.created_at),
        "expires": _shown_moment(batch.expires_at),
    }
    yield from (f"{name:{_NAME_WIDTH}}  {value}" for name, value in values.items() if value)
    yield from (error.message for error in (batch.errors.data if batch.errors is not None else ()))


def _shown_moment(seconds: int) -> str:
    return shown_minute(datetime.fromtimestamp(seconds, UTC))
