"""The page of a report in a real browser, without a network."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from peltier_training.report.answers import MAX_LABEL_LEN, MAX_MISTAKES, MAX_TEXT_LEN, LabelScores, Mistake
from peltier_training.report.page import render
from peltier_training.report.report import GateMap
from playwright.sync_api import Page

from docs.pictures.chromium import chromium
from tests.support.chromium import needs_chromium
from tests.training.report.test_page import HOSTILE, create_merging, create_report

pytestmark = needs_chromium


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    """An empty page of a browser that is offline."""
    with chromium() as browser:
        yield browser.new_context(offline=True).new_page()


@pytest.mark.slow
def test_the_page_opens_offline(page: Page, tmp_path: Path):
    """Every plot is drawn, nothing is asked for but the file itself, no name of a label runs, and nobody complains."""
    file = tmp_path / "toy.report.html"
    gates = GateMap(rows=20, means={"prefix": (0.1, 0.9, 0.5), "lora.query": (0.3, 0.2, 0.1)})
    file.write_text(render(create_report(HOSTILE, gates=gates, merging=create_merging())), encoding="utf-8")
    asked, said = list[str](), list[str]()
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("dialog", lambda dialog: said.append(dialog.message))
    page.goto(file.as_uri(), wait_until="networkidle")
    assert asked == [file.as_uri()]
    assert said == []
    assert page.title() == "toy: lora"
    plots = page.locator("svg[role=img]").all()
    assert len(plots) >= 3
    for plot in plots:
        box = plot.bounding_box()
        assert min(box["width"], box["height"]) > 50
    assert page.get_by_text(HOSTILE[0]).first.is_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


@pytest.mark.parametrize("width", [420, 1100])
def test_mistakes_fit_the_window(page: Page, tmp_path: Path, width: int):
    """The longest texts, labels and warnings there can be scroll within their tables, if at all; the page does not."""
    label, text = "x" * MAX_LABEL_LEN, "y" * MAX_TEXT_LEN
    mistakes = tuple(Mistake(input=(text, text), label=label, answer=label, score=0.5) for _ in range(MAX_MISTAKES))
    scores = (LabelScores(label=label, rows=9, precision=1.0, recall=0.5, f1=2 / 3),)
    file = tmp_path / "toy.report.html"
    report = create_report([label, "no"], mistakes=mistakes, label_scores=scores, warnings=(text, label))
    file.write_text(render(report), encoding="utf-8")
    page.set_viewport_size({"width": width, "height": 800})
    page.goto(file.as_uri(), wait_until="networkidle")
    assert page.get_by_text(text).first.is_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
