"""Requests that OpenAPI allows, and requests that it does not: always a documented answer, never a 5xx."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import httpx2
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from peltier_backbone.backbone import Backbone
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.server.conftest import Listen

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
EXAMPLES = settings().max_examples // 15  # of each operation
KEY = "the operator's"
BEARER = {"authorization": f"Bearer {KEY}"}


@dataclass(frozen=True)
class Site:
    """A server over a real socket with two adapters; `headers` let every request in."""

    url: str
    headers: dict[str, str]
    data: bytes

    def restore(self) -> None:
        """Brings `spare` back with an alias, whatever the requests before have done to it."""
        with httpx2.Client(base_url=self.url, headers=self.headers, timeout=30) as client:
            upload = client.post("/v1/adapters", files={"file": self.data}, data={"name": "spare"})
            version = upload.raise_for_status().json()["version"]
            client.put("/v1/adapters/spare/aliases/production", json={"version": version}).raise_for_status()

    @contextmanager
    def session(self) -> Iterator[requests.Session]:
        with requests.Session() as session:
            session.headers.update(self.headers)
            yield session


@pytest.fixture(params=["bert", pytest.param("t5", marks=pytest.mark.slow)])
def site(request: pytest.FixtureRequest, listen: Listen, make_artifact: Callable[..., bytes]) -> Iterator[Site]:
    """BERT behind a key; T5, with an adapter that writes texts, open as on a machine of one's own."""
    backbone: Backbone = request.getfixturevalue(request.param)
    key = {"admin_key": "k" * 40} if request.param == "bert" else {}
    task_type = "text2text" if request.param == "t5" else "classification"
    with listen(backbone=str(request.getfixturevalue(f"{request.param}_directory")), **key) as listening:
        headers = {"authorization": f"Bearer {key['admin_key']}"} if key else {}
        data = make_artifact(backbone, "lora", task_type=task_type)
        httpx2.post(
            f"{listening.url}/v1/adapters", files={"file": data}, headers=headers, timeout=30
        ).raise_for_status()
        yield Site(listening.url, headers, data)


@pytest.mark.hypothesis  # it draws within
def test_answers_of_all_reads_and_of_a_change_are_documented(site: Site) -> None:
    """With the names of real adapters, versions and aliases, so that requests get past the look-up."""
    _fuzz_all(site, GenerationMode.POSITIVE, of_change="/v1/adapters/{name}/aliases/{alias}")


# In the gate: the test before.
@pytest.mark.slow
@pytest.mark.hypothesis
@pytest.mark.parametrize("mode", GenerationMode)
def test_every_answer_is_documented(site: Site, mode: GenerationMode) -> None:
    """Of every route, also to requests that the document does not allow."""
    _fuzz_all(site, mode)


def _fuzz_all(site: Site, mode: GenerationMode, of_change: str | None = None) -> None:
    """Fuzzes every operation, or only those that read and the one that puts to the path `of_change`."""
    schema = schemathesis.openapi.from_url(f"{site.url}/openapi.json", headers=site.headers)
    if of_change is not None:
        schema = schema.include(method="GET").include(method="PUT", path=of_change)
    with site.session() as session:
        # The keys last, because a server that has one is no longer open.
        operations = [found.ok() for found in schema.get_all_operations()]
        for operation in sorted(operations, key=lambda one: one.path.startswith("/v1/keys")):
            if mode is GenerationMode.NEGATIVE and not (operation.body or operation.query or operation.path_parameters):
                continue
            if operation.method != "get" and "{name}" in operation.path:
                site.restore()
            _fuzz(operation, mode, session)


def _fuzz(operation: schemathesis.APIOperation, mode: GenerationMode, session: requests.Session) -> None:
    # What requests change shall not be what others look at.
    name = "demo" if operation.method == "get" else "spare"
    real = {"task": "demo", "model": "demo", "name": name, "version": 1, "alias": "production"}
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
