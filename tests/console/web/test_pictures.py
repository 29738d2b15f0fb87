"""Pictures of every page, from one set of data: scripts/pictures, which says where they go."""

import os
from pathlib import Path
from typing import Any

import pytest

from ...waiting import LONG
from .browser import needs_chromium, started
from .showroom import showroom

FOLDER = os.environ.get("CONSOLE_PICTURES")
pytestmark = [
    needs_chromium,
    pytest.mark.soak,  # for its limit: there are hundreds
    pytest.mark.skipif(FOLDER is None, reason="scripts/pictures makes the pictures"),
]
browser = pytest.fixture(started, name="browser")


@pytest.mark.parametrize("width", [1400, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("language", ["en", "zh-CN"])
async def test_every_page_has_its_picture(
    browser: Any, language: str, scheme: str, width: int
) -> None:
    assert FOLDER is not None
    async with showroom() as room:
        context = await browser.new_context(
            viewport={"width": width, "height": 900}, locale=language, color_scheme=scheme
        )
        await room.admit(context)
        page = await context.new_page()
        page.set_default_timeout(1_000 * LONG)
        for name, one in room.pages.items():
            await room.open(page, one)
            path = Path(FOLDER, f"{name}-{language.partition('-')[0]}-{scheme}-{width}.png")
            await page.screenshot(path=path, full_page=True)
        await context.close()
