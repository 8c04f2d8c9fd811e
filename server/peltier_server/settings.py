"""Every setting of the server: one frozen value, made once and passed down."""

import ipaddress
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from peltier_backbone.cores import usable_cores
from peltier_store.blobs.location import is_remote, local_path
from peltier_store.location import StoreLocation
from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, ValidationError, model_validator
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

_PREFIX = "PELTIER_"
# The client commands read these two from the same environment.
_OF_THE_CLIENT = frozenset({"PELTIER_URL", "PELTIER_API_KEY"})
_MIB = 1024 * 1024
_YEAR_SECONDS = 366 * 24 * 3600
_MIN_SECRET_LEN = 32
_MIN_KEY_LEN = 16
# The URLs may hold a password, and one that is no URL has it anywhere.
_SECRETS = frozenset({"admin_key", "metrics_key", "secret", "registry", "rate_store"})

Count = Annotated[int, Field(ge=1)]


def _check_sendable(key: SecretStr) -> SecretStr:
    # Anything else does not arrive in a header as it was sent, so nobody would ever be let in.
    if any(not "!" <= character <= "~" for character in key.get_secret_value()):
        raise ValueError("it must be of visible ASCII characters alone, without spaces or line ends")
    return key


FixedKey = Annotated[SecretStr, Field(min_length=_MIN_KEY_LEN), AfterValidator(_check_sendable)]

LogLevel = Annotated[
    Literal["debug", "info", "warning", "error", "critical"],
    BeforeValidator(lambda level: level.lower() if isinstance(level, str) else level),
]


class SettingsError(Exception):
    """The settings cannot be used; the message is one sentence."""

    is_user_error = True


