"""Whatever OpenAPI allows to be sent, and what it does not: always a documented answer, never a 5xx."""

from collections.abc import Callable, Iterator

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from peltier_backbone.load import Backbone
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.server.conftest import Listen

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
EXAMPLES = 12
KEY = "the operator's"
BEARER = {"authorization": f"Bearer {KEY}"}


@pytest.fixture(params=["bert", "t5"])
def url(request: pytest.FixtureRequest, listen: Listen, make_artifact: Callable[..., bytes]) -> Iterator[str]:
    """A server over a real socket, with one adapter: on T5 one that writes texts."""
    backbone: Backbone = request.getfixturevalue(request.param)
    task_type = "text2text" if request.param == "t5" else "classification"
    # With a key, because an open server would be closed by the first key that is made here.
    with listen(backbone=str(request.getfixturevalue(f"{request.param}_directory")), admin_key=KEY) as listening:
        listening.upload(make_artifact(backbone, "lora", task_type=task_type), KEY)
        requests.post(f"{listening.url}/v1/tenants", json={"name": "b"}, headers=BEARER, timeout=30).raise_for_status()
        yield listening.url


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
def test_every_answer_is_documented(url: str, mode: GenerationMode) -> None:
    """With the names of real adapters, so that requests get past the look-up."""
    schema = schemathesis.openapi.from_url(f"{url}/openapi.json", headers=BEARER)
    with requests.Session() as session:
        for found in schema.get_all_operations():
            operation = found.ok()
            if mode is GenerationMode.NEGATIVE and not (operation.body or operation.query or operation.path_parameters):
                continue
            _fuzz(operation, mode, session)


def _fuzz(operation: schemathesis.APIOperation, mode: GenerationMode, session: requests.Session) -> None:
    name = "demo" if operation.method == "get" else "gone"
    real = {"task": "demo", "model": "demo", "name": name, "version": 1, "tenant": "b"}
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
        case.call_and_validate(session=session, headers=BEARER, checks=CHECKS)

    run()
