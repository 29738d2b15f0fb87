"""Chromium for tests, which are skipped where it is not installed."""

import shutil
from collections.abc import AsyncIterator
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")


async def started() -> AsyncIterator[Any]:
    """The steps of a fixture: a browser without window."""
    playwright = pytest.importorskip("playwright.async_api", reason="Playwright is not installed")
    async with playwright.async_playwright() as driver:
        browser = await driver.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"]
        )
        yield browser
        await browser.close()