class Settings(BaseSettings):
    """What the server was told. Flags come before `PELTIER_*` variables, those before the TOML file at `config`.

    Sizes are in bytes or tokens as their names say. Below this class nothing reads the environment.
    """

    model_config = SettingsConfigDict(env_prefix=_PREFIX, env_ignore_empty=True, extra="forbid", frozen=True)

    config: Path | None = None
    backbone: str = "minilm"
    store: Path | str = Path(".peltier")
    registry: Annotated[str, Field(repr=False)] = ""
    publish: Path | None = None
    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 8000
    insecure: bool = False
    admin_key: Annotated[FixedKey | None, Field(description="An API key with every scope, outside the registry.")] = (
        None
    )
    metrics_key: Annotated[
        FixedKey | None, Field(description="An API key with the scope metrics alone, outside the registry.")
    ] = None
    secret: Annotated[
        Annotated[SecretStr, Field(min_length=_MIN_SECRET_LEN)] | None,
        Field(description="Secret under which API keys are stored; replicas share it. Default: made once by SQLite."),
    ] = None
    oidc_issuer: str | None = None
    oidc_audience: str | None = None
    oidc_jwks_url: str | None = None
    oidc_tenant_claim: str = "tenant"
    oidc_scope_claim: str = "scope"
    rate_store: Annotated[str, Field(pattern=r"^(memory://|rediss?://.+)$", repr=False)] = "memory://"
    device: Literal["auto", "cpu", "cuda"] = "auto"
    dtype: Literal["float32", "bfloat16"] = "float32"
    cuda_graphs: bool = False
    threads: Annotated[int, Field(ge=0)] = 0
    max_batch_tokens: Count = 4096
    max_batch_rows: Count = 128
    max_shared_batch_seconds: Annotated[float, Field(gt=0, le=86_400)] = 0.05
    max_batch_seconds: Annotated[float, Field(gt=0, le=86_400)] = 60.0
    max_runner_restarts: Annotated[int, Field(ge=0)] = 3
    max_queue_tokens: Count = 262_144
    max_decode_rows: Count = 64
    max_new_tokens: Count = 1024
    max_inputs: Count = 1024
    max_text_chars: Count = 65_536
    max_body_bytes: Count = 2 * _MIB
    max_answer_bytes: Count = 16 * _MIB
    default_top_k: Count = 256
    max_connections: Count = 2048
    max_pending_bytes: Count = 64 * _MIB
    max_pending_inputs: Count = 65_536
    max_pending_answer_bytes: Count = 256 * _MIB
    max_artifact_bytes: Count = 64 * _MIB
    max_adapter_cost: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    device_bytes: Count = 1024 * _MIB
    host_bytes: Annotated[int, Field(ge=0)] = 1024 * _MIB
    max_load_wait_seconds: Annotated[float, Field(gt=0, le=3600)] = 10.0
    undelete_seconds: Annotated[float, Field(ge=0, le=10 * _YEAR_SECONDS)] = 7 * 24 * 3600.0
    max_metric_versions: Annotated[int, Field(ge=0, le=500)] = 100
    log_format: Literal["text", "json"] = "text"
    log_level: LogLevel = "info"
    access_log: bool = False
    stall_seconds: Annotated[float, Field(gt=0, le=3600)] = 30.0
    lame_duck_seconds: Annotated[float, Field(ge=0, le=3600)] = 2.0
    drain_seconds: Annotated[float, Field(gt=0, le=3600)] = 30.0

    @model_validator(mode="before")
    @classmethod
    def _resolve(cls, given: dict[str, Any]) -> dict[str, Any]:
        """What "auto", 0 threads and an empty registry stand for, before the value is frozen."""
        resolved = dict(given)
        if resolved.get("device", "auto") == "auto":
            resolved["device"] = _best_device()
        if str(resolved.get("threads", 0)) == "0":
            resolved["threads"] = usable_cores()
        store = resolved.get("store", cls.model_fields["store"].default)
        resolved["store"] = store if is_remote(store) else local_path(store)
        resolved["registry"] = StoreLocation.of(store, resolved.get("registry", "")).registry
        return resolved

    @property
    def blobs(self) -> Path | str:
        """Where the bytes of artifacts are: below the store's directory, or at its URL."""
        return StoreLocation.of(self.store, self.registry).blobs

    @property
    def is_private(self) -> bool:
        """Only this machine can reach the server."""
        return _is_loopback(self.host)

    @model_validator(mode="after")
    def _name_the_whole_provider(self) -> Self:
        given = {name: getattr(self, name) for name in ("oidc_issuer", "oidc_audience", "oidc_jwks_url")}
        missing = [name for name, value in given.items() if value is None]
        if missing and len(missing) < len(given):
            raise ValueError(f"an identity provider needs {', '.join(given)}; there is no {' and no '.join(missing)}")
        return self

    @model_validator(mode="after")
    def _tell_keys_apart(self) -> Self:
        if self.metrics_key is not None and self.metrics_key == self.admin_key:
            raise ValueError("metrics_key equals admin_key, so who reads metrics could do everything: choose another")
        return self

    @model_validator(mode="after")
    def _leave_room_for_a_request(self) -> Self:
        # One tenant alone may have three quarters.
        for pending, one in (
            ("max_pending_bytes", "max_body_bytes"),
            ("max_pending_inputs", "max_inputs"),
            ("max_pending_answer_bytes", "max_answer_bytes"),
        ):
            if getattr(self, pending) < 2 * getattr(self, one):
                raise ValueError(f"{pending} is {getattr(self, pending)}: it must be at least twice {one}")
        return self

    @model_validator(mode="after")
    def _capture_on_a_card(self) -> Self:
        if self.cuda_graphs and self.device != "cuda":
            raise ValueError(f"cuda_graphs needs the device 'cuda'; this server's is {self.device!r}")
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
        """Flags, environment, file."""
        config = init_settings().get("config")
        toml = TomlConfigSettingsSource(settings_cls, toml_file=config)
        return init_settings, _StrictEnvironment(settings_cls), toml


class _StrictEnvironment(EnvSettingsSource):
    """The environment, where a misspelt variable is an error instead of silence."""

    def __call__(self) -> dict[str, Any]:
        known = {f"{_PREFIX}{name}".upper() for name in self.settings_cls.model_fields if name != "config"}
        for name in sorted(os.environ):
            if name.startswith(_PREFIX) and name not in known | _OF_THE_CLIENT:
                raise SettingsError(f"environment variable {name} is unknown; there are {', '.join(sorted(known))}")
        return super().__call__()


def load_settings(flags: Mapping[str, object]) -> Settings:
    """The settings from `flags` (those given), environment and file; a `SettingsError` names what is wrong."""
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
    shown = "" if name in _SECRETS else f" is {problem['input']!r}"
    return f"setting {name!r}{shown}: {rule}"


def _best_device() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
