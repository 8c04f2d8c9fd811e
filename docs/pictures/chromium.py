"""Debian's Chromium, driven by Playwright."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright

CHROMIUM = shutil.which("chromium")
# Chromium calls Google's servers unless it is told not to. A container has no sandbox and no GPU.
_FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking")
_FLAGS += ("--disable-component-update", "--disable-sync")


@contextmanager
def chromium(*flags: str) -> Iterator[Browser]:
    """A browser without a window while the block runs."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=[*_FLAGS, *flags])
        try:
            yield browser
        finally:
            browser.close()
