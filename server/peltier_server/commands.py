"""`peltier serve`. Imports torch and the rest only when it runs."""

from pathlib import Path
from typing import Annotated

import typer
from peltier_backbone.cores import wait_passively

from peltier_server.settings import load_settings

_LIMITS = "Limits"
_PROVIDER = "Identity provider"


def serve(  # noqa: PLR0913 - one flag each
    backbone: Annotated[str | None, typer.Option(help="A directory, a hub id, or 'minilm' (the default).")] = None,
    store: Annotated[
        str | None, typer.Option(help="Directory, or s3://, gs:// or az:// URL; default .peltier.")
    ] = None,
    registry: Annotated[
        str | None,
        typer.Option(help="sqlite+aiosqlite:///PATH or postgresql+asyncpg://…; default SQLite in the store."),
    ] = None,
    publish: Annotated[Path | None, typer.Option(help="Directory of artifacts to publish at the first start.")] = None,
    host: Annotated[str | None, typer.Option(help="Address to bind; other than loopback wants a key.")] = None,
    port: Annotated[int | None, typer.Option(help="Port; 0 chooses a free one; default 8000.")] = None,
    insecure: Annotated[
        bool | None, typer.Option("--insecure", help="Let anyone in from anywhere while there is no key.")
    ] = None,
    rate_store: Annotated[str | None, typer.Option(help="memory://, or redis://… that replicas share.")] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu or cuda; default auto.")] = None,
    dtype: Annotated[str | None, typer.Option(help="float32 or bfloat16; default float32.")] = None,
    cuda_graphs: Annotated[
        bool | None, typer.Option("--cuda-graphs", help="Replay small batches of encoders from CUDA graphs.")
    ] = None,
    threads: Annotated[int | None, typer.Option(help="CPU threads of the backbone; default all it may use.")] = None,
    undelete_seconds: Annotated[float | None, typer.Option(help="How long a deletion can be undone.")] = None,
    lame_duck_seconds: Annotated[
        float | None, typer.Option(help="How long a stop still takes requests, so that balancers notice.")
    ] = None,
    drain_seconds: Annotated[float | None, typer.Option(help="How long a stop waits for accepted requests.")] = None,
    max_batch_tokens: Annotated[
        int | None, typer.Option(help="Tokens of one batch at most.", rich_help_panel=_LIMITS)
    ] = None,
    max_batch_rows: Annotated[
        int | None, typer.Option(help="Rows of one batch at most.", rich_help_panel=_LIMITS)
    ] = None,
    max_shared_batch_seconds: Annotated[
        float | None,
        typer.Option(help="How long a batch should take at most while several tenants ask.", rich_help_panel=_LIMITS),
    ] = None,
    max_batch_seconds: Annotated[
        float | None,
        typer.Option(help="A batch that takes longer is stuck, and its runner replaced.", rich_help_panel=_LIMITS),
    ] = None,
    max_runner_restarts: Annotated[
        int | None,
        typer.Option(help="Runners replaced in a row at most; then the server ends.", rich_help_panel=_LIMITS),
    ] = None,
    max_queue_tokens: Annotated[
        int | None, typer.Option(help="Tokens that may wait at most.", rich_help_panel=_LIMITS)
    ] = None,
    max_decode_rows: Annotated[
        int | None, typer.Option(help="Texts that are generated at once at most.", rich_help_panel=_LIMITS)
    ] = None,
    max_new_tokens: Annotated[
        int | None, typer.Option(help="Tokens of a generated text at most.", rich_help_panel=_LIMITS)
    ] = None,
    max_inputs: Annotated[
        int | None, typer.Option(help="Inputs of one request at most.", rich_help_panel=_LIMITS)
    ] = None,
    max_text_chars: Annotated[
        int | None, typer.Option(help="Characters of one text that are read at most.", rich_help_panel=_LIMITS)
    ] = None,
    max_connections: Annotated[
        int | None, typer.Option(help="Connections open at most.", rich_help_panel=_LIMITS)
    ] = None,
    max_pending_bytes: Annotated[
        int | None, typer.Option(help="Bytes of JSON bodies in progress at most.", rich_help_panel=_LIMITS)
    ] = None,
    max_pending_inputs: Annotated[
        int | None, typer.Option(help="Inputs in progress at most.", rich_help_panel=_LIMITS)
    ] = None,
    max_pending_answer_bytes: Annotated[
        int | None,
        typer.Option(
            help="Bytes of answers at most that are computed, or that callers have not taken yet.",
            rich_help_panel=_LIMITS,
        ),
    ] = None,
    max_answer_bytes: Annotated[
        int | None, typer.Option(help="Bytes of one answer at most.", rich_help_panel=_LIMITS)
    ] = None,
    default_top_k: Annotated[
        int | None, typer.Option(help="Scores of an input where top_k is not given.", rich_help_panel=_LIMITS)
    ] = None,
    max_body_bytes: Annotated[
        int | None, typer.Option(help="Bytes of a JSON body at most.", rich_help_panel=_LIMITS)
    ] = None,
    max_artifact_bytes: Annotated[
        int | None, typer.Option(help="Bytes of an uploaded artifact at most.", rich_help_panel=_LIMITS)
    ] = None,
    max_adapter_cost: Annotated[
        float | None,
        typer.Option(
            help="What an adapter may compute and hold, in multiples of the backbone's own.", rich_help_panel=_LIMITS
        ),
    ] = None,
    max_metric_versions: Annotated[
        int | None,
        typer.Option(
            help="Versions with series of their own in the metrics at most; the rest is one.", rich_help_panel=_LIMITS
        ),
    ] = None,
    device_bytes: Annotated[
        int | None, typer.Option(help="Bytes of adapters on the device at most.", rich_help_panel=_LIMITS)
    ] = None,
    host_bytes: Annotated[
        int | None, typer.Option(help="Bytes of adapters in memory at most.", rich_help_panel=_LIMITS)
    ] = None,
    max_load_wait_seconds: Annotated[
        float | None, typer.Option(help="How long a load waits for its turn at the store, and again for room.")
    ] = None,
    stall_seconds: Annotated[
        float | None, typer.Option(help="How long a body or an answer may stand still.", rich_help_panel=_LIMITS)
    ] = None,
    log_format: Annotated[str | None, typer.Option(help="text, or json with one object a line; default text.")] = None,
    log_level: Annotated[
        str | None, typer.Option(help="debug, info, warning, error or critical; default info.")
    ] = None,
    access_log: Annotated[bool | None, typer.Option("--access-log", help="Log a line for each request.")] = None,
    oidc_issuer: Annotated[
        str | None, typer.Option(help="Its URL, as tokens name it.", rich_help_panel=_PROVIDER)
    ] = None,
    oidc_audience: Annotated[
        str | None, typer.Option(help="The audience that tokens are for.", rich_help_panel=_PROVIDER)
    ] = None,
    oidc_jwks_url: Annotated[str | None, typer.Option(help="Where its keys are.", rich_help_panel=_PROVIDER)] = None,
    oidc_tenant_claim: Annotated[
        str | None, typer.Option(help="The claim with the tenant; default tenant.", rich_help_panel=_PROVIDER)
    ] = None,
    oidc_scope_claim: Annotated[
        str | None, typer.Option(help="The claim with the scopes; default scope.", rich_help_panel=_PROVIDER)
    ] = None,
    config: Annotated[Path | None, typer.Option(help="TOML file of settings.")] = None,
) -> None:
    """Serve one backbone and any mix of adapters over HTTP.

    Every setting is also a PELTIER_* variable and a key of the TOML file; flags come first, then variables, then the
    file. Secrets have no flag, for others on the machine can read a command. Once there is a key, from `peltier keys
    create` or in PELTIER_ADMIN_KEY, every route but /health and /ready wants one. PELTIER_SECRET is what keys are kept
    under: replicas share it.
    """
    flags = {name: value for name, value in locals().items() if value is not None}
    wait_passively()
    settings = load_settings(flags)

    from peltier_server.logs import configure_logging

    configure_logging(settings)

    from peltier_server.app import create_app
    from peltier_server.process import run

    run(create_app(settings), settings)
