"""Every setting of the server, declared once: its name, type, default, bounds, description and help panel."""

import ipaddress
import os
import tomllib
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

from peltier_backbone.machine.cores import usable_cores
from peltier_store.blobs.location import is_remote, local_path
from peltier_store.location import StoreLocation
from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, ValidationError, model_validator
from pydantic.fields import FieldInfo
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

_PREFIX = "PELTIER_"
# The client commands read these two from the same environment.
_CLIENT_VARIABLES = frozenset({"PELTIER_URL", "PELTIER_API_KEY"})
_MIB = 1024 * 1024
_YEAR_SECONDS = 366 * 24 * 3600

Count = Annotated[int, Field(ge=1)]


def _check_sendable(key: SecretStr) -> SecretStr:
    # A header cannot carry other characters unchanged, so the key would never match.
    if any(not "!" <= character <= "~" for character in key.get_secret_value()):
        raise ValueError("it must consist of visible ASCII characters, without spaces or line breaks")
    return key


FixedKey = Annotated[SecretStr, Field(min_length=16), AfterValidator(_check_sendable)]
HashSecret = Annotated[SecretStr, Field(min_length=32)]

# "auto", the levels of peltier_backbone.native.levels, and "torch".
Kernels = Literal[
    "auto",
    "amx",
    "avx512_bf16",
    "avx512_vnni",
    "avx512",
    "avx2_vnni",
    "avx2",
    "plain",
    "neon_i8mm",
    "neon_dotprod",
    "neon",
    "torch",
]

LogLevel = Annotated[
    Literal["debug", "info", "warning", "error", "critical"],
    BeforeValidator(lambda level: level.lower() if isinstance(level, str) else level),
]


class SettingsError(Exception):
    """The settings cannot be used; the message is one sentence."""

    is_user_error = True


def _setting(default: object, description: str, *, panel: str | None = None, **rules: Any) -> Any:
    return Field(default, description=description, json_schema_extra={"panel": panel}, **rules)


_limit = partial(_setting, panel="Limits")
_provider = partial(_setting, panel="Identity provider")


