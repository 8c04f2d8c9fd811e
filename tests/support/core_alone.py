"""The option `--core-alone`: the servers of tests have no extension, and tests of extensions are left out."""

import pytest

_EXTENSIONS = "tests/server/extensions/"


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--core-alone tests/server`, as in `make test-all`."""
    parser.addoption("--core-alone", action="store_true", help="servers without extensions, for tests of the core")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Leaves extensions out of each app that no test gives some, except in the process that only distributes tests."""
    if session.config.getoption("--core-alone") and session.config.getoption("dist", "no") == "no":
        from peltier_server.app import create_app

        create_app.__kwdefaults__["extensions"] = ()  # type: ignore[index]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what needs an extension."""
    if not config.getoption("--core-alone"):
        return
    left_out = [one for one in items if one.get_closest_marker("extension") or one.nodeid.startswith(_EXTENSIONS)]
    items[:] = [one for one in items if one not in left_out]
    config.hook.pytest_deselected(items=left_out)
