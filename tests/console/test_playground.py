"""Predictions from the page."""

import json
import os
import re
import subprocess

import pytest
from playwright.sync_api import expect

from tests.console.site import ADMIN, Site
from tests.console.visitor import Open, num_colours, wait_until_drawn
from tests.support.chromium import needs_chromium

pytestmark = [needs_chromium, pytest.mark.slow]
TEXT = "my card was stolen"


def test_a_prediction_names_who_answered(open_tab: Open, site: Site) -> None:
    """The label that the API answers, the version, its digest and the batch."""
    expected = site.client.post("/v1/tasks/banking77/predict", json={"inputs": TEXT}).json()
    page = open_tab().open("/playground?task=banking77")
    page.get_by_role("textbox", name="Text").fill(TEXT)
    page.keyboard.press("Control+Enter")
    expect(page.get_by_label("Answer", exact=True)).to_contain_text(expected["predictions"][0]["label"])
    who = page.get_by_label("Who answered")
    expect(who).to_contain_text("default:banking77@1")
    expect(who).to_contain_text(expected["adapter"]["digest"].removeprefix("sha256:")[:8])
    expect(who).to_contain_text("batch of 1 row")


def test_the_page_opens_with_an_example_of_the_first_adapter(open_tab: Open, site: Site) -> None:
    """A click answers it. What the visitor writes stays when another task is chosen."""
    manifest = site.client.get("/v1/adapters/banking77/versions/1/manifest").json()["manifest"]
    page = open_tab().open("/playground")
    text = page.get_by_role("textbox", name="Text")
    expect(text).to_have_value(manifest["golden"][0]["input"])
    page.get_by_role("button", name="Predict").click()
    expect(page.get_by_label("Who answered")).to_contain_text("default:banking77@")
    text.fill(TEXT)
    page.get_by_role("combobox", name="Task").fill("clinc150")
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_contain_text("150 labels")
    expect(text).to_have_value(TEXT)


def test_gates_are_drawn(open_tab: Open, site: Site) -> None:
    """Those of the example clinc150, a UniPELT, as a heat map, and in words their means as the API answers them."""
    body = {"inputs": TEXT, "parameters": {"return_gates": True}}
    gates = site.client.post("/v1/tasks/clinc150/predict", json=body).json()["predictions"][0]["gates"]
    page = open_tab().open("/playground?task=clinc150")
    page.get_by_role("textbox", name="Text").fill(TEXT)
    page.get_by_role("button", name="Predict").click()
    drawn = page.get_by_role("img", name="Gates")
    for part, values in gates.items():
        own = [value for value in values if value is not None]
        expect(drawn).to_have_attribute("aria-label", re.compile(f"{re.escape(part)} {sum(own) / len(own):.2f}"))
    wait_until_drawn(drawn, 1)
    assert num_colours(drawn) > len(gates)


def test_a_copied_command_asks_the_same(open_tab: Open, site: Site) -> None:
    """The command for curl runs as it is shown, with the key in the environment."""
    page = open_tab().open("/playground?task=banking77")
    page.get_by_role("textbox", name="Text").fill(TEXT)
    page.get_by_text("Copy as curl").click()
    expect(page.locator("pre")).to_contain_text(TEXT)
    command = page.locator("pre").inner_text()
    assert ADMIN not in command
    environment = os.environ | {"PELTIER_API_KEY": ADMIN}
    ran = subprocess.run(["/bin/bash", "-c", command], env=environment, capture_output=True)
    expected = site.client.post("/v1/tasks/banking77/predict", json={"inputs": TEXT}).json()
    assert json.loads(ran.stdout)["predictions"] == expected["predictions"]


def test_several_tasks_answer_one_text(open_tab: Open) -> None:
    page = open_tab().open("/playground?mode=several&tasks=banking77,clinc150")
    page.get_by_role("textbox", name="Text").fill(TEXT)
    page.get_by_role("button", name="Predict").click()
    for task in ("banking77", "clinc150"):
        expect(page.locator("main")).to_contain_text(f"default:{task}@1")


def test_a_pasted_table_is_one_mixed_batch(open_tab: Open) -> None:
    page = open_tab().open("/playground?mode=batch")
    page.get_by_label("Rows").fill(f"banking77\t{TEXT}\nclinc150\t{TEXT}\nnothing\t{TEXT}")
    page.get_by_role("button", name="Predict 3 rows").click()
    expect(page.locator("main")).to_contain_text("lost_or_stolen_card")
    expect(page.locator("main")).to_contain_text("nothing")
