"""Every setting of the server, declared once: its group, name, type, default, bounds and description."""

import ipaddress
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from peltier_backbone.machine.cores import usable_cores
from peltier_client.errors import InvalidInput
from peltier_client.protocol.names import TaskReference
from peltier_store.blobs.location import is_remote, local_path
from peltier_store.location import StoreLocation
from peltier_store.sources.source import check_source
from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, model_validator

from peltier_server.settings_group import MIB, YEAR_SECONDS, Count, SettingsGroup, setting

Group = TypeVar("Group", bound=SettingsGroup)


def _check_sendable(key: SecretStr) -> SecretStr:
    # A header cannot carry other characters unchanged, so the key would never match.
    if any(not "!" <= character <= "~" for character in key.get_secret_value()):
        raise ValueError("it must consist of visible ASCII characters, without spaces or line breaks")
    return key


FixedKey = Annotated[SecretStr, Field(min_length=16), AfterValidator(_check_sendable)]
HashSecret = Annotated[SecretStr, Field(min_length=32)]

# "auto", the levels of peltier_backbone.native.levels, and "torch".
_X86 = Literal["amx", "avx512_bf16", "avx512_vnni", "avx512", "avx2_vnni", "avx2", "plain"]
_ARM = Literal["neon_i8mm", "neon_dotprod", "neon"]
Kernels = Literal["auto", _X86, _ARM, "torch"]

LogLevel = Annotated[
    Literal["debug", "info", "warning", "error", "critical"],
    BeforeValidator(lambda level: level.lower() if isinstance(level, str) else level),
]


class SettingsError(Exception):
    """The settings cannot be used; the message is one sentence."""

    is_user_error = True


