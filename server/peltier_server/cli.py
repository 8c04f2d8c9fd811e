"""`peltier serve`, with a flag for each setting. It imports torch only when it runs."""

from inspect import Parameter, Signature
from pathlib import Path
from typing import Annotated, Any

import typer
from peltier_backbone.machine.cores import wait_passively
from peltier_backbone.machine.ray_cluster import set_variables
from pydantic.fields import FieldInfo

from peltier_server.extensions.settings import GROUP_OF, SETTINGS, Settings, load_settings
from peltier_server.settings import SettingsError
from peltier_server.settings_group import is_secret


def serve(**flags: Any) -> None:
    """Serve one backbone and any mix of adapters over HTTP.

    Every setting is also a PELTIER_* variable, and a key of the TOML file in the section that its panel below is named
    after; flags win over variables, and variables over the file. Secrets have no flag, because other users of the
    machine can read command lines. As soon as there is a key, from `peltier keys create` or in PELTIER_ADMIN_KEY, every
    route but /, /health and /ready requires one. PELTIER_SECRET protects the stored keys; replicas share it.
    """
    wait_passively()
    settings = load_settings({name: value for name, value in flags.items() if value is not None})

    from peltier_server.logs.logs import configure_logging

    configure_logging(settings.logs, settings.auth)

    if settings.cluster.ray:
        _serve_on_ray(settings)
        return

    from peltier_server.app import create_app
    from peltier_server.http.process import run

    run(create_app(settings), settings)


def _serve_on_ray(settings: Settings) -> None:
    set_variables()
    try:
        from peltier_server.extensions.ray.run import run
    except ModuleNotFoundError as error:
        raise SettingsError(f'ray needs {error.name}: pip install "peltier[ray]"') from None
    run(settings)


def _flag(name: str, setting: FieldInfo) -> Parameter:
    help_text = f"{setting.description} {_default_note(setting.default)}".rstrip()
    option = typer.Option(f"--{name.replace('_', '-')}", help=help_text, rich_help_panel=f"[{GROUP_OF[name]}]")
    kind: Any = _flag_type(setting.annotation)
    return Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, option])


def _flag_type(annotation: Any) -> Any:
    """What Typer parses; `Settings` checks choices and bounds."""
    return next((kind for kind in (bool, int, float, Path) if annotation in (kind, kind | None)), str)


def _default_note(default: Any) -> str:
    if default is None or default is False or default == "":
        return ""
    return f"Default {default:g}." if isinstance(default, float) else f"Default {default}."


_CONFIG = Parameter(
    "config",
    Parameter.KEYWORD_ONLY,
    default=None,
    annotation=Annotated[
        Path | None, typer.Option("--config", help="TOML file of settings, a section for each group.")
    ],
)
_FLAGS = [_CONFIG, *(_flag(name, setting) for name, setting in SETTINGS.items() if not is_secret(setting.annotation))]
# Typer reads the flags from these two.
serve.__signature__ = Signature(_FLAGS)  # type: ignore[attr-defined]
serve.__annotations__ = {flag.name: flag.annotation for flag in _FLAGS}
