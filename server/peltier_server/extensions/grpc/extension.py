"""The Open Inference Protocol over gRPC as an extension."""

from fastapi import FastAPI

from peltier_server.extension import Extension, Started
from peltier_server.extensions.grpc.settings import MAX_CONNECTIONS, GrpcSettings
from peltier_server.settings import CoreSettings, SettingsError


def _is_wanted(settings: CoreSettings) -> bool:
    return settings.group(GrpcSettings).grpc_port is not None


def _check(settings: CoreSettings) -> None:
    if not _is_wanted(settings):
        return
    try:
        import peltier_server.extensions.grpc.server  # noqa: F401 - whether it can be imported
    except ModuleNotFoundError as error:
        raise SettingsError(f"setting 'grpc_port' needs {error.name}: pip install \"peltier[grpc]\"") from None


async def _open(app: FastAPI, settings: CoreSettings) -> Started | None:
    if not _is_wanted(settings):
        return None
    from peltier_server.extensions.grpc.server import GrpcServer

    server = GrpcServer(app, settings)
    await server.start()
    return server


GRPC = Extension(
    "grpc",
    settings=GrpcSettings,
    check=_check,
    open=_open,
    count_files=lambda settings: MAX_CONNECTIONS if _is_wanted(settings) else 0,
)
