"""The description of the console's addresses: every route, every field of an answer, every
parameter."""

import json
from base64 import b64encode
from typing import Any

import pytest
from aerobee.client import Admin, Consumer, Message, Producer
from aerobee.console.access.passwords import hash_password
from aerobee.console.access.rights import Right
from aerobee.console.access.user_file import User
from aerobee.console.web.request_context import RequestContext, listed
from aerobee.console.web.routes import DATA, PAGES
from aerobee.testing import LocalCluster
from aerobee.tools import openapi

from ..console.fake_cluster import Shop
from ..console.web.site import Site, site_of_a_shop
from ..waiting import PROCESS

DOCUMENT = json.loads(openapi.document())
SCHEMAS = DOCUMENT["components"]["schemas"]
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


site = pytest.fixture(site_of_a_shop, name="site")


# The types of JSON, as Python reads them.
TYPES: dict[str, set[type]] = {
    "string": {str},
    "boolean": {bool},
    "integer": {int},
    "number": {int, float},
    "null": {type(None)},
    "array": {list},
    "object": {dict},
}


def answer_of(path: str) -> Any:
    """The schema of what an address answers."""
    return operations()[path]["responses"]["200"]["content"]["application/json"]["schema"]


def misfits(value: Any, schema: Any, place: str = "") -> list[str]:
    """What of a value is not as its schema says."""
    if "$ref" in schema:
        schema = SCHEMAS[schema["$ref"].rpartition("/")[2]]
    if "allOf" in schema:
        # All but the last one describe a part of the object.
        *parts, rest = schema["allOf"]
        names = {name for part in parts for name in part["properties"]}
        others = {key: one for key, one in value.items() if key not in names}
        own = {key: one for key, one in value.items() if key in names}
        return [text for part in parts for text in misfits(own, part)] + misfits(others, rest)
    if "anyOf" in schema:
        tried = [misfits(value, one, place) for one in schema["anyOf"]]
        return min(tried, key=len)
    kinds = schema.get("type", list(TYPES))
    wanted = {one for kind in ([kinds] if isinstance(kinds, str) else kinds) for one in TYPES[kind]}
    if type(value) not in wanted or value not in schema.get("enum", [value]):
        return [f"{place} is {value!r}"]
    return _inside(value, schema, f"{place}." if place else "")


def _inside(value: Any, schema: Any, before: str) -> list[str]:
    found: list[str] = []
    if isinstance(value, list):
        items = schema.get("prefixItems") or [schema.get("items", {})] * len(value)
        for number, (one, kind) in enumerate(zip(value, items, strict=True)):
            found += misfits(one, kind, f"{before}{number}")
    if isinstance(value, dict) and "properties" in schema:
        fields = schema["properties"]
        for name, kind in fields.items():
            if name in value:
                found += misfits(value[name], kind, before + name)
            elif name in schema["required"]:
                found.append(f"{before}{name} is missing")
        more = sorted(value.keys() - fields.keys())
        found += [f"{before}{name} is not described" for name in more]
    elif isinstance(value, dict):
        for name, one in value.items():
            found += misfits(one, schema.get("additionalProperties", {}), before + name)
    return found


def operations() -> dict[str, Any]:
    """What the description says of each path."""
    return {path: one.get("get") or one["post"] for path, one in DOCUMENT["paths"].items()}


async def test_every_route_is_described(site: Site) -> None:
    routes = [one for one in site.console.routes() if one.path.startswith("/api/")]
    served = {(one.path, one.method.lower()) for one in routes}
    files = {("/api/search/export", "get")}  # no JSON
    paths = DOCUMENT["paths"]
    assert served - files == {(path, *found) for path, found in paths.items()}


async def test_what_acts_has_the_fields_of_its_form_and_of_its_answer(site: Site) -> None:
    body = operations()["/api/act/topic-create/preview"]["requestBody"]["content"]
    schema = body["application/json"]["schema"]
    assert schema["required"] == ["topic"]
    assert schema["properties"]["write"]["type"] == "integer"
    assert "read and write" in schema["properties"]["perm"]["enum"]


