"""Flags over environment over file, and what is refused."""

import inspect
import json
import re
from pathlib import Path
from typing import get_args

import pytest
import torch
from peltier_backbone.native.levels import LEVEL_NAMES
from peltier_server.cli import serve
from peltier_server.extensions.settings import GROUPS, SETTINGS, load_settings
from peltier_server.settings import SettingsError
from peltier_store.blobs.errors import BlobError
from pydantic import ValidationError

EVERYWHERE = "0.0.0.0"  # noqa: S104 - what must be refused


def test_flags_come_before_environment_before_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "peltier.toml"
    config.write_text('port = 1\nmax_inputs = 2\ndtype = "bfloat16"\n')
    monkeypatch.setenv("PELTIER_PORT", "10")
    monkeypatch.setenv("PELTIER_MAX_INPUTS", "20")
    settings = load_settings({"config": config, "port": 100})
    assert (settings.network.port, settings.limits.max_inputs, settings.compute.dtype) == (100, 20, "bfloat16")


def test_the_file_has_a_section_for_each_group(tmp_path: Path) -> None:
    """The section of the store has a key of the same name. Keys may also stand before the sections."""
    config = tmp_path / "peltier.toml"
    config.write_text('port = 1\n[store]\nstore = "somewhere"\n[limits]\nmax_inputs = 2\n[drain]\ndrain_seconds = 3\n')
    settings = load_settings({"config": config})
    assert (settings.network.port, settings.limits.max_inputs, settings.drain.drain_seconds) == (1, 2, 3)
    assert settings.store.store == Path("somewhere")


def test_a_name_belongs_to_one_group() -> None:
    assert len(SETTINGS) == sum(len(kind.model_fields) for kind in GROUPS.values())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[limit]\nmax_inputs = 1", "section [limit] is unknown; there are [compute], [store], "),
        ("[limits]\nmax_input = 1", "setting 'max_input' is unknown; there are "),
        ("[limits]\nport = 1", "setting 'port' is not in section [limits]; it belongs to [network]"),
        ("port = 1\n[network]\nport = 2", "has the setting 'port' twice, in [network] too"),
        ("[limits]\nmax_inputs = 0", "setting 'max_inputs' is 0: Input should be greater than or equal to 1"),
        ("[port]\nport = 1", "section [port] is unknown; "),
        ("prot = 1", "setting 'prot' is unknown; there are "),
        ("port =", "is not TOML"),
    ],
)
def test_a_wrong_section_is_named(tmp_path: Path, text: str, message: str) -> None:
    config = tmp_path / "peltier.toml"
    config.write_text(text)
    with pytest.raises(SettingsError, match=re.escape(message)):
        load_settings({"config": config})


def test_every_setting_has_a_flag() -> None:
    """Except secrets, because other users of the machine can read command lines."""
    secrets = {"admin_key", "metrics_key", "secret"}
    assert set(inspect.signature(serve).parameters) == {"config", *SETTINGS} - secrets


@pytest.mark.parametrize(
    ("name", "kind", "help_text"),
    [
        ("port", int, "Port to bind; 0 chooses a free one. Default 8000."),
        ("drain_seconds", float, "How long a stopping server waits for accepted requests. Default 30."),
        ("insecure", bool, "Bind any address although there is no key."),
        (
            "publish",
            str,
            "Publish the artifacts of this source at the first start: a directory, or an s3://, gs://, az:// or hf:// "
            "URL.",
        ),
        ("device", str, "Device of the backbone: auto, cpu or cuda. Default auto."),
        ("store", str, "Where artifacts are kept: a directory, or an s3://, gs:// or az:// URL. Default .peltier."),
    ],
)
def test_a_flag_is_made_from_its_setting(name: str, kind: type, help_text: str) -> None:
    """Type, description and default come from the field; the flag itself is unset, so that a variable can count."""
    flag = inspect.signature(serve).parameters[name]
    annotation, option = get_args(flag.annotation)
    assert (annotation, option.help, flag.default) == (kind | None, help_text, None)


def test_the_kernels_are_those_of_the_backbone() -> None:
    assert get_args(SETTINGS["kernels"].annotation) == ("auto", *LEVEL_NAMES, "torch")


def test_auto_is_resolved() -> None:
    settings = load_settings({"store": Path("somewhere")})
    assert settings.compute.device in ("cpu", "cuda")
    assert settings.compute.threads >= 1
    assert settings.store.registry == "sqlite+aiosqlite:///somewhere/registry.db"


def test_the_store_may_be_a_file_url() -> None:
    """A directory may be given as a URL; both databases are below it."""
    settings = load_settings({"store": "file:///var/peltier"})
    assert settings.store.store == Path("/var/peltier")
    assert settings.store.blobs == Path("/var/peltier/blobs")


def test_a_remote_store_needs_a_registry_beside_it() -> None:
    """Bytes may be in a bucket, which can hold no database, so the registry must then be named."""
    url, registry = "s3://bucket/a?region=eu-west-3", "sqlite+aiosqlite:///registry.db"
    store = load_settings({"store": url, "registry": registry}).store
    assert (store.store, store.blobs, store.registry) == (url, url, registry)
    with pytest.raises(BlobError, match=r"^the store 's3://bucket/a' cannot hold a registry: also give"):
        load_settings({"store": url})