class Settings(BaseSettings):
    """The settings of one server. Flags win over `PELTIER_*` variables, and variables over the TOML file `config`.

    `cli.py` and the reference of settings are made from these fields. No other code reads the environment, except
    `telemetry/`, which reads the standard variables of OpenTelemetry.
    """

    model_config = SettingsConfigDict(env_prefix=_PREFIX, env_ignore_empty=True, extra="forbid", frozen=True)

    backbone: str = _setting("minilm", "Checkpoint: a directory, a hub id, or minilm.")
    store: Path | str = _setting(
        Path(".peltier"), "Where artifacts are kept: a directory, or an s3://, gs:// or az:// URL."
    )
    registry: str = _setting(
        "",
        "Database URL, sqlite+aiosqlite:///PATH or postgresql+asyncpg://… Default: SQLite in the store.",
        repr=False,
    )
    publish: Path | None = _setting(None, "Publish the artifacts of this directory at the first start.")
    host: str = _setting("127.0.0.1", "Address to bind; any but loopback requires a key.")
    port: int = _setting(8000, "Port to bind; 0 chooses a free one.", ge=0, le=65535)
    insecure: bool = _setting(False, "Bind any address although there is no key.")
    admin_key: FixedKey | None = _setting(None, "An API key with every scope, outside the registry.")
    metrics_key: FixedKey | None = _setting(None, "An API key with the scope metrics alone, outside the registry.")
    secret: HashSecret | None = _setting(
        None, "Secret under which API keys are stored; replicas share it. Default: made once by SQLite."
    )
    rate_store: str = _setting(
        "memory://",
        "Where rates are counted: memory://, or redis://… for several replicas.",
        pattern="^(memory://|rediss?://.+)$",
        repr=False,
    )
    device: Literal["auto", "cpu", "cuda"] = _setting("auto", "Device of the backbone: auto, cpu or cuda.")
    dtype: Literal["auto", "float32", "bfloat16", "int8"] = _setting(
        "auto",
        "Precision of the backbone: float32, bfloat16, or on a CPU int8. auto is bfloat16 on a GPU that has it, else "
        "float32.",
    )
    kernels: Kernels = _setting(
        "auto", "Kernels on a CPU: auto is the fastest that this machine can use, a level forces its own, torch none."
    )
    cuda_graphs: bool = _setting(False, "Replay small batches of encoders from CUDA graphs.")
    threads: int = _setting(0, "CPU threads that compute; 0 is one for each core the process may use.", ge=0)
    undelete_seconds: float = _setting(
        7 * 24 * 3600.0, "How long a deleted version can be undeleted.", ge=0, le=10 * _YEAR_SECONDS
    )
    lame_duck_seconds: float = _setting(
        2.0, "How long a stopping server still accepts requests while /ready is 503.", ge=0, le=3600
    )
    drain_seconds: float = _setting(30.0, "How long a stopping server waits for accepted requests.", gt=0, le=3600)
    log_format: Literal["text", "json"] = _setting("text", "text, or json for one object a line.")
    log_level: LogLevel = _setting("info", "Least level logged: debug, info, warning, error or critical.")
    access_log: bool = _setting(False, "Log a line for each request.")
    config: Path | None = _setting(None, "TOML file of settings.")
    max_batch_tokens: Count = _limit(4096, "Maximum cost of a batch, in tokens of the plain backbone.")
    max_batch_rows: Count = _limit(128, "Maximum rows of a batch.")
    max_shared_batch_seconds: float = _limit(
        0.05, "Maximum expected time of a batch while several tenants send requests.", gt=0, le=86_400
    )
    max_batch_seconds: float = _limit(
        60.0, "Time after which a batch counts as stuck and its thread is replaced.", gt=0, le=86_400
    )
    max_runner_restarts: int = _limit(3, "Maximum replaced threads in a row; then the server exits.", ge=0)
    max_queue_tokens: Count = _limit(262_144, "Maximum tokens in the queue.")
    max_decode_rows: Count = _limit(64, "Maximum texts and beams that are generated at once.")
    max_new_tokens: Count = _limit(1024, "Maximum tokens of a generated text.")
    max_inputs: Count = _limit(1024, "Maximum inputs of a request.")
    max_windows: Count = _limit(4096, "Maximum windows of the long texts of a request.")
    max_text_chars: Count = _limit(65_536, "Maximum characters of a text that are read.")
    max_connections: Count = _limit(2048, "Maximum open connections.")
    max_pending_bytes: Count = _limit(64 * _MIB, "Maximum bytes of JSON bodies in progress.")
    max_pending_inputs: Count = _limit(65_536, "Maximum inputs in progress.")
    max_pending_answer_bytes: Count = _limit(256 * _MIB, "Maximum bytes of answers that are being computed or sent.")
    max_answer_bytes: Count = _limit(16 * _MIB, "Maximum bytes of an answer.")
    default_top_k: Count = _limit(256, "Scores of an input where the request has no top_k.")
    max_body_bytes: Count = _limit(2 * _MIB, "Maximum bytes of a JSON body.")
    max_artifact_bytes: Count = _limit(64 * _MIB, "Maximum bytes of an artifact.")
    max_adapter_cost: float = _limit(
        1.0, "Maximum compute and memory of an adapter, as a multiple of the backbone's.", gt=0, allow_inf_nan=False
    )
    max_metric_versions: int = _limit(
        100, "Maximum versions with metrics of their own; the others share one series.", ge=0, le=500
    )
    device_bytes: Count = _limit(1024 * _MIB, "Maximum bytes of adapters on the device.")
    host_bytes: int = _limit(1024 * _MIB, "Maximum bytes of adapters cached in host memory.", ge=0)
    max_load_wait_seconds: float = _limit(
        10.0, "Maximum wait for a load to begin, and again for free memory on the device.", gt=0, le=3600
    )
    stall_seconds: float = _limit(30.0, "Maximum time a request body or an answer may make no progress.", gt=0, le=3600)
    oidc_issuer: str | None = _provider(None, "Issuer of accepted tokens, a URL.")
    oidc_audience: str | None = _provider(None, "Audience of accepted tokens.")
    oidc_jwks_url: str | None = _provider(None, "URL of the provider's public keys.")
    oidc_tenant_claim: str = _provider("tenant", "Claim that names the tenant.")
    oidc_scope_claim: str = _provider("scope", "Claim that lists the scopes.")

    @model_validator(mode="before")
    @classmethod
    def _resolve(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Replace "auto", 0 threads and an empty registry by the values that they stand for."""
        resolved = dict(given)
        if resolved.get("device", "auto") == "auto":
            resolved["device"] = _best_device()
        if resolved.get("dtype", "auto") == "auto":
            resolved["dtype"] = _best_dtype(resolved["device"])
        if str(resolved.get("threads", 0)) == "0":
            resolved["threads"] = usable_cores()
        store = resolved.get("store", cls.model_fields["store"].default)
        resolved["store"] = store if is_remote(store) else local_path(store)
        resolved["registry"] = StoreLocation.of(store, resolved.get("registry", "")).registry
        return resolved

    @property
    def blobs(self) -> Path | str:
        """The directory or URL of the artifacts' bytes."""
        return StoreLocation.of(self.store, self.registry).blobs

    @property
    def is_private(self) -> bool:
        """Whether only this machine can reach the server."""
        return _is_loopback(self.host)

    @model_validator(mode="after")
    def _check_provider(self) -> Self:
        given = {name: getattr(self, name) for name in ("oidc_issuer", "oidc_audience", "oidc_jwks_url")}
        missing = [name for name, value in given.items() if value is None]
        if missing and len(missing) < len(given):
            raise ValueError(f"an identity provider needs {', '.join(given)}; missing: {', '.join(missing)}")
        return self

    @model_validator(mode="after")
    def _check_keys_differ(self) -> Self:
        if self.metrics_key is not None and self.metrics_key == self.admin_key:
            raise ValueError("metrics_key equals admin_key, so it would have every scope: choose another key")
        return self

    @model_validator(mode="after")
    def _check_pending_bounds(self) -> Self:
        # A tenant gets at most three quarters, and a request of full size must fit in them.
        for pending, single in (
            ("max_pending_bytes", "max_body_bytes"),
            ("max_pending_inputs", "max_inputs"),
            ("max_pending_answer_bytes", "max_answer_bytes"),
        ):
            if getattr(self, pending) < 2 * getattr(self, single):
                raise ValueError(f"{pending} is {getattr(self, pending)}: it must be at least twice {single}")
        return self

    @model_validator(mode="after")
    def _check_graphs_device(self) -> Self:
        if self.cuda_graphs and self.device != "cuda":
            raise ValueError(f"cuda_graphs needs the device 'cuda', and the device is {self.device!r}")
        return self

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Flags, environment and file, in the order of precedence."""
        config = init_settings().get("config")
        toml = TomlConfigSettingsSource(settings_cls, toml_file=config)
        return init_settings, _StrictEnvironment(settings_cls), toml


class _StrictEnvironment(EnvSettingsSource):
    """The environment; an unknown `PELTIER_*` variable is an error."""

    def __call__(self) -> dict[str, Any]:
        known = {f"{_PREFIX}{name}".upper() for name in self.settings_cls.model_fields if name != "config"}
        for name in sorted(os.environ):
            if name.startswith(_PREFIX) and name not in known | _CLIENT_VARIABLES:
                raise SettingsError(f"environment variable {name} is unknown; there are {', '.join(sorted(known))}")
        return super().__call__()


def load_settings(flags: Mapping[str, object]) -> Settings:
    """The settings from the given `flags`, the environment and the file; a `SettingsError` says what is wrong."""
    config = flags.get("config")
    if isinstance(config, Path) and not config.is_file():
        raise SettingsError(f"config file {str(config)!r} does not exist")
    try:
        return Settings(**dict(flags))  # type: ignore[arg-type]
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"config file {str(config)!r} is not TOML: {error}") from None
    except ValidationError as error:
        raise SettingsError("; ".join(_sentence(problem["loc"], problem) for problem in error.errors())) from None


def _sentence(location: tuple[int | str, ...], problem: Mapping[str, Any]) -> str:
    rule = str(problem["msg"]).removeprefix("Value error, ")
    if not location:
        return rule
    name = ".".join(map(str, location))
    if problem["type"] == "extra_forbidden":
        return f"setting {name!r} is unknown; there are {', '.join(sorted(Settings.model_fields))}"
    shown = "" if is_hidden(Settings.model_fields[str(location[0])]) else f" is {problem['input']!r}"
    return f"setting {name!r}{shown}: {rule}"


def is_hidden(setting: FieldInfo) -> bool:
    """Whether messages and `repr` hide the value, because it is a secret or a URL that may contain a password."""
    return not setting.repr or is_secret(setting.annotation)


def is_secret(annotation: Any) -> bool:
    """Whether a setting of this type is a secret."""
    return annotation is SecretStr or any(map(is_secret, get_args(annotation)))


def _best_device() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def _best_dtype(device: object) -> str:
    if device != "cuda":
        return "float32"
    import torch

    # A GPU before Ampere emulates bfloat16 and is slower in it.
    return "bfloat16" if torch.cuda.is_bf16_supported(including_emulation=False) else "float32"


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
