"""Tenants, keys and the audit log, for operators."""

import httpx2
import pytest
from playwright.sync_api import expect

from tests.console.site import MANY, Site
from tests.console.visitor import Open
from tests.support.chromium import needs_chromium

pytestmark = [needs_chromium, pytest.mark.slow]


def test_a_new_key_is_shown_once_and_works_until_it_is_revoked(open_tab: Open, site: Site) -> None:
    """Its text is only in the dialog after its creation."""
    visitor = open_tab()
    page = visitor.open(f"/tenants?tenant={MANY}")
    page.get_by_role("button", name="New key").click()
    page.get_by_label("Note").fill("made in a browser")
    page.get_by_role("button", name="Create key").click()
    key = page.get_by_role("dialog").locator("code").inner_text()
    page.get_by_role("button", name="I have copied it").click()
    row = page.get_by_role("row").filter(has_text="made in a browser")
    expect(row).to_contain_text("valid")
    assert key not in page.content()
    headers = {"authorization": f"Bearer {key}"}
    assert httpx2.get(f"{site.url}/v1/adapters", headers=headers, timeout=60).status_code == 200
    row.get_by_role("button", name="Revoke").click()
    page.get_by_role("dialog").get_by_role("button", name="Revoke").click()
    expect(row).to_contain_text("revoked")
    assert httpx2.get(f"{site.url}/v1/adapters", headers=headers, timeout=60).status_code == 401


def test_the_audit_log_shows_who_did_it(open_tab: Open, site: Site) -> None:
    _, prefix = site.create_key(MANY)
    page = open_tab().open("/audit")
    expect(page.locator("main")).to_contain_text(prefix)
    page.get_by_label("Action").select_option("publish")
    expect(page.locator("main")).not_to_contain_text(prefix)
    expect(page.locator("main")).to_contain_text("banking77")
