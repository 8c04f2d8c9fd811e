"""The documentation site: its pages and versions, and the built pages in a real browser."""

import json
import shutil
import subprocess
import threading
from collections.abc import Iterator, Sequence
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from docs.pictures.chromium import chromium
from docs.site.__main__ import build_all, build_pages
from docs.site.formula import as_mathml
from docs.site.sources import SETTINGS, BrokenLink, copy_sources, navigation
from docs.site.versions import NEXT, released, working_version, write_index
from tests.support.chromium import needs_chromium

ROOT = Path(__file__).parent.parent


def test_every_page_has_its_place():
    """Each page of docs and of the repository's root is in the navigation once; one stands for the built pages."""
    pages = {*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")} - {ROOT / "docs/reference/README.md"}
    listed = navigation(ROOT)
    assert {path.relative_to(ROOT) for path in pages} - set(listed) == set()
    assert len(set(listed)) == len(listed)


def write_tree(root: Path, text: str, version: str = "0.1.0", pages: Sequence[str] = ("README.md",)) -> None:
    """A tree with one page, whose navigation has these."""
    (root / SETTINGS).parent.mkdir(parents=True, exist_ok=True)
    settings = (ROOT / SETTINGS).read_text()
    start, end = settings.index("nav = ["), settings.index("[project.theme]")
    (root / SETTINGS).write_text(f"{settings[:start]}nav = {json.dumps(pages)}\n{settings[end:]}")
    (root / SETTINGS.with_name("theme.css")).write_text("")
    (root / "pyproject.toml").write_text(f'[project]\nversion = "{version}"\n')
    (root / "README.md").write_text(text)


def test_files_that_pages_link_to_come_with_them(tmp_path: Path):
    """At their paths of the tree, in any number of steps; what no page links to stays behind."""
    write_tree(tmp_path / "tree", "# Title\n[a](deploy/a.md#b)\n```\n[c](none)\n```\n")
    (tmp_path / "tree/deploy").mkdir()
    (tmp_path / "tree/deploy/a.md").write_text("![picture](../b.svg) [web](http://other.example/x)")
    for name in ("b.svg", "c.svg"):
        (tmp_path / "tree" / name).write_text("<svg/>")
    copy_sources(tmp_path / "tree", tmp_path / "copy")
    copied = {str(path.relative_to(tmp_path / "copy")) for path in (tmp_path / "copy").rglob("*") if path.is_file()}
    assert copied == {"README.md", "deploy/a.md", "b.svg", "theme.css"}


def test_a_link_to_a_section_about_a_built_page_leads_to_the_page(tmp_path: Path):
    """In the site; the repository has the section only."""
    write_tree(tmp_path / "tree", "[a](docs/reference/README.md#routes)")
    built = tmp_path / "copy/docs/reference/routes.md"
    built.parent.mkdir(parents=True)
    built.write_text("# Routes")
    copy_sources(tmp_path / "tree", tmp_path / "copy")
    assert (tmp_path / "copy/README.md").read_text() == "[a](docs/reference/routes.md)"


def test_a_tree_builds_its_missing_pages_by_its_own_code(tmp_path: Path):
    """A release from a tag has pages of its own version, not of the working tree."""
    write_tree(tmp_path, "# Title", pages=("README.md", "built.md"))
    package, generator = tmp_path / "server/peltier_server", tmp_path / "docs/generator"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("NAME = 'of the tree'")
    generator.mkdir()
    (generator / "__main__.py").write_text(
        "import sys, peltier_server\nprint(peltier_server.NAME, file=open(sys.argv[1], 'w'))\n"
    )
    build_pages(tmp_path, tmp_path / "output")
    assert (tmp_path / "output").read_text() == "of the tree\n"


def test_a_link_that_leads_nowhere_is_refused(tmp_path: Path):
    """The error names the page and the file."""
    write_tree(tmp_path, "[a](docs/none.svg)")
    with pytest.raises(BrokenLink, match=r"^README.md links to docs/none.svg, which is not a file of the tree$"):
        copy_sources(tmp_path, tmp_path / "copy")


def test_a_formula_is_mathml():
    """What browsers draw without a script."""
    drawn = as_mathml("h' = h + \\sum_i W_i", "math", "math", {}, None)
    assert drawn.startswith('<div class="math"><math ')
    assert "<msub>" in drawn


def git(root: Path, *arguments: str) -> None:
    own = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "tag.gpgsign=false"]
    subprocess.run([str(shutil.which("git")), "-C", str(root), *own, *arguments], check=True, capture_output=True)