@pytest.mark.parametrize(
    ("device", "has_bfloat16", "given", "expected"),
    [
        ("cpu", True, "auto", "float32"),
        ("cuda", False, "auto", "float32"),
        ("cuda", True, "auto", "bfloat16"),
        ("cuda", True, "float32", "float32"),
    ],
)
def test_a_gpu_with_bfloat16_computes_in_it(device, has_bfloat16, given, expected, monkeypatch):
    """Unless another precision is asked for. Emulated bfloat16 does not count."""
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda *, including_emulation: has_bfloat16)
    assert load_settings({"device": device, "dtype": given}).compute.dtype == expected
    if given == "auto":
        assert load_settings({"device": device}).compute.dtype == expected


def test_settings_are_frozen() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        load_settings({}).network.port = 1


def test_an_unknown_variable_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PELTIER_PROT", "1")
    with pytest.raises(SettingsError, match="PELTIER_PROT is unknown"):
        load_settings({})


def test_the_variables_of_the_client_are_not_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Server and client share an environment."""
    monkeypatch.setenv("PELTIER_URL", "http://elsewhere")
    monkeypatch.setenv("PELTIER_API_KEY", "plt_x")
    load_settings({})


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"port": 70_000}, "setting 'port' is 70000: Input should be less than or equal to 65535"),
        (
            {"max_metric_versions": 501},
            "setting 'max_metric_versions' is 501: Input should be less than or equal to 500",
        ),
        ({"dtype": "int4"}, "setting 'dtype' is 'int4': Input should be 'auto', 'float32', 'bfloat16' or 'int8'"),
        ({"log_format": "xml"}, "setting 'log_format' is 'xml': Input should be 'text' or 'json'"),
        (
            {"log_level": "loud"},
            "setting 'log_level' is 'loud': Input should be 'debug', 'info', 'warning', 'error' or 'critical'",
        ),
        (
            {"routing_prefix": "vllm "},
            "setting 'routing_prefix' is 'vllm ': String should match pattern '^[a-zA-Z_:][a-zA-Z0-9_:]*$'",
        ),
        ({"config": Path("missing.toml")}, "config file 'missing.toml' does not exist"),
    ],
)
def test_a_wrong_value_is_named(flags: dict[str, object], message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings(flags)
    assert str(caught.value) == message


def test_loopback_is_private() -> None:
    hosts = ["127.0.0.1", "::1", "localhost", "127.1.2.3", EVERYWHERE, "::", "192.168.1.1", "example.org"]
    assert [host for host in hosts if load_settings({"host": host}).network.is_private] == hosts[:4]


def test_graphs_need_a_gpu() -> None:
    with pytest.raises(SettingsError, match="cuda_graphs needs the device 'cuda', and the device is 'cpu'"):
        load_settings({"cuda_graphs": True, "device": "cpu"})
    assert load_settings({"cuda_graphs": True, "device": "cuda"}).compute.cuda_graphs


def test_an_identity_provider_is_named_whole() -> None:
    with pytest.raises(SettingsError, match="missing: oidc_audience, oidc_jwks_url"):
        load_settings({"oidc_issuer": "https://id.example"})


def test_a_key_opens_the_network_and_stays_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """The key comes from the environment and is never shown."""
    monkeypatch.setenv("PELTIER_ADMIN_KEY", "plt_of_the_operator")
    settings = load_settings({"host": EVERYWHERE})
    assert settings.auth.admin_key is not None
    assert settings.auth.admin_key.get_secret_value() == "plt_of_the_operator"
    assert "plt_of_the_operator" not in repr(settings)


def test_the_metrics_key_is_another_than_the_admin_key() -> None:
    """Who reads metrics would else be the operator; the message shows neither."""
    with pytest.raises(SettingsError, match=r"^metrics_key equals admin_key") as caught:
        load_settings({"admin_key": "plt_of_the_operator", "metrics_key": "plt_of_the_operator"})
    assert "plt_of" not in str(caught.value)
    assert "plt_of" not in repr(load_settings({"metrics_key": "plt_of_the_monitor"}))


def test_an_empty_key_is_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compose files pass an unset variable on as an empty one."""
    monkeypatch.setenv("PELTIER_ADMIN_KEY", "")
    assert load_settings({}).auth.admin_key is None


def test_passwords_in_urls_stay_secret() -> None:
    urls = {"registry": "postgresql+asyncpg://u:hunter2@h/d", "rate_store": "redis://:hunter2@h"}
    assert "hunter2" not in repr(load_settings(urls))
    with pytest.raises(SettingsError, match="setting 'rate_store': String should match"):
        load_settings({"rate_store": "redis//:hunter2@h:6379"})


@pytest.mark.parametrize("name", ["admin_key", "metrics_key"])
@pytest.mark.parametrize("key", ["", "plt_secret", "plt_of_the_operator\n", "plt of operator", "plt_schlüsselgewalt"])
def test_a_key_that_cannot_guard_is_refused(tmp_path: Path, key: str, name: str) -> None:
    """One that is guessed, that every request without a key has, or that no header can carry; it is not shown."""
    config = tmp_path / "peltier.toml"
    config.write_text(f"{name} = {json.dumps(key)}", encoding="utf-8")
    with pytest.raises(SettingsError, match=rf"^setting '{name}': (Value|it must)") as caught:
        load_settings({"config": config, "host": EVERYWHERE})
    assert not key or key not in str(caught.value)
