"""What each picture shows."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass

from playwright.sync_api import Page

from docs.pictures.content import EXAMPLES, WITH_ROLLOUT, Site, broken, labelled, texts

Prepare = Callable[[Page, Site], object]
_TEXT = "i want to move 50 dollars from my savings to my checking account"
_LIVE_ROUNDS, _POLL_MS = 14, 2000
_numbers = itertools.count(1)


@dataclass(frozen=True)
class Scene:
    """A page of the console, and what is done on it before the picture is taken. `{training}` in its path is the id of
    the site's training."""

    name: str
    path: str
    prepare: Prepare = lambda page, site: None


def _upload(page: Page, site: Site) -> None:
    page.get_by_label("Name").fill(f"routing-{next(_numbers)}")
    page.get_by_label("Alias").fill("canary")
    good = EXAMPLES / "banking77-adamix.safetensors"
    page.get_by_label("Artifacts").set_input_files(good)
    page.get_by_text("published").wait_for()
    file = {"name": "edited.safetensors", "mimeType": "application/octet-stream", "buffer": broken(good)}
    page.get_by_label("Artifacts").set_input_files(file)
    page.get_by_text("refused", exact=True).wait_for()


def _predict(page: Page, site: Site) -> None:
    page.get_by_role("textbox", name="Text").fill(_TEXT)
    page.get_by_role("button", name="Predict").click()
    page.locator("canvas").first.wait_for()
    page.locator("canvas").first.scroll_into_view_if_needed()


def _several(page: Page, site: Site) -> None:
    page.get_by_role("textbox", name="Text").fill(_TEXT)
    page.get_by_role("button", name="Predict").click()
    page.get_by_text("default:intents@1").wait_for()


def _batch(page: Page, site: Site) -> None:
    tasks = itertools.cycle(["banking77", "clinc150", "intents"])
    rows = "\n".join(f"{task}\t{text}" for task, text in zip(tasks, texts("clinc150", 240)[::12], strict=False))
    page.get_by_label("Rows").fill(rows)
    page.get_by_role("button", name="Predict").click()
    page.get_by_role("table", name="Results").get_by_role("row").nth(2).wait_for()
    page.get_by_role("button", name="Predict").scroll_into_view_if_needed()


def _compare(page: Page, site: Site) -> None:
    rows = labelled("banking77", 160)
    page.get_by_label("Labelled rows").fill(rows)
    page.get_by_role("button", name="Compare on").click()
    page.get_by_text(f"{len(rows.splitlines()) - 1} rows judged").wait_for()
    page.locator("canvas").first.wait_for()
    page.get_by_label("Verdict").evaluate("section => section.scrollIntoView({block: 'end'})")


def _live(page: Page, site: Site) -> None:
    for _ in range(_LIVE_ROUNDS):
        site.ask(texts("banking77", 12))
        # The page asks the server again.
        page.wait_for_timeout(_POLL_MS)


def _report(page: Page, site: Site) -> None:
    page.get_by_label("Report files").set_input_files(site.trained.with_name("intents.report.json"))
    page.locator("canvas").first.wait_for()


def _palette(page: Page, site: Site) -> None:
    page.keyboard.press("Control+k")
    page.keyboard.type("ba")
    page.get_by_role("option").first.wait_for()


def _rollout(page: Page, site: Site) -> None:
    evidence = page.get_by_role("table", name="Evidence")
    evidence.wait_for()
    evidence.scroll_into_view_if_needed()


def _training(page: Page, site: Site) -> None:
    page.locator("canvas").first.wait_for()


SCENES = (
    Scene("adapters", "/adapters"),
    Scene("adapter", "/adapters/banking77"),
    Scene("rollout", f"/adapters/{WITH_ROLLOUT}", _rollout),
    Scene("trainings", "/trainings"),
    Scene("training", "/trainings/{training}", _training),
    Scene("palette", "/adapters", _palette),
    Scene("playground", "/playground?task=intents", _predict),
    Scene("several", "/playground?mode=several&tasks=banking77,clinc150,intents", _several),
    Scene("batch", "/playground?mode=batch", _batch),
    Scene("compare", "/compare?a=banking77@1&b=banking77@2", _compare),
    Scene("live", "/live", _live),
    Scene("tenants", "/tenants?tenant=search"),
    Scene("audit", "/audit"),
    Scene("reports", "/reports", _report),
    Scene("upload", "/upload", _upload),
)
