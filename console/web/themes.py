"""The themes of pages, and which one a visitor has chosen."""

from aiohttp import web

COOKIE = "aerobee-theme"
SYSTEM = "system"
# Each with its title.
THEMES = {SYSTEM: "Like the system", "light": "Light", "dark": "Dark"}


def chosen_theme(request: web.Request) -> str:
    """The theme of the cookie; that of the visitor's system without one."""
    found = request.cookies.get(COOKIE, "")
    return found if found in THEMES else SYSTEM
