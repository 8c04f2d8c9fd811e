"""What uv is told of pip's settings."""

from pathlib import Path
from runpy import run_path
from typing import Any

import pytest

LISTING = """\
:env:.disable-pip-version-check='1'
:env:.extra-index-url='https://one.test/simple  https://two.test/simple'
global.cert='/etc/ssl/own.crt'
global.constraint='/etc/pip/constraints.txt'
global.extra-index-url='https://old.test/simple'
global.find-links='/opt/wheels'
global.index-url='https://weak.test/simple'
install.index-url='https://strong.test/simple'
"""


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return run_path(str(Path(__file__).parent.parent / "fast_install.py"))


def test_uv_finds_packages_where_pip_does(script: dict[str, Any]) -> None:
    """Variables override files, and settings of `pip install` those of every command."""
    settings = script["read_settings"](LISTING)
    assert script["uv_flags"](settings) == [
        *("--index", "https://one.test/simple", "--index", "https://two.test/simple"),
        *("--find-links", "/opt/wheels", "--constraint", "/etc/pip/constraints.txt"),
    ]
    assert script["uv_variables"](settings) == {
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "UV_DEFAULT_INDEX": "https://strong.test/simple",
        "SSL_CERT_FILE": "/etc/ssl/own.crt",
    }


def test_without_settings_uv_asks_its_own_index(script: dict[str, Any]) -> None:
    """Which is the one that pip asks."""
    assert script["uv_flags"](script["read_settings"]("")) == []
    assert script["uv_variables"]({}) == {"UV_INDEX_STRATEGY": "unsafe-best-match"}