async def test_previews_confirmations_and_redrives_are_as_described(
    aerobee_cluster: LocalCluster,
) -> None:
    address, password = aerobee_cluster.name_server, "correct horse"
    async with Admin(address) as admin:
        await admin.create_topic("orders", queues=1)
    async with Producer(address) as producer:
        await producer.send(Message("orders", b"x"))
    async with Consumer(address, group="shop", topics=["orders"], start="earliest") as consumer:
        message = await consumer.receive(PROCESS)
        assert message is not None
        await message.nack(delay_level=-1)
    user = User("ann", Right.ADMINISTER, password=hash_password(password))
    async with Site({"main": address}, users=(user,)) as site:
        headers = {"Authorization": f"Basic {b64encode(f'ann:{password}'.encode()).decode()}"}

        async def told(path: str, **fields: str) -> Any:
            url = f"{site.console.url}api/{path}"
            async with site.session.post(url, json=fields, headers=headers) as answer:
                found = await answer.json()
                assert answer.status == 200, found
            assert misfits(found, answer_of(f"/api/{path}")) == []
            return found

        for name, typed, fields in (
            ("topic-create", {}, {"topic": "made"}),
            ("redrive", {"typed": "shop"}, {"group": "shop"}),
        ):
            preview = (await told(f"act/{name}/preview", **fields))["preview"]
            done = await told(f"act/{name}/confirm", preview=preview, **typed)
        await told("redrives/stop", run=done["run"]["run"])


@pytest.mark.parametrize("is_java", [False, True])
async def test_every_answer_is_as_described(is_java: bool) -> None:
    shop = Shop("orders", is_java=is_java)
    await shop.start()
    async with Site({"main": shop.address}) as site:
        for page in (*PAGES, *DATA):
            answer = await site.data(page.path, **QUERIES.get(page.path, {}))
            assert misfits(answer, answer_of(f"/api/{page.path}")) == [], page.path
        gone = await site.data("message", topic="orders", broker="orders", queue="0", offset="0")
        assert gone["row"] is None
        assert misfits(gone, answer_of("/api/message")) == []
    await shop.stop()


@pytest.mark.parametrize("path", QUERIES)
async def test_a_parameter_that_is_needed_is_described_as_such(site: Site, path: str) -> None:
    needed = [one["name"] for one in operations()[f"/api/{path}"]["parameters"] if one["required"]]
    for name in needed:
        query = {key: value for key, value in QUERIES[path].items() if key != name}
        status, text, _ = await site.get(f"api/{path}", **query)
        assert status == 400, text
        assert f"{name} is missing" in json.loads(text)["error"]


async def _told(context: RequestContext) -> dict[str, Any]:
    def inner() -> list[int]:
        return [context.number("inner", 1, 0, 9)]

    if context.flag("more"):
        return {"more": inner(), "list": listed(context, [], {}, ""), **_rest(context)}
    return {"name": context.required("name")}


def _rest(context: RequestContext) -> dict[str, Any]:
    return {"rest": context.required("rest")}


def test_parameters_come_from_helpers_too() -> None:
    found = openapi.parameters(_told)
    assert {"cluster", "inner", "more", "name", "q", "sort", "page"} <= found.keys()
    assert found["inner"] == ("integer", False)


def test_a_misfit_is_told_with_its_place() -> None:
    """The test's own check: it finds what is wrong."""
    samples: dict[str, Any] = {"now_ms": "1", "as_of_ms": None, "marks": [{}], "more": 1}
    assert misfits(samples, {"$ref": "#/components/schemas/Samples"}) == [
        "marks.0.address is missing",
        "marks.0.id is missing",
        "marks.0.name is missing",
        "marks.0.since_ms is missing",
        "marks.0.why is missing",
        "names_wrong is missing",
        "now_ms is '1'",
        "more is not described",
    ]
