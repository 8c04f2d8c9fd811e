"""Every error has the documented body."""

import pytest
from fastapi.exceptions import RequestValidationError
from peltier_adapters.errors import ArtifactError, InputError
from peltier_client.errors import PeltierError, QueueFull, Unauthorized, error_classes
from peltier_server.errors import describe_errors, error_response, to_wire
from peltier_store.blobs.blobs import BlobError
from peltier_store.registry.errors import RegistryConflict, RegistryError

_SCOPE = {"type": "http", "path": "/v1/predict"}


@pytest.mark.parametrize("cls", [cls for cls in error_classes() if cls.status])
def test_every_error_keeps_its_code_and_status(cls: type[PeltierError]) -> None:
    answer = error_response(to_wire(cls("a sentence", ["a reason"])), _SCOPE)
    assert answer.status_code == cls.status
    assert answer.body == (b'{"error":{"code":"%s","message":"a sentence","details":["a reason"]}}' % cls.code.encode())


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ArtifactError(["one", "two"]), "artifact_refused"),
        (InputError("no"), "invalid_input"),
        (BlobError("the disk is gone: /secret/path"), "unavailable"),
        (RegistryError("the registry '/secret/path' failed: disk I/O error"), "unavailable"),
        (RegistryConflict("no"), "conflict"),
    ],
)
def test_errors_of_the_rooms_have_a_code(error: Exception, code: str) -> None:
    assert to_wire(error).code == code


def test_a_failure_of_the_server_tells_no_secrets() -> None:
    assert "/secret" not in str(to_wire(BlobError("the disk is gone: /secret/path")))


def test_every_reason_of_a_refused_artifact_is_sent() -> None:
    assert to_wire(ArtifactError(["one", "two"])).details == ["one", "two"]


def test_headers_that_errors_carry() -> None:
    """`Retry-After` in whole seconds, never 0; and how to authenticate."""
    assert error_response(QueueFull("full", retry_after=0.2), _SCOPE).headers["retry-after"] == "1"
    assert error_response(Unauthorized("who?"), _SCOPE).headers["www-authenticate"] == "Bearer"


def test_a_value_that_breaks_a_rule_is_shown() -> None:
    problem = {"type": "greater_than_equal", "loc": ("query", "limit"), "msg": "Input should be big", "input": "0"}
    assert str(to_wire(RequestValidationError([problem]))) == "limit is '0': input should be big"


def test_openapi_has_400_for_every_route() -> None:
    assert 400 in describe_errors()
