"""The server that commands would call."""

from collections.abc import Iterator
from importlib.metadata import version

from peltier_client.commands.doctor.finding import Finding, Level
from peltier_client.commands.next_steps import next_step
from peltier_client.errors import ConnectionFailed, PeltierError
from peltier_client.protocol import InfoResponse
from peltier_client.synchronous.client import Client

_TIMEOUT_SECONDS = 5.0
_SUBJECT = "server"


def check_server(url: str, api_key: str | None, *, named: bool) -> Iterator[Finding]:
    """Whether it answers, is ready and has this release. It need not exist unless it was `named`."""
    with Client(url, api_key, timeout=_TIMEOUT_SECONDS, max_attempts=1) as client:
        try:
            reason = client.why_not_ready()
        except PeltierError as error:
            level: Level = "broken" if named or not isinstance(error, ConnectionFailed) else "note"
            yield Finding(subject=_SUBJECT, level=level, text=error.message, next_step=next_step(error, api_key))
            return
        if reason is not None:
            step = "wait until it has loaded, or read its log"
            yield Finding(subject=_SUBJECT, level="broken", text=f"{url} is not ready: {reason}", next_step=step)
            return
        try:
            info = client.info()
        except PeltierError as error:
            text = f"{url} is ready, and refuses to describe itself: {error.message}"
            yield Finding(subject=_SUBJECT, level="note", text=text, next_step=next_step(error, api_key))
            return
    yield from _describe(url, info)


def _describe(url: str, info: InfoResponse) -> Iterator[Finding]:
    backbone, own = info.backbone, version("peltier")
    kernels = ", ".join(f"{purpose}: {name}" for purpose, name in info.kernels.items())
    text = (
        f"{url} is ready: peltier {info.version}, {backbone.name} in {backbone.dtype} on {backbone.device} "
        f"({kernels}), {info.num_adapters} adapters"
    )
    yield Finding(subject=_SUBJECT, level="ok", text=text)
    if info.version != own:
        text = f"the server is peltier {info.version} and this is {own}"
        yield Finding(subject=_SUBJECT, level="note", text=text, next_step=f"pip install peltier=={info.version}")
    if backbone.device == "cpu" and info.kernels.get("adapters") == "torch":
        reason = info.kernels.get("torch", "because it has no native kernels")
        text = f"the server computes adapters with torch: {reason}"
        step = "run peltier doctor on its machine"
        yield Finding(subject=_SUBJECT, level="slow", text=text, next_step=step)
    for one in info.quarantined:
        text = f"{one.adapter.name}@{one.adapter.version} is in quarantine: {one.reason}"
        step = f"peltier rollback {one.adapter.name} production, or upload a version that works"
        yield Finding(subject=_SUBJECT, level="note", text=text, next_step=step)
