"""The tables of options in docs/spark.md have every option, with the defaults of the code."""

import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")

from aerobee.spark.options import ALIASES, OPTIONS, read_options
from aerobee.spark.sink_options import COLUMNS, WRITE_OPTIONS, write_options

TEXT = (Path(__file__).parents[2] / "docs" / "spark.md").read_text()
NOTHING = "—"
# What an option does not stand without.
BESIDE = {
    "dedupWindow": {"dedup": "true"},
    "accessKey": {"secretKey": "a-secret"},
    "secretKey": {"accessKey": "reports"},
    "securityToken": {"accessKey": "reports", "secretKey": "a-secret"},
}
OF_STREAMS = ("lakeConfig",)  # refused in a batch
SOURCES = ("subscribe", "subscribePattern", "assign")


def rows_of(table: str) -> dict[str, tuple[list[str], str]]:
    """Each option of a table with its default values and its example."""
    part = TEXT.partition(f"<!-- {table}: begin -->")[2].partition(f"<!-- {table}: end -->")[0]
    found = {}
    for line in part.strip().splitlines()[2:]:
        cells = [cell.replace("\\|", "|").strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        name, default, meaning, example = cells
        assert meaning
        assert default == NOTHING or default.startswith("`")
        found[name.strip("`")] = (re.findall(r"`([^`]+)`", default), example.strip("`"))
    return found


READ, WRITE = rows_of("read options"), rows_of("write options")


@pytest.fixture(autouse=True)
def _no_name_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)


def test_the_tables_have_every_option_in_the_order_of_the_code() -> None:
    assert tuple(READ) == OPTIONS
    assert tuple(WRITE) == WRITE_OPTIONS
    for alias in ALIASES:
        assert f"`{alias}`" in TEXT
    for column in COLUMNS:
        assert f"\n| `{column}` |" in TEXT


@pytest.mark.parametrize(
    ("name", "stream"),
    [
        (name, stream)
        for name in READ
        for stream in (False, True)
        if name not in SOURCES
        and (not name.startswith("ending") if stream else name not in OF_STREAMS)
    ],
)
def test_a_default_for_reading_is_what_holds_without_the_option(name: str, stream: bool) -> None:
    defaults, example = READ[name]
    read = partial(read_options, stream=stream)
    check(read, {"subscribe": "orders"}, name, defaults[-1 if stream else 0 :][:1], example)


@pytest.mark.parametrize("name", SOURCES)
def test_the_examples_of_what_is_read_are_taken(name: str) -> None:
    assert read_options({name: READ[name][1]}) != read_options({"subscribe": "another"})


@pytest.mark.parametrize("name", [name for name in WRITE if name != "topic"])
def test_a_default_for_writing_is_what_holds_without_the_option(name: str) -> None:
    check(write_options, {"topic": "orders"}, name, *WRITE[name])


def check(
    read: Callable[[Mapping[str, str]], Any],
    given: dict[str, str],
    name: str,
    default: list[str],
    example: str,
) -> None:
    """The default changes nothing; the example does, and is taken."""
    given = given | BESIDE.get(name, {})
    if name in ("accessKey", "secretKey"):  # neither stands alone
        assert not default
        read({**given, name: example})
        return
    without = read(given)
    for value in default:
        assert read({**given, name: value}) == without
    assert read({**given, name: example}) != without
