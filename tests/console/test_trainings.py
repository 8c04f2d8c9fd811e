"""Trainings on the server: their list, a page of each, and a dialog for a new one."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from peltier_store.location import StoreLocation
from peltier_store.registry.extensions.queue_records import NewEvent
from peltier_store.registry.extensions.registry import Registry
from playwright.sync_api import expect

from tests.console.site import Site
from tests.console.visitor import Open, wait_until_drawn
from tests.support.chromium import needs_chromium

pytestmark = [needs_chromium, pytest.mark.slow]
ROWS = "text,label\nwhere is my card,card\nsend 5 dollars,transfer\n"
WORKER = "played"
Played = Callable[[Callable[[Registry], Coroutine[Any, Any, Any]]], Any]


@pytest.fixture
def play(site: Site) -> Iterator[Played]:
    """Runs what a worker does, in a thread without the event loop of the browser."""

    async def work(step: Callable[[Registry], Coroutine[Any, Any, Any]]) -> Any:
        registry = await Registry.open(StoreLocation.of(str(site.store)).registry)
        try:
            return await step(registry)
        finally:
            await registry.close()

    with ThreadPoolExecutor(1) as thread:
        yield lambda step: thread.submit(lambda: asyncio.run(work(step))).result()


def begin(site: Site, task: str) -> str:
    """A new training that waits; its id."""
    rows = [{"text": "where is my card", "label": "card"}, {"text": "send 5 dollars", "label": "transfer"}]
    answer = site.client.post("/v1/trainings", json={"task": task, "examples": rows, "preset": "compacter"})
    answer.raise_for_status()
    return str(answer.json()["id"])


def at(step: int) -> NewEvent:
    """A validation after this step of ten."""
    progress = {"step": step, "max_steps": 10, "epoch": step / 2, "loss": 3 / step, "learning_rate": 1e-3 / step}
    score = {
        "metric": "accuracy",
        "value": step / 10,
        "best": step / 10,
        "best_step": step,
        "seconds_left": 10.0 - step,
    }
    return NewEvent("progress", f"Step {step} is done.", {**progress, **score})


def test_pasted_rows_become_a_training(open_tab: Open, site: Site) -> None:
    """The dialog leads to the page of the new training, and the list has it."""
    page = open_tab().open("/trainings")
    page.get_by_role("button", name="New training").click()
    page.get_by_label("Task", exact=True).fill("pasted")
    page.get_by_label("Or paste rows").fill(ROWS)
    page.get_by_role("button", name="Begin training").click()
    expect(page.get_by_role("heading", name="pasted", level=1)).to_be_visible()
    expect(page.locator("main")).to_contain_text("queued")
    page.get_by_role("link", name="Trainings").click()
    expect(page.get_by_role("row").filter(has_text="pasted")).to_contain_text("queued")
    page.get_by_label("Status").select_option("failed")
    expect(page.locator("main")).not_to_contain_text("pasted")


def test_a_refusal_is_shown_in_the_dialog(open_tab: Open, site: Site) -> None:
    """In the server's words; a file that was uploaded for the training is deleted."""
    page = open_tab(is_refused=True).open("/trainings")
    page.get_by_role("button", name="New training").click()
    page.get_by_label("Task", exact=True).fill("refused")
    page.get_by_label("Preset").fill("compactor")
    file = {"name": "rows.csv", "mimeType": "text/csv", "buffer": ROWS.encode()}
    page.get_by_label("File of examples").set_input_files(file)
    page.get_by_role("button", name="Begin training").click()
    expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("the nearest is 'compacter'")
    assert site.client.get("/v1/files").json()["data"] == []


def test_curves_grow_while_the_training_runs(open_tab: Open, site: Site, play: Played) -> None:
    """What a worker reports is drawn without a reload, with its warnings, and a pause reaches the worker."""
    training = begin(site, "curves")

    async def claim(registry: Registry) -> None:
        while (claimed := await registry.trainings.claim(WORKER)) is not None and claimed.id != training:
            pass
        assert claimed is not None

    async def report(registry: Registry) -> str | None:
        preflight = {"rows": {"train": 2, "validation": 1}, "warnings": ["Training rows: 2, which are few."]}
        events = [at(2), at(4)]
        return await registry.trainings.renew(
            training, WORKER, progress=events[-1].data, preflight=preflight, events=events
        )

    play(claim)
    page = open_tab().open(f"/trainings/{training}")
    expect(page.get_by_role("region", name="Training loss")).to_contain_text("Nothing yet")
    assert play(report) is None
    chart = page.get_by_role("region", name="Validation accuracy").get_by_role("img")
    expect(chart).to_be_visible()
    wait_until_drawn(chart, 1)
    expect(page.locator("main")).to_contain_text("Training rows: 2, which are few.")
    expect(page.locator("main")).to_contain_text("step 4 of 10")
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_text("pausing")).to_be_visible()
    assert play(report) == "pause"


def test_a_training_is_cancelled_and_deleted_after_a_question(open_tab: Open, site: Site) -> None:
    training = begin(site, "doomed")
    page = open_tab().open(f"/trainings/{training}")
    page.get_by_role("button", name="Pause").click()
    page.get_by_role("button", name="Resume").click()
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel the training").click()
    expect(page.locator("main")).to_contain_text("Its owner cancelled it.")
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page.get_by_role("heading", name="Trainings", level=1)).to_be_visible()
    assert site.client.get(f"/v1/trainings/{training}").status_code == 404
