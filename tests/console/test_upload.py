"""Uploads by drag and drop, and what is said of a file that is refused."""

import hashlib
import json
from pathlib import Path
from uuid import uuid4

import pytest
from playwright.sync_api import Page, expect
from safetensors.numpy import load, save

from tests.console.conftest import EXAMPLES
from tests.console.site import Site
from tests.console.visitor import Open, wait_until_drawn
from tests.support.chromium import needs_chromium
from tests.training.report.test_page import HOSTILE, create_report

pytestmark = [needs_chromium, pytest.mark.slow]
ARTIFACT = (EXAMPLES / "clinc150.safetensors").read_bytes()


def drop(page: Page, file: Path) -> None:
    """Drops a file on the page as a visitor does, beside the box that says so."""
    devtools = page.context.new_cdp_session(page)
    data = {"items": [], "files": [str(file)], "dragOperationsMask": 1}
    for step in ("dragEnter", "dragOver", "drop"):
        devtools.send("Input.dispatchDragEvent", {"type": step, "x": 700, "y": 600, "data": data})


def without_tensors(artifact: bytes) -> bytes:
    """An artifact whose first tensor is missing and whose second one has another shape."""
    length = int.from_bytes(artifact[:8], "little")
    metadata = json.loads(artifact[8 : 8 + length])["__metadata__"]
    tensors = load(artifact)
    first, second, *_ = sorted(tensors)
    tensors[second] = tensors[second].reshape(-1)[:-1].copy()
    del tensors[first]
    return save(tensors, metadata)


def test_a_dropped_artifact_answers_at_once(open_tab: Open, site: Site) -> None:
    name = f"dropped-{uuid4().hex[:8]}"
    page = open_tab().open("/upload")
    page.get_by_label("Name").fill(name)
    drop(page, EXAMPLES / "clinc150.safetensors")
    expect(page.get_by_role("link", name=f"{name} version 1")).to_be_visible()
    assert site.shares(name, 1) == {1: 1.0}
    page.get_by_role("link", name=f"{name} version 1").click()
    expect(page.get_by_role("heading", name=name, level=1)).to_be_visible()


def test_a_report_is_shown_on_the_adapters_page(open_tab: Open) -> None:
    """It is dropped with its artifact. Its charts are drawn, and no text of it runs as a script or reaches the key."""
    report = create_report(HOSTILE).model_dump(mode="json")
    report["artifact"]["digest"] = f"sha256:{hashlib.sha256(ARTIFACT).hexdigest()}"
    name = f"told-{uuid4().hex[:8]}"
    visitor = open_tab()
    page = visitor.open("/upload")
    page.on("dialog", lambda dialog: visitor.said.append(dialog.message))
    page.get_by_label("Name").fill(name)
    files = {"told.safetensors": ARTIFACT, "told.report.json": json.dumps(report).encode()}
    page.get_by_label("Artifacts").set_input_files(
        [{"name": own, "mimeType": "application/octet-stream", "buffer": data} for own, data in files.items()]
    )
    expect(page.get_by_label("told.safetensors", exact=True)).to_contain_text("with told.report.json")
    page.get_by_role("link", name=f"{name} version 1").click()
    card = page.get_by_role("region", name="Training of v1")
    expect(card).to_contain_text(HOSTILE[0])
    charts = card.get_by_role("img").filter(has=page.locator("canvas"))
    wait_until_drawn(charts, 2)


def test_a_refusal_names_every_reason_at_its_place(open_tab: Open, site: Site, tmp_path: Path) -> None:
    """The same reasons as over HTTP, each beside its tensor."""
    broken = without_tensors(ARTIFACT)
    refusal = site.client.post("/v1/adapters", files={"file": broken}).json()["error"]
    assert len(refusal["details"]) > 1
    page = open_tab(is_refused=True).open("/upload")
    file = tmp_path / "broken.safetensors"
    file.write_bytes(broken)
    drop(page, file)
    report = page.get_by_label("broken.safetensors", exact=True)
    for reason in refusal["details"]:
        expect(report).to_contain_text(reason)
    for name in sorted(load(ARTIFACT))[:2]:
        expect(report.get_by_role("rowheader", name=name)).to_be_visible()