@pytest.fixture
def history(tmp_path: Path) -> Path:
    """A repository with a tag before there was a site, two releases, and a change after them."""
    root = tmp_path / "history"
    root.mkdir()
    git(root, "init", "--quiet")
    for version in ("0.0.1", "0.9.0", "0.10.0"):
        if version == "0.0.1":
            (root / "README.md").write_text("# Before\n")
        else:
            write_tree(root, f"# Peltier\n\nRelease {version}.\n", version)
        git(root, "add", ".")
        git(root, "commit", "--quiet", "--message", version)
        git(root, "tag", f"v{version}")
    write_tree(root, "# Peltier\n\nChanged.\n", "0.10.0")
    return root


def test_versions_are_the_releases_and_the_tree(history: Path, tmp_path: Path):
    """By version, newest first; the first page leads to the newest release."""
    releases = released(history)
    assert releases == ["0.10.0", "0.9.0"]
    assert working_version(history, releases) == NEXT
    assert working_version(history, []) == "0.10.0"
    write_index(tmp_path, NEXT, releases)
    entries = json.loads((tmp_path / "versions.json").read_text())
    assert [(one["version"], one["aliases"]) for one in entries] == [
        (NEXT, []), ("0.10.0", ["latest"]), ("0.9.0", []),
    ]  # fmt: skip
    assert 'url=0.10.0/"' in (tmp_path / "index.html").read_text()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


class Visitor:
    """Someone who reads a site below a path of a server; `foreign` is what a page asked of others, `said` what a page
    complained of."""

    def __init__(self, browser: Browser, site: Path, scheme: str = "light") -> None:
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(site.parent)))
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.origin = f"http://127.0.0.1:{self.server.server_port}"
        self.url = f"{self.origin}/{site.name}"
        self.foreign, self.said = list[str](), list[str]()
        self.page: Page = browser.new_context(color_scheme=scheme).new_page()  # type: ignore[arg-type]
        self.page.set_default_timeout(120_000)
        self.page.on("request", lambda request: self._ask(request.url))
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))

    def _ask(self, url: str) -> None:
        if not url.startswith((f"{self.origin}/", "data:", "blob:")):
            self.foreign.append(url)

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


# The tests above, and those of links in test_docs.py, are the quick ones of the same promises.
@pytest.mark.slow
@needs_chromium
def test_the_site_is_whole_in_itself(browser: Browser, tmp_path: Path):
    """Built without a warning; pages of every kind open in both modes, and a search finds a word, without a request to
    another origin or a complaint."""
    build_all(ROOT, tmp_path / "site")
    visitor = Visitor(browser, tmp_path / "site", "dark")
    page = visitor.page
    page.goto(f"{visitor.url}/")
    page.wait_for_url("**/site/*/")
    page.wait_for_load_state("networkidle")
    assert page.locator("h1").inner_text().startswith("Peltier")
    assert page.locator("body").get_attribute("data-md-color-scheme") == "slate"
    page.get_by_title("Light mode").first.click()
    assert page.locator("body").get_attribute("data-md-color-scheme") == "default"
    first = page.url
    listed = page.locator(".md-nav--primary a.md-nav__link:not([href*='#'])").evaluate_all(
        "all => all.map(a => a.href)"
    )
    assert len(set(listed)) == len(navigation(ROOT))
    for path in ("docs/guides/train/", "docs/reference/routes/", "docs/reference/python/", "docs/methods/unipelt/"):
        page.goto(first + path, wait_until="networkidle")
        assert page.locator("h1").count() == 1
        images = page.locator("article img").evaluate_all("all => all.map(one => one.naturalWidth)")
        assert 0 not in images
    assert page.locator("math").first.bounding_box()["height"] > 10  # type: ignore[index]
    page.keyboard.press("Control+k")
    page.get_by_role("combobox").fill("hypercomplex")
    page.get_by_role("option").first.get_by_text("hypercomplex").wait_for()
    assert (visitor.foreign, visitor.said) == ([], [])
    visitor.close()


@pytest.mark.slow
@needs_chromium
def test_a_reader_changes_the_version(browser: Browser, history: Path, tmp_path: Path):
    """Every page offers all versions; a release is built from its tag, not from the working tree."""
    build_all(history, tmp_path / "site")
    visitor = Visitor(browser, tmp_path / "site")
    page = visitor.page
    page.goto(f"{visitor.url}/")
    page.wait_for_url("**/site/0.10.0/")
    assert page.get_by_text("Release 0.10.0.").is_visible()
    page.locator(".md-version__current").hover(force=True)  # the menu opens over it
    links = page.locator(".md-version__link")
    assert [text.strip() for text in links.all_inner_texts()] == ["next", "0.10.0", "0.9.0"]
    links.get_by_text("0.9.0").click()
    page.get_by_text("Release 0.9.0.").wait_for()
    page.goto(f"{visitor.url}/{NEXT}/")
    assert page.get_by_text("Changed.").is_visible()
    assert (visitor.foreign, visitor.said) == ([], [])
    visitor.close()
