"""One adapter: splits, roll backs, deletions, and what is shown of a version."""

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.console.conftest import EXAMPLES
from tests.console.site import Site
from tests.console.visitor import Open
from tests.support.chromium import needs_chromium

pytestmark = [needs_chromium, pytest.mark.slow]
SPLIT = {"1": 0.9, "2": 0.1}


@pytest.fixture
def two_versions(site: Site) -> Iterator[str]:
    """A task with a Compacter and an AdaMix, of which the first answers nine of ten requests."""
    name = f"routing-{uuid4().hex[:8]}"
    for file in ("banking77", "banking77-adamix"):
        site.upload((EXAMPLES / f"{file}.safetensors").read_bytes(), name)
    alias = f"/v1/adapters/{name}/aliases/production"
    site.client.put(alias, json={"version": 1}).raise_for_status()
    site.client.put(alias, json={"versions": SPLIT}).raise_for_status()
    yield name
    site.client.delete(f"/v1/adapters/{name}")


def drag(page: Page, border: Locator, share: float) -> None:
    """Drags the border of a bar to this part of its width."""
    bar = border.locator("xpath=..").bounding_box()
    handle = border.bounding_box()
    assert bar is not None
    assert handle is not None
    y = handle["y"] + handle["height"] / 2
    page.mouse.move(handle["x"] + handle["width"] / 2, y)
    page.mouse.down()
    page.mouse.move(bar["x"] + 0.7 * bar["width"], y)
    page.mouse.move(bar["x"] + share * bar["width"], y)
    page.mouse.up()


def test_a_dragged_split_moves_the_shares_of_requests(open_tab: Open, site: Site, two_versions: str) -> None:
    """Of 200 requests each before and after, counted by the versions that answered; then the roll back of it. The
    keyboard moves it by one percent."""
    before = site.shares(two_versions, 200)
    assert before[1] == pytest.approx(0.9, abs=0.08)
    visitor = open_tab()
    page = visitor.open(f"/adapters/{two_versions}")
    border = page.get_by_role("slider")
    border.focus()
    page.keyboard.press("ArrowLeft")
    expect(border).to_have_attribute("aria-valuetext", "version 1 gets 89%")
    page.get_by_role("button", name="Reset").click()
    expect(border).to_have_attribute("aria-valuetext", "version 1 gets 90%")
    drag(page, border, 0.3)
    expect(border).to_have_attribute("aria-valuetext", "version 1 gets 30%")
    page.get_by_role("button", name="Apply").click()
    expect(page.get_by_text("production follows the new split.")).to_be_visible()
    after = site.shares(two_versions, 200)
    assert after[1] == pytest.approx(0.3, abs=0.12)
    page.get_by_role("button", name="Roll back").first.click()
    expect(border).to_have_attribute("aria-valuetext", "version 1 gets 90%")
    aliases = site.client.get(f"/v1/adapters/{two_versions}/aliases").json()["aliases"]
    assert [alias["versions"] for alias in aliases] == [SPLIT]


def test_a_deletion_can_be_undone(open_tab: Open, site: Site, two_versions: str) -> None:
    """The versions answer again; aliases are not brought back."""
    page = open_tab().open(f"/adapters/{two_versions}")
    page.get_by_role("button", name="Delete", exact=True).first.click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page.get_by_text(f"{two_versions} is deleted.")).to_be_visible()
    assert site.client.get(f"/v1/adapters/{two_versions}").status_code == 404
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_role("heading", name=two_versions, level=1)).to_be_visible()
    assert set(site.shares(two_versions, 5)) == {2}


def test_a_deprecated_version_can_be_restored_and_deleted(open_tab: Open, site: Site, two_versions: str) -> None:
    """The API has the reason while it is deprecated. A deleted version comes back with Undo."""
    # A version that an alias means cannot be deleted.
    site.client.delete(f"/v1/adapters/{two_versions}/aliases/production").raise_for_status()
    page = open_tab().open(f"/adapters/{two_versions}")
    versions = f"/v1/adapters/{two_versions}/versions"
    row = page.get_by_role("table", name="Versions").get_by_role("row").filter(has_text="v1")
    row.get_by_role("button", name="Deprecate").click()
    page.get_by_label("Reason").fill("confuses two cards")
    page.get_by_role("dialog").get_by_role("button", name="Deprecate", exact=True).click()
    expect(row).to_contain_text("deprecated")
    assert site.client.get(f"{versions}/1").json()["deprecation"] == "confuses two cards"
    row.get_by_role("button", name="Delete version 1").click()
    expect(page.get_by_text(f"Version 1 of {two_versions} is deleted.")).to_be_visible()
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_text(f"Version 1 of {two_versions} is back.")).to_be_visible()
    row.get_by_role("button", name="Undeprecate").click()
    page.get_by_role("dialog").get_by_role("button", name="Remove the deprecation").click()
    expect(row).not_to_contain_text("deprecated")
    assert not site.client.get(f"{versions}/1").json().get("deprecation")


