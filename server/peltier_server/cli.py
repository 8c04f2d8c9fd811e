"""`peltier serve`. Imports torch and the rest only when it runs."""

from pathlib import Path
from typing import Annotated

import typer
from peltier_backbone.cores import wait_passively

from peltier_server.settings import load_settings

_LIMITS = "Limits"
_PROVIDER = "Identity provider"


def serve(  # noqa: PLR0913 - one flag each
    backbone: Annotated[
        str | None, typer.Option(help="Checkpoint: a directory, a hub id, or minilm; default minilm.")
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(help="Where artifacts are kept: a directory, or an s3://, gs:// or az:// URL; default .peltier."),
    ] = None,
    registry: Annotated[
        str | None,
        typer.Option(
            help="Database URL, sqlite+aiosqlite:///PATH or postgresql+asyncpg://…; default: SQLite in the store."
        ),
    ] = None,
    publish: Annotated[
        Path | None, typer.Option(help="Publish the artifacts of this directory at the first start.")
    ] = None,
    host: Annotated[
        str | None, typer.Option(help="Address to bind; any but loopback requires a key; default 127.0.0.1.")
    ] = None,
    port: Annotated[int | None, typer.Option(help="Port to bind; 0 chooses a free one; default 8000.")] = None,
    insecure: Annotated[
        bool | None, typer.Option("--insecure", help="Bind any address although there is no key.")
    ] = None,
    rate_store: Annotated[
        str | None, typer.Option(help="Where rates are counted: memory://, or redis://… for several replicas.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="Device of the backbone: auto, cpu or cuda; default auto.")] = None,
    dtype: Annotated[
        str | None, typer.Option(help="Precision of the backbone: float32 or bfloat16; default float32.")
    ] = None,
    cuda_graphs: Annotated[
        bool | None, typer.Option("--cuda-graphs", help="Replay small batches of encoders from CUDA graphs.")
    ] = None,
    threads: Annotated[
        int | None,
        typer.Option(help="CPU threads that compute; 0 is one for each core the process may use; default 0."),
    ] = None,
    undelete_seconds: Annotated[float | None, typer.Option(help="How long a deleted version can be undeleted.")] = None,
    lame_duck_seconds: Annotated[
        float | None, typer.Option(help="How long a stopping server still accepts requests while /ready is 503.")
    ] = None,
    drain_seconds: Annotated[
        float | None, typer.Option(help="How long a stopping server waits for accepted requests.")
    ] = None,
    max_batch_tokens: Annotated[
        int | None,
        typer.Option(help="Maximum cost of a batch, in tokens of the plain backbone.", rich_help_panel=_LIMITS),
    ] = None,
    max_batch_rows: Annotated[
        int | None, typer.Option(help="Maximum rows of a batch.", rich_help_panel=_LIMITS)
    ] = None,
    max_shared_batch_seconds: Annotated[
        float | None,
        typer.Option(
            help="Maximum expected time of a batch while several tenants send requests.", rich_help_panel=_LIMITS
        ),
    ] = None,
    max_batch_seconds: Annotated[
        float | None,
        typer.Option(
            help="Time after which a batch counts as stuck and its thread is replaced.", rich_help_panel=_LIMITS
        ),
    ] = None,
    max_runner_restarts: Annotated[
        int | None,
        typer.Option(help="Maximum replaced threads in a row; then the server exits.", rich_help_panel=_LIMITS),
    ] = None,
    max_queue_tokens: Annotated[
        int | None, typer.Option(help="Maximum tokens in the queue.", rich_help_panel=_LIMITS)
    ] = None,
    max_decode_rows: Annotated[
        int | None, typer.Option(help="Maximum texts and beams that are generated at once.", rich_help_panel=_LIMITS)
    ] = None,
    max_new_tokens: Annotated[
        int | None, typer.Option(help="Maximum tokens of a generated text.", rich_help_panel=_LIMITS)
    ] = None,
    max_inputs: Annotated[
        int | None, typer.Option(help="Maximum inputs of a request.", rich_help_panel=_LIMITS)
    ] = None,
    max_text_chars: Annotated[
        int | None, typer.Option(help="Maximum characters of a text that are read.", rich_help_panel=_LIMITS)
    ] = None,
    max_connections: Annotated[
        int | None, typer.Option(help="Maximum open connections.", rich_help_panel=_LIMITS)
    ] = None,
    max_pending_bytes: Annotated[
        int | None, typer.Option(help="Maximum bytes of JSON bodies in progress.", rich_help_panel=_LIMITS)
    ] = None,
    max_pending_inputs: Annotated[
        int | None, typer.Option(help="Maximum inputs in progress.", rich_help_panel=_LIMITS)
    ] = None,
    max_pending_answer_bytes: Annotated[
        int | None,
        typer.Option(
            help="Maximum bytes of answers that are being computed or sent.",
            rich_help_panel=_LIMITS,
        ),
    ] = None,
    max_answer_bytes: Annotated[
        int | None, typer.Option(help="Maximum bytes of an answer.", rich_help_panel=_LIMITS)
    ] = None,
    default_top_k: Annotated[
        int | None, typer.Option(help="Scores of an input where the request has no top_k.", rich_help_panel=_LIMITS)
    ] = None,
    max_body_bytes: Annotated[
        int | None, typer.Option(help="Maximum bytes of a JSON body.", rich_help_panel=_LIMITS)
    ] = None,
    max_artifact_bytes: Annotated[
        int | None, typer.Option(help="Maximum bytes of an artifact.", rich_help_panel=_LIMITS)
    ] = None,
    max_adapter_cost: Annotated[
        float | None,
        typer.Option(
            help="Maximum compute and memory of an adapter, as a multiple of the backbone's.", rich_help_panel=_LIMITS
        ),
    ] = None,
    max_metric_versions: Annotated[
        int | None,
        typer.Option(
            help="Maximum versions with metrics of their own; the others share one series.", rich_help_panel=_LIMITS
        ),
    ] = None,
    device_bytes: Annotated[
        int | None, typer.Option(help="Maximum bytes of adapters on the device.", rich_help_panel=_LIMITS)
    ] = None,
    host_bytes: Annotated[
        int | None, typer.Option(help="Maximum bytes of adapters cached in host memory.", rich_help_panel=_LIMITS)
    ] = None,
    max_load_wait_seconds: Annotated[
        float | None, typer.Option(help="Maximum wait for a load to begin, and again for free memory on the device.")
    ] = None,
    stall_seconds: Annotated[
        float | None,
        typer.Option(help="Maximum time a request body or an answer may make no progress.", rich_help_panel=_LIMITS),
    ] = None,
    log_format: Annotated[str | None, typer.Option(help="text, or json for one object a line; default text.")] = None,
    log_level: Annotated[
        str | None, typer.Option(help="Least level logged: debug, info, warning, error or critical; default info.")
    ] = None,
    access_log: Annotated[bool | None, typer.Option("--access-log", help="Log a line for each request.")] = None,
    oidc_issuer: Annotated[
        str | None, typer.Option(help="Issuer of accepted tokens, a URL.", rich_help_panel=_PROVIDER)
    ] = None,
    oidc_audience: Annotated[
        str | None, typer.Option(help="Audience of accepted tokens.", rich_help_panel=_PROVIDER)
    ] = None,
    oidc_jwks_url: Annotated[
        str | None, typer.Option(help="URL of the provider's public keys.", rich_help_panel=_PROVIDER)
    ] = None,
    oidc_tenant_claim: Annotated[
        str | None, typer.Option(help="Claim that names the tenant; default tenant.", rich_help_panel=_PROVIDER)
    ] = None,
    oidc_scope_claim: Annotated[
        str | None, typer.Option(help="Claim that lists the scopes; default scope.", rich_help_panel=_PROVIDER)
    ] = None,
    config: Annotated[Path | None, typer.Option(help="TOML file of settings.")] = None,
) -> None:
    """Serve one backbone and any mix of adapters over HTTP.

    Every setting is also a PELTIER_* variable and a key of the TOML file; flags come first, then variables, then the
    file. Secrets have no flag, because other users of the machine can read command lines. Once there is a key, from
    `peltier keys create` or in PELTIER_ADMIN_KEY, every route but /, /health and /ready requires one. PELTIER_SECRET
    protects the stored keys; replicas share it.
    """
    flags = {name: value for name, value in locals().items() if value is not None}
    wait_passively()
    settings = load_settings(flags)

    from peltier_server.logs.logs import configure_logging

    configure_logging(settings)

    from peltier_server.app import create_app
    from peltier_server.http.process import run

    run(create_app(settings), settings)
