"""Whatever OpenAPI allows to be sent, and what it does not: always a documented answer, never a 5xx."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator

import httpx2
import pytest
import requests
import schemathesis
import uvicorn
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from peltier_backbone.load import Backbone
from peltier_server.app import create_app
from peltier_server.settings import Settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
EXAMPLES = 12


@pytest.fixture
def url(settings_of: Callable[..., Settings], bert: Backbone, make_artifact: Callable[..., bytes]) -> Iterator[str]:
    """A server over a real socket, with one adapter."""
    app = create_app(settings_of())
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None))
    thread = threading.Thread(target=lambda: asyncio.run(server.serve()))
    thread.start()
    while not server.started or not app.state.lifecycle.ready:
        time.sleep(0.01)
    address = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    httpx2.post(f"{address}/v1/adapters", files={"file": make_artifact(bert, "lora")}).raise_for_status()
    yield address
    server.should_exit = True
    thread.join()


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
def test_every_answer_is_documented(url: str, mode: GenerationMode) -> None:
    """With the names of real adapters, so that requests get past the look-up."""
    schema = schemathesis.openapi.from_url(f"{url}/openapi.json")
    with requests.Session() as session:
        for found in schema.get_all_operations():
            operation = found.ok()
            if mode is GenerationMode.NEGATIVE and not (operation.body or operation.query or operation.path_parameters):
                continue
            _fuzz(operation, mode, session)


def _fuzz(operation: schemathesis.APIOperation, mode: GenerationMode, session: requests.Session) -> None:
    real = {"task": "demo", "name": "demo" if operation.method == "get" else "gone", "version": 1}
    known = {name: real[name] for name in real if f"{{{name}}}" in operation.path}
    strategies = [operation.as_strategy(mode)]
    if known and mode is GenerationMode.POSITIVE:
        strategies.append(operation.as_strategy(mode, path_parameters=known))

    @given(case=st.one_of(strategies))
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def run(case: schemathesis.Case) -> None:
        case.call_and_validate(session=session, checks=CHECKS)

    run()