def test_a_new_alias_means_the_chosen_version(open_tab: Open, site: Site, two_versions: str) -> None:
    """A name that is not allowed is refused at its field."""
    page = open_tab(is_refused=True).open(f"/adapters/{two_versions}")
    page.get_by_role("button", name="New alias").click()
    name = page.get_by_role("dialog").get_by_label("Name")
    name.fill("no name")
    page.get_by_label("Version", exact=True).select_option("1")
    page.get_by_role("button", name="Create").click()
    expect(name).to_have_accessible_description(re.compile("Alias 'no name' is not allowed"))
    name.fill("canary")
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_role("heading", name="canary")).to_be_visible()
    assert set(site.shares(f"{two_versions}@canary", 3)) == {1}


def test_a_download_is_the_artifact(open_tab: Open, site: Site, tmp_path: Path) -> None:
    """Byte for byte, although the request carries the key."""
    page = open_tab().open("/adapters/banking77")
    with page.expect_download() as waiting:
        page.get_by_role("button", name="Download").first.click()
    waiting.value.save_as(tmp_path / "artifact")
    expected = (EXAMPLES / "banking77.safetensors").read_bytes()
    assert hashlib.sha256((tmp_path / "artifact").read_bytes()).digest() == hashlib.sha256(expected).digest()


def test_a_rollout_begins_is_watched_and_promoted(open_tab: Open, site: Site, two_versions: str) -> None:
    """Under shadow of an alias that means one version: the dialog starts it, the card shows what was counted and the
    evidence, and the visitor promotes the candidate by hand, which ends the rollout."""
    alias = f"/v1/adapters/{two_versions}/aliases/production"
    site.client.put(alias, json={"version": 1}).raise_for_status()
    page = open_tab().open(f"/adapters/{two_versions}")
    page.get_by_role("button", name="Try a version").click()
    page.get_by_role("dialog").get_by_role("button", name="Start").click()
    rollout = page.get_by_role("region", name="Rollout of production")
    expect(rollout).to_contain_text("v2 shadows v1")
    site.shares(two_versions, 3)
    site.client.get(alias).raise_for_status()
    counts = rollout.get_by_role("table", name="Counts").get_by_role("row").filter(has_text="Incumbent v1")
    expect(counts).to_contain_text("3")
    expect(rollout.get_by_role("progressbar", name="Less accurate")).to_be_visible()
    rollout.get_by_role("button", name="Promote v2 now").click()
    expect(rollout).to_contain_text("the alias was changed by operator")
    found = site.client.get(alias).json()
    assert (found["versions"], found["rollout"]["state"]) == ({"2": 1.0}, "stopped")


def test_a_share_is_stopped(open_tab: Open, site: Site, two_versions: str) -> None:
    """The candidate answers the share of the dialog until then, and the incumbent answers alone afterwards. The card
    names the entry of the audit log."""
    alias = f"/v1/adapters/{two_versions}/aliases/production"
    site.client.put(alias, json={"version": 1}).raise_for_status()
    page = open_tab().open(f"/adapters/{two_versions}")
    page.get_by_role("button", name="Try a version").click()
    page.get_by_label("How").select_option("share")
    page.get_by_label("Share in percent").fill("25")
    page.get_by_role("dialog").get_by_role("button", name="Start").click()
    rollout = page.get_by_role("region", name="Rollout of production")
    expect(rollout).to_contain_text("v2 gets 25% beside v1")
    assert site.client.get(alias).json()["versions"] == {"1": 0.75, "2": 0.25}
    rollout.get_by_role("button", name="Stop and keep v1").click()
    expect(rollout).to_contain_text("it was stopped by operator Audit entry")
    assert site.client.get(alias).json()["versions"] == {"1": 1.0}
