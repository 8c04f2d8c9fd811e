"""Extensions that are left out."""

from collections.abc import Callable

import pytest
from peltier_server.app import EXTENSIONS, create_app
from peltier_server.background import BackgroundTask
from peltier_server.extension import Extension
from peltier_server.extensions.settings import Settings
from peltier_server.service import Service
from peltier_server.settings import SettingsError
from peltier_store.registry.records import RegistrySnapshot

from tests.server.conftest import Serve, make_client


@pytest.mark.extension
async def test_the_console_is_left_out(serve: Serve) -> None:
    """Its addresses are unknown ones, and the front page does not lead there. Its neighbours answer."""
    async with serve(without="console") as running:
        for path in ("/console", "/console/index.html", "/v1/compare"):
            answer = await running.client.get(path)
            assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")
        page = await running.client.get("/", headers={"accept": "text/html"})
        assert "console" not in page.json()
        assert (await running.client.get(page.json()["adapters"])).is_success


@pytest.mark.extension
async def test_pages_that_are_left_out_are_not_open(settings_of: Callable[..., Settings]) -> None:
    """To a caller without a key they are unknown as any other address."""
    app = create_app(settings_of(without="console", admin_key="plt_of_the_operator"))
    async with make_client(app) as client:
        assert (await client.get("/console/")).status_code == 401


@pytest.mark.extension
def test_an_unknown_extension_cannot_be_left_out(settings_of: Callable[..., Settings]) -> None:
    names = ", ".join(one.name for one in EXTENSIONS)
    with pytest.raises(SettingsError) as failure:
        create_app(settings_of(without=" picker ,consul"))
    assert str(failure.value) == f"without names 'consul', which is no extension; there are {names}"


@pytest.mark.extension
@pytest.mark.parametrize(
    ("extension", "asked"),
    [
        ("oidc", {"oidc_issuer": "https://id.test", "oidc_audience": "peltier", "oidc_jwks_url": "https://id.test/k"}),
        ("trainings", {"worker": True}),
        ("grpc", {"grpc_port": 0}),
        ("picker", {"routing_port": 0}),
        ("rollouts", {"recorded_answers_per_second": 3}),
    ],
)
def test_a_setting_that_asks_for_what_is_left_out_is_refused(settings_of, extension, asked):
    """Whoever leaves it out: without its identity provider a server would be open. Bounds alone ask for nothing."""
    settings = settings_of(**asked)
    reduced = tuple(one for one in EXTENSIONS if one.name != extension)
    expected = f"{next(iter(asked))} asks for the extension '{extension}', which is left out: unset it, or keep that"
    for one, extensions in ((settings_of(**asked, without=extension), EXTENSIONS), (settings, reduced), (settings, ())):
        with pytest.raises(SettingsError) as failure:
            create_app(one, extensions=extensions)
        assert str(failure.value) == expected
    bounds = {"max_batch_lines": 3, "max_recorded_answers": 3, "routing_prefix": "x_", "oidc_tenant_claim": "team"}
    create_app(settings_of(without="oidc,trainings,grpc,picker,rollouts,batches", **bounds))


class Part:
    def __init__(self, closed: list[str], name: str) -> None:
        self._closed, self._name = closed, name

    async def close(self) -> None:
        """Fails after it has said so."""
        self._closed.append(self._name)
        raise RuntimeError(f"{self._name} cannot be closed")


async def test_a_part_that_cannot_be_closed_hinders_no_other(settings_of, monkeypatch, caplog):
    """Every close runs, in reverse order, and that of the service; the log has each failure."""
    closed = list[str]()
    _record_end_of_service(closed, monkeypatch)

    async def open_part(*_: object) -> Part:
        return Part(closed, "port")

    extensions = (
        Extension("a", open=open_part, start=lambda *_: Part(closed, "first")),
        Extension("b", start=lambda *_: Part(closed, "second")),
    )
    app = create_app(settings_of(), extensions=extensions)
    async with app.router.lifespan_context(app):
        await app.state.lifecycle.settled()
    assert closed == ["port", "second", "first", "service"]
    assert all(f"{name} cannot be closed" in caplog.text for name in ("port", "second", "first"))


async def test_a_start_that_fails_leaves_nothing_open(settings_of, monkeypatch):
    closed = list[str]()
    _record_end_of_service(closed, monkeypatch)

    def fail(*_: object) -> Part:
        raise RuntimeError("it cannot start")

    extensions = (Extension("a", start=lambda *_: Part(closed, "first")), Extension("b", start=fail))
    app = create_app(settings_of(), extensions=extensions)
    async with app.router.lifespan_context(app):
        with pytest.raises(RuntimeError, match="it cannot start"):
            await app.state.lifecycle.settled()
    assert closed == ["first", "service"]


async def test_a_ready_server_has_read_what_its_extensions_follow(settings_of: Callable[..., Settings]) -> None:
    """Not a quarter of a second later."""
    read = list[RegistrySnapshot]()

    async def reader(snapshot: RegistrySnapshot) -> None:
        read.append(snapshot)

    def start(_: object, service: Service) -> BackgroundTask:
        service.store.sync.read_also(reader)
        return BackgroundTask()

    app = create_app(settings_of(), extensions=(Extension("a", start=start),))
    async with app.router.lifespan_context(app):
        await app.state.lifecycle.settled()
        assert len(read) == 1


def _record_end_of_service(closed: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    close = Service.close

    async def closing(service: Service) -> None:
        closed.append("service")
        await close(service)

    monkeypatch.setattr(Service, "close", closing)
