"""The description of the console's addresses: every route, every field of an answer, every
parameter."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aerobee.console.web.look import Look, listed
from aerobee.console.web.routes import DATA, PAGES
from aerobee.scripts.dev import openapi

from ...console.fake_cluster import Shop
from ...console.web.site import Site

QUERIES = {
    "topic": {"name": "orders"},
    "group": {"name": "orders"},
    "member": {"group": "orders", "client": "orders"},
    "message": {"topic": "orders", "broker": "orders", "queue": "0", "offset": "3"},
    "broker": {"name": "orders"},
    "tail": {"topic": "orders"},
    "history": {"series": "topic", "name": "orders"},
    "search": {"topic": "orders"},
}


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    shop = Shop("orders")
    await shop.start()
    async with Site({"main": shop.address}) as site:
        yield site
    await shop.stop()


def operations() -> dict[str, Any]:
    """What the description says of each path."""
    paths: dict[str, Any] = json.loads(openapi.document())["paths"]
    return {path: one["get"] for path, one in paths.items()}


async def test_every_route_is_described(site: Site) -> None:
    served = {one.path for one in site.console.routes() if one.path.startswith("/api/")}
    files = {"/api/search/export"}  # no JSON
    assert served - files == operations().keys()


@pytest.mark.parametrize("path", [page.path for page in (*PAGES, *DATA)])
async def test_every_field_of_an_answer_is_described(site: Site, path: str) -> None:
    answer = await site.data(path, **QUERIES.get(path, {}))
    described = operations()[f"/api/{path}"]["responses"]["200"]["content"]["application/json"]
    assert answer.keys() <= described["schema"]["properties"].keys()
    schemas = json.loads(openapi.document())["components"]["schemas"]
    for name, found in (("Samples", answer["samples"]), ("List", answer.get("list", {}))):
        assert found.keys() <= schemas[name]["properties"].keys(), name


@pytest.mark.parametrize("path", QUERIES)
async def test_a_parameter_that_is_needed_is_described_as_such(site: Site, path: str) -> None:
    needed = [one["name"] for one in operations()[f"/api/{path}"]["parameters"] if one["required"]]
    for name in needed:
        query = {key: value for key, value in QUERIES[path].items() if key != name}
        status, text, _ = await site.get(f"api/{path}", **query)
        assert status == 400, text
        assert f"{name} is missing" in json.loads(text)["error"]


async def _told(look: Look) -> dict[str, Any]:
    def inner() -> list[int]:
        return [look.number("inner", 1, 0, 9)]

    if look.flag("more"):
        return {"more": inner(), "list": listed(look, [], {}, "")} | _rest(look)
    return {"name": look.required("name")}


def _rest(look: Look) -> dict[str, Any]:
    return {"rest": look.required("rest")}


async def _untold(look: Look) -> dict[str, Any]:
    return dict(look.query)


def test_fields_and_parameters_come_from_all_returns_and_from_helpers() -> None:
    assert sorted(openapi.fields(_told)) == ["list", "more", "name", "rest"]
    found = openapi.parameters(_told)
    assert {"cluster", "inner", "more", "name", "q", "sort", "page"} <= found.keys()
    assert found["inner"] == ("integer", False)


def test_an_answer_whose_fields_are_not_written_out_is_refused() -> None:
    with pytest.raises(ValueError, match="write them out"):
        openapi.fields(_untold)
