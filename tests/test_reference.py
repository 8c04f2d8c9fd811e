"""The built pages: the reference lists all that the code has, and every link of a built page leads somewhere."""

import re
import sys
from pathlib import Path

import peltier_client
import pytest
from peltier_client.cli import create_command
from peltier_client.errors import error_classes
from peltier_server.app import create_app
from peltier_server.extensions.settings import SETTINGS, Settings

from docs.generator.__main__ import PAGES, REFERENCE, main
from docs.site.sources import copy_sources, navigation
from tests.support.links import dead_links

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pages of the site, with those that the command writes."""
    folder = tmp_path_factory.mktemp("pages")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["python -m docs.generator", str(folder)])
        main()
    copy_sources(ROOT, folder)
    return folder


def headings(page: Path) -> list[str]:
    """The headings of a page, without the signs in front of them."""
    return re.findall(r"^#+ (.*)$", page.read_text(), flags=re.MULTILINE)


def rows(page: Path) -> dict[str, str]:
    """The last cell of each row of the tables, by the name in the first."""
    return dict(re.findall(r"^\| `([^`]+)` \|.* \| ?(.*) \|$", page.read_text(), flags=re.MULTILINE))


def test_every_command_has_a_section(built: Path) -> None:
    """Under its name, the commands of a group too."""
    found = {heading.split()[1] for heading in headings(built / REFERENCE / "commands.md")[1:]}
    assert found == set(create_command().commands)


def test_every_route_has_a_section(built: Path) -> None:
    """Each method of each path that the server's OpenAPI document has."""
    paths = create_app(Settings()).openapi()["paths"]
    served = {f"{method.upper()} {path}" for path, methods in paths.items() for method in methods}
    assert len(served) > 40
    assert served - set(headings(built / REFERENCE / "routes.md")) == set()


def test_every_setting_is_described(built: Path) -> None:
    """Each has a row with a description."""
    described = rows(built / REFERENCE / "settings.md")
    assert set(described) == set(SETTINGS)
    assert [name for name, text in described.items() if not text] == []


def test_every_error_has_a_row(built: Path) -> None:
    """With its code, its class and what it means."""
    text = (built / REFERENCE / "errors.md").read_text()
    found = dict(re.findall(r"^\| \w+ \|.*\| `(\w+)` \| `(\w+)`.* \| \S.* \|$", text, flags=re.MULTILINE))
    assert found == {error.code: error.__name__ for error in error_classes()}


def test_every_name_of_the_python_client_is_there(built: Path) -> None:
    """Whatever `peltier_client` exports has a heading, or a row among the errors."""
    page = built / REFERENCE / "python.md"
    assert set(peltier_client.__all__) - set(headings(page)) - set(rows(page)) == {"PeltierError"}


@pytest.mark.parametrize("page", [*(str(REFERENCE / name) for name in PAGES), "README.md", "docs/methods/unipelt.md"])
def test_links_of_built_pages_lead_somewhere(built: Path, page: str) -> None:
    """To pages, files and headings of the site."""
    assert dead_links(built / page) == []


def test_a_page_stands_for_the_built_ones() -> None:
    """docs/reference has only a page with a section for each built page. The site has the built pages."""
    assert [path.name for path in (ROOT / REFERENCE).iterdir()] == ["README.md"]
    sections = {heading.lower() for heading in headings(ROOT / REFERENCE / "README.md")}
    assert sections == {"reference", "methods", *(name.removesuffix(".md") for name in PAGES)}
    missing = {page for page in navigation(ROOT) if not (ROOT / page).exists()}
    assert missing == {REFERENCE / name for name in PAGES}