class ComputeSettings(SettingsGroup):
    """The backbone, and what computes it."""

    backbone: str = setting("minilm", "Checkpoint: a directory, a hub id, or minilm.")
    device: Literal["auto", "cpu", "cuda"] = setting("auto", "Device of the backbone: auto, cpu or cuda.")
    dtype: Literal["auto", "float32", "bfloat16", "int8"] = setting(
        "auto",
        "Precision of the backbone: float32, bfloat16, or on a CPU int8. auto is bfloat16 on a GPU that has it, else "
        "float32.",
    )
    kernels: Kernels = setting(
        "auto", "Kernels on a CPU: auto is the fastest that this machine can use, a level forces its own, torch none."
    )
    cuda_graphs: bool = setting(False, "Replay small batches of encoders from CUDA graphs.")
    threads: int = setting(0, "CPU threads that compute; 0 is one for each core the process may use.", ge=0)

    @model_validator(mode="before")
    @classmethod
    def _resolve(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Replaces "auto" and 0 threads by the values that they stand for."""
        resolved = dict(given)
        if resolved.get("device", "auto") == "auto":
            resolved["device"] = _best_device()
        if resolved.get("dtype", "auto") == "auto":
            resolved["dtype"] = _best_dtype(resolved["device"])
        if str(resolved.get("threads", 0)) == "0":
            resolved["threads"] = usable_cores()
        return resolved

    @model_validator(mode="after")
    def _check_graphs_device(self) -> Self:
        if self.cuda_graphs and self.device != "cuda":
            raise ValueError(f"cuda_graphs needs the device 'cuda', and the device is {self.device!r}")
        return self


class StoreSettings(SettingsGroup):
    """Where the server keeps what must last."""

    store: Path | str = setting(
        Path(".peltier"), "Where artifacts are kept: a directory, or an s3://, gs:// or az:// URL."
    )
    registry: str = setting(
        "",
        "Database URL, sqlite+aiosqlite:///PATH or postgresql+asyncpg://… Default: SQLite in the store.",
        repr=False,
    )
    rate_store: str = setting(
        "memory://",
        "Where rates are counted: memory://, or redis://… for several replicas.",
        pattern="^(memory://|rediss?://.+)$",
        repr=False,
    )
    publish: Path | str | None = setting(
        None,
        "Publish the artifacts of this source at the first start: a directory, or an s3://, gs://, az:// or hf:// URL.",
    )
    undelete_seconds: float = setting(
        7 * 24 * 3600.0, "How long a deleted version can be undeleted.", ge=0, le=10 * YEAR_SECONDS
    )

    @model_validator(mode="before")
    @classmethod
    def _resolve(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Replaces an empty registry by the database in the store, and local URLs by paths."""
        resolved = dict(given)
        store = resolved.get("store", cls.model_fields["store"].default)
        resolved["store"] = store if is_remote(store) else local_path(store)
        resolved["registry"] = StoreLocation.of(store, resolved.get("registry", "")).registry
        if resolved.get("publish") is not None:
            resolved["publish"] = check_source(resolved["publish"])
        return resolved

    @property
    def blobs(self) -> Path | str:
        """The directory or URL of the artifacts' bytes."""
        return StoreLocation.of(self.store, self.registry).blobs


class NetworkSettings(SettingsGroup):
    """The address of the server."""

    host: str = setting("127.0.0.1", "Address to bind; any but loopback requires a key.")
    port: int = setting(8000, "Port to bind; 0 chooses a free one.", ge=0, le=65535)
    insecure: bool = setting(False, "Bind any address although there is no key.")

    @property
    def is_private(self) -> bool:
        """Whether only this machine can reach the server."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


class AuthSettings(SettingsGroup):
    """The keys outside the registry."""

    admin_key: FixedKey | None = setting(None, "An API key with every scope, outside the registry.")
    metrics_key: FixedKey | None = setting(None, "An API key with the scope metrics alone, outside the registry.")
    secret: HashSecret | None = setting(
        None, "Secret under which API keys are stored; replicas share it. Default: made once by SQLite."
    )

    @property
    def secrets(self) -> list[str]:
        """The values that no message may show."""
        given = (self.admin_key, self.metrics_key, self.secret)
        return [secret.get_secret_value() for secret in given if secret is not None]

    @model_validator(mode="after")
    def _check_keys_differ(self) -> Self:
        if self.metrics_key is not None and self.metrics_key == self.admin_key:
            raise ValueError("metrics_key equals admin_key, so it would have every scope: choose another key")
        return self


class DrainSettings(SettingsGroup):
    """How a stopping server ends."""

    lame_duck_seconds: float = setting(
        2.0, "How long a stopping server still accepts requests while /ready is 503.", ge=0, le=3600
    )
    drain_seconds: float = setting(30.0, "How long a stopping server waits for accepted requests.", gt=0, le=3600)


class LogSettings(SettingsGroup):
    """What the server logs."""

    log_format: Literal["text", "json"] = setting("text", "text, or json for one object a line.")
    log_level: LogLevel = setting("info", "Least level logged: debug, info, warning, error or critical.")
    access_log: bool = setting(False, "Log a line for each request.")


class LimitSettings(SettingsGroup):
    """Bounds of requests, answers and uploads."""

    max_inputs: Count = setting(1024, "Maximum inputs of a request.")
    max_windows: Count = setting(4096, "Maximum windows of the long texts of a request.")
    max_text_chars: Count = setting(65_536, "Maximum characters of a text that are read.")
    max_new_tokens: Count = setting(1024, "Maximum tokens of a generated text.")
    default_top_k: Count = setting(256, "Scores of an input where the request has no top_k.")
    max_connections: Count = setting(2048, "Maximum open connections.")
    stall_seconds: float = setting(
        30.0, "Maximum time a request body or an answer may make no progress.", gt=0, le=3600
    )
    keep_alive_seconds: int = setting(
        75,
        "Seconds a connection may be idle between requests. Clients and proxies should close first.",
        ge=1,
        le=3600,
    )
    max_body_bytes: Count = setting(2 * MIB, "Maximum bytes of a JSON body.")
    max_answer_bytes: Count = setting(16 * MIB, "Maximum bytes of an answer.")
    max_pending_bytes: Count = setting(64 * MIB, "Maximum bytes of JSON bodies in progress.")
    max_pending_inputs: Count = setting(65_536, "Maximum inputs in progress.")
    max_pending_answer_bytes: Count = setting(256 * MIB, "Maximum bytes of answers that are being computed or sent.")
    max_artifact_bytes: Count = setting(64 * MIB, "Maximum bytes of an artifact.")
    max_adapter_cost: float = setting(
        1.0, "Maximum compute and memory of an adapter, as a multiple of the backbone's.", gt=0, allow_inf_nan=False
    )
    max_metric_versions: int = setting(
        100, "Maximum versions with metrics of their own; the others share one series.", ge=0, le=500
    )

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


class QueueSettings(SettingsGroup):
    """The rows that wait, and the batches that are computed of them."""

    max_batch_tokens: Count = setting(4096, "Maximum cost of a batch, in tokens of the plain backbone.")
    max_batch_rows: Count = setting(128, "Maximum rows of a batch.")
    max_shared_batch_seconds: float = setting(
        0.05, "Maximum expected time of a batch while several tenants send requests.", gt=0, le=86_400
    )
    max_batch_seconds: float = setting(
        60.0, "Time after which a batch counts as stuck and its thread is replaced.", gt=0, le=86_400
    )
    max_runner_restarts: int = setting(3, "Maximum replaced threads in a row; then the server exits.", ge=0)
    max_queue_tokens: Count = setting(262_144, "Maximum tokens in the queue.")
    max_decode_rows: Count = setting(64, "Maximum texts and beams that are generated at once.")


class MemorySettings(SettingsGroup):
    """The adapters in memory."""

    device_bytes: Count = setting(1024 * MIB, "Maximum bytes of adapters on the device.")
    host_bytes: int = setting(1024 * MIB, "Maximum bytes of adapters cached in host memory.", ge=0)
    max_load_wait_seconds: float = setting(
        10.0, "Maximum wait for a load to begin, and again for free memory on the device.", gt=0, le=3600
    )
    warm: str = setting(
        "", "Adapters to load before the server is ready, beside the pinned ones, such as sst2,acme:nli@3."
    )
    max_warm_seconds: float = setting(
        300.0, "Time after which the server is ready without the rest of those adapters.", gt=0, le=86_400
    )

    @property
    def warm_names(self) -> list[str]:
        """The task references of `warm`."""
        return [name.strip() for name in self.warm.split(",") if name.strip()]

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        for name in self.warm_names:
            try:
                TaskReference.parse(name)
            except InvalidInput as error:
                raise ValueError(f"warm names {name!r}, which is no adapter: {error}") from None
        return self


class AnswerSettings(SettingsGroup):
    """How long recorded answers are kept, also by a server that records none."""

    feedback_seconds: float = setting(24 * 3600.0, "How long feedback to an answer is accepted.", gt=0, le=YEAR_SECONDS)


class ExtensionSettings(SettingsGroup):
    """What the server leaves out."""

    without: str = setting(
        "",
        "Extensions to leave out, such as console,trainings: their routes are unknown and their tasks do not start. "
        "A setting that turns one of them on, such as worker, is refused; their bounds do nothing.",
    )

    @property
    def without_names(self) -> list[str]:
        """The names in `without`."""
        return [name.strip() for name in self.without.split(",") if name.strip()]


class CoreSettings(SettingsGroup):
    """The settings of the core: a group for each part, which is also the section of that name in the TOML file.

    The name of a setting is unique in all groups, because flags and variables are named after it alone. Extensions add
    theirs in `extensions/settings.py`. `cli.py` and the reference of settings are made from these fields. No other code
    reads the environment, except the extension `tracing`, which reads the standard variables of OpenTelemetry.
    """

    compute: ComputeSettings = Field(default_factory=ComputeSettings)
    store: StoreSettings = Field(default_factory=StoreSettings)
    network: NetworkSettings = Field(default_factory=NetworkSettings)
    auth: AuthSettings = Field(default_factory=AuthSettings)
    drain: DrainSettings = Field(default_factory=DrainSettings)
    logs: LogSettings = Field(default_factory=LogSettings)
    limits: LimitSettings = Field(default_factory=LimitSettings)
    queue: QueueSettings = Field(default_factory=QueueSettings)
    memory: MemorySettings = Field(default_factory=MemorySettings)
    extensions: ExtensionSettings = Field(default_factory=ExtensionSettings)
    feedback: AnswerSettings = Field(default_factory=AnswerSettings)

    def group(self, kind: type[Group]) -> Group:
        """The settings that an extension declares in `kind`."""
        return next(group for _, group in self if isinstance(group, kind))


def _best_device() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def _best_dtype(device: object) -> str:
    if device != "cuda":
        return "float32"
    import torch

    # A GPU before Ampere emulates bfloat16 and is slower in it.
    return "bfloat16" if torch.cuda.is_bf16_supported(including_emulation=False) else "float32"
