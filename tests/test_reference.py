"""The generated pages of docs/reference are what the code says."""

import re

from docs.generator.__main__ import PAGES, REFERENCE, stale_pages
from docs.generator.settings_page import settings_page


def test_the_reference_pages_are_those_of_the_code():
    """Each page is what `make reference` would write now."""
    assert list(stale_pages()) == []


def test_a_page_that_differs_is_stale(tmp_path, monkeypatch):
    """The check compares whole files: one that is missing or edited by hand is found."""
    monkeypatch.setattr("docs.generator.__main__.REFERENCE", tmp_path)
    for name in PAGES:
        (tmp_path / name).write_text((REFERENCE / name).read_text())
    (tmp_path / "errors.md").write_text("")
    (tmp_path / "routes.md").unlink()
    assert sorted(path.name for path in stale_pages()) == ["errors.md", "routes.md"]


def test_every_setting_is_described():
    """Each row of the settings has a description."""
    rows = re.findall(r"^\| `.*\|$", settings_page(), flags=re.MULTILINE)
    assert len(rows) > 40
    assert [row for row in rows if row.endswith("|  |")] == []
