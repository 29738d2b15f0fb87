"""A running lake: topics that come, tables that fail, two lakes side by side, and the end."""

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyiceberg")

import msgspec
from aerobee.client import Admin, Message, Producer
from aerobee.client.base.security import OPEN
from aerobee.lake import opening, overview, service, upkeep
from aerobee.lake import settings as lake_settings
from aerobee.lake.catalog import LakeCatalog
from aerobee.lake.compaction import DAY_MS, Compacted, Stopped
from aerobee.lake.errors import LakeError
from aerobee.lake.materializer import Materializer
from aerobee.lake.service import Lake
from aerobee.lake.settings import LakeSettings, SettingsFile, TableSettings
from aerobee.lake.upkeep import Upkeep
from aerobee.lake.verify import verify
from aerobee.testing.cluster import LocalCluster

from ..waiting import LONG, until
from .tables import contents

Send = Callable[..., Awaitable[None]]


@pytest.fixture
async def send(cluster: LocalCluster) -> AsyncIterator[Send]:
    async with Producer(cluster.name_server) as producer, Admin(cluster.name_server) as admin:

        async def some(topic: str, count: int = 5) -> None:
            await admin.create_topic(topic)  # returns when the name server knows it
            for number in range(count):
                await producer.send(Message(topic, f"{topic} {number}".encode()))

        yield some


@pytest.fixture(autouse=True)
def quick_discovery(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "DISCOVERY_SECONDS", 0.01)


class Place:
    """A cluster's lake in a folder."""

    def __init__(self, cluster: LocalCluster, folder: Path) -> None:
        self.cluster, self.folder = cluster, folder

    def settings(self, *tables: TableSettings, **more: Any) -> LakeSettings:
        return LakeSettings(
            place=str(self.folder / "tables"),
            namesrv_addr=self.cluster.name_server,
            catalog={"type": "sql", "uri": f"sqlite:///{self.folder}/catalog.db"},
            tables=tables,
            **more,
        )

    def catalog(self) -> LakeCatalog:
        return opening.open_catalog(self.settings())

    def topics(self, *topics: str) -> LakeSettings:
        """The settings with these topics, whose tables are made."""
        catalog = self.catalog()
        for topic in topics:
            catalog.create(topic, topic)
        return self.settings(*(entry(topic=topic) for topic in topics))


def entry(**said: Any) -> TableSettings:
    return TableSettings(commit_seconds=0.1, **said)


@pytest.fixture
def place(cluster: LocalCluster, tmp_path: Path) -> Place:
    return Place(cluster, tmp_path)


@asynccontextmanager
async def running(settings: LakeSettings) -> AsyncIterator[Lake]:
    lake = Lake(settings)
    await lake.start()
    try:
        yield lake
    finally:
        await lake.stop()


def own_threads() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name.startswith("aerobee-lake")]


async def rows(lake: Lake, topic: str, count: int) -> None:
    """Waits until the lake has copied this many."""
    await until(lambda: topic in lake.reports and lake.reports[topic].rows >= count, lake.reports)  # type: ignore[arg-type]
    assert lake.reports[topic].rows == count


async def test_a_pattern_finds_topics_that_come_later(place: Place, send: Send) -> None:
    await send("come-1", 3)
    async with running(place.settings(entry(pattern="come-.*"))) as lake:
        await rows(lake, "come-1", 3)
        await send("come-2", 4)
        await send("others", 1)
        await rows(lake, "come-2", 4)
        await send("come-1", 2)
        await rows(lake, "come-1", 5)
        assert set(lake.reports) == {"come-1", "come-2"}
        assert lake.failure == ""
    assert len(contents(place.catalog().load("come-2", "come-2"))) == 4


async def test_a_topic_with_an_entry_of_its_own_follows_that(place: Place, send: Send) -> None:
    await send("entry-a", 3)
    await send("entry-b", 3)
    place.catalog().create("mine", "entry-a")
    own = entry(topic="entry-a", table="mine")
    async with running(place.settings(entry(pattern="entry-.*"), own)) as lake:
        await rows(lake, "entry-b", 3)
        await rows(lake, "entry-a", 3)
        assert lake.reports["entry-a"].table == "rocketmq.mine"


async def test_topics_whose_tables_would_have_one_name_stop_no_others(
    place: Place, send: Send
) -> None:
    for topic in ("same_7c1", "same|1", "same|2"):  # in this order
        await send(topic, 2)
    async with running(place.settings(entry(pattern="same.*"))) as lake:
        await rows(lake, "same|2", 2)
        await until(lambda: lake.failure)
        assert "table rocketmq.same_7c1 is that of topic same_7c1, not of same|1" in lake.failure
        assert len(lake.reports) == 2
        assert overview.note(lake) == "its settings or topics can't be read: see /status"


async def test_a_table_that_fails_is_tried_again_and_stops_no_other(
    place: Place, send: Send
) -> None:
    await send("broken", 2)
    await send("whole", 2)
    settings = place.topics("broken", "whole")
    catalog = place.catalog()
    catalog._catalog.drop_table(catalog.identifier("broken"))
    async with running(settings) as lake:
        await until(lambda: lake.reports["broken"].failure)
        await rows(lake, "whole", 2)
        await send("whole", 1)
        await rows(lake, "whole", 3)
        assert "has no table rocketmq.broken" in lake.reports["broken"].failure
        assert overview.note(lake) == "1 of 2 tables fail, rocketmq.broken first: see /status"
        told = {family[0]: dict(family[4]) for family in overview.families(lake)}
        assert told["aerobee_lake_failing"] == {
            ("broken", "rocketmq.broken"): True,
            ("whole", "rocketmq.whole"): False,
        }
        catalog.create("broken", "broken")
        await rows(lake, "broken", 2)
        await until(lambda: not lake.reports["broken"].failure)
        assert overview.note(lake) is None


async def test_an_error_that_nobody_thought_of_stops_no_table(
    place: Place, send: Send, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await send("odd", 2)
    inner, calls = Materializer.copy, []

    def odd(copier: Materializer) -> Any:
        calls.append(copier)
        if len(calls) < 3:
            raise KeyError
        return inner(copier)

    monkeypatch.setattr(Materializer, "copy", odd)
    async with running(place.topics("odd")) as lake:
        await rows(lake, "odd", 2)
        assert lake.reports["odd"].failures == 2
    [warning] = [each for each in caplog.records if each.exc_info]
    assert warning.exc_info is not None
    assert warning.exc_info[0] is KeyError


async def test_two_lakes_side_by_side_copy_each_message_once(
    place: Place, cluster: LocalCluster, send: Send
) -> None:
    settings = place.topics("both")
    async with AsyncExitStack() as stack:
        lakes = [await stack.enter_async_context(running(settings)) for _ in range(2)]
        for _ in range(5):
            await send("both", 20)
        await until(lambda: sum(lake.reports["both"].rows for lake in lakes) >= 100)
    table = place.catalog().load("both", "both")
    assert len(contents(table)) == 100
    source = opening.open_log(settings, OPEN)
    try:
        found = await asyncio.to_thread(lambda: list(verify(table, source, "both")))
    finally:
        source.close()
    assert all(each.is_clean for each in found)
    assert sum(each.compared for each in found) == 100


async def test_a_stop_waits_for_the_pass_under_way_and_nothing_goes_on(
    place: Place, send: Send, monkeypatch: pytest.MonkeyPatch
) -> None:
    await send("ended", 3)
    inner = Materializer.copy
    begun, go_on = threading.Event(), threading.Event()

    def held(copier: Materializer) -> Any:
        begun.set()
        assert go_on.wait(LONG)
        return inner(copier)

    monkeypatch.setattr(Materializer, "copy", held)
    lake = Lake(place.topics("ended"))
    await lake.start()
    await until(begun.is_set)
    stop = asyncio.create_task(lake.stop())
    await asyncio.sleep(0)
    assert not stop.done()
    go_on.set()
    await stop
    assert lake.reports["ended"].rows == 3
    assert len(contents(place.catalog().load("ended", "ended"))) == 3
    await until(lambda: not own_threads())


async def test_a_lake_without_tables_does_not_start(place: Place) -> None:
    with pytest.raises(LakeError, match="the settings have no tables; aerobee lake add TOPIC"):
        await Lake(place.settings()).start()


async def test_a_lake_whose_catalog_can_not_be_opened_does_not_start(place: Place) -> None:
    settings = place.settings(entry(topic="x"))
    settings.catalog["uri"] = f"sqlite:///{place.folder}/no/folder/c.db"
    with pytest.raises(LakeError, match=r"c\.db does not exist: it was moved or deleted"):
        await Lake(settings).start()
    made_later = msgspec.structs.replace(settings, tables=(entry(pattern="x"),))
    with pytest.raises(LakeError, match="could not open the catalog aerobee"):
        await Lake(made_later).start()
    await until(lambda: not own_threads())


async def test_a_cluster_that_is_away_is_told_and_tried_again(
    cluster: LocalCluster, place: Place, send: Send
) -> None:
    await send("away", 2)
    settings = place.topics("away")
    gone = LakeSettings(
        place=settings.place,
        namesrv_addr="127.0.0.1:1",
        catalog=settings.catalog,
        tables=(*settings.tables, entry(pattern="away-.*")),
    )
    async with running(gone) as lake:
        await until(lambda: lake.failure and lake.reports["away"].failure)
        assert "no name server answered" in lake.failure
        assert "no name server answered" in lake.reports["away"].failure


async def test_tables_are_kept_up_while_copying_goes_on(
    place: Place, send: Send, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_ms = int(time.time() * 1000)
    monkeypatch.setattr(upkeep, "_now_ms", lambda: now_ms + 3 * DAY_MS)
    monkeypatch.setattr(service, "UPKEEP_AFTER_SECONDS", 0.01)
    inner, go_on, seen = Upkeep.compact, threading.Event(), list[str]()

    def held(own: Upkeep, *words: Any, **more: Any) -> Compacted:
        seen.append(own.topic)
        assert go_on.wait(LONG)
        return inner(own, *words, **more)

    monkeypatch.setattr(Upkeep, "compact", held)
    for topic in ("keep-a", "keep-b"):
        await send(topic, 2)
    async with running(place.topics("keep-a", "keep-b")) as lake:
        await until(lambda: len(seen) == 1)
        for topic in ("keep-a", "keep-b"):
            for count in (2, 5):
                await rows(lake, topic, count)
                await send(topic, 3)
            await rows(lake, topic, 8)
        assert len(seen) == 1  # never two at once
        go_on.set()
        await until(lambda: all(each.upkeeps for each in lake.reports.values()))
        compacted = [each.compacted for each in lake.reports.values()]
        assert all(each >= 3 for each in compacted)  # a send may take two commits
        figures = {
            name: [value for _, value in values]
            for name, _, _, _, values in overview.families(lake)
        }
        assert figures["aerobee_lake_upkeeps_total"] == [1, 1]
        assert figures["aerobee_lake_compacted_files_total"] == compacted
        assert all(0 <= each < LONG for each in figures["aerobee_lake_last_upkeep_age_seconds"])
    assert len(contents(place.catalog().load("keep-a", "keep-a"))) == 8


async def test_an_upkeep_that_fails_is_told_and_stops_no_other(
    place: Place, send: Send, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "UPKEEP_AFTER_SECONDS", 0.01)
    inner = Upkeep.compact

    def broken(own: Upkeep, *words: Any, **more: Any) -> Compacted:
        if own.topic == "unkept":
            raise LakeError("no room")
        return inner(own, *words, **more)

    monkeypatch.setattr(Upkeep, "compact", broken)
    for topic in ("unkept", "well-kept"):
        await send(topic, 2)
    async with running(place.topics("unkept", "well-kept")) as lake:
        await until(lambda: lake.reports["well-kept"].upkeeps)
        assert lake.reports["unkept"].upkeep_failure == "no room"
        await rows(lake, "unkept", 2)
        assert overview.note(lake) == (
            "the upkeep of 1 tables fails, rocketmq.unkept first: see /status"
        )


async def test_a_lake_that_ends_does_not_wait_for_a_long_compaction(
    place: Place, send: Send, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "UPKEEP_AFTER_SECONDS", 0.01)
    begun = threading.Event()

    def endless(own: Upkeep, *words: Any, is_stopping: Callable[[], bool]) -> Compacted:
        begun.set()
        while not is_stopping():
            time.sleep(0.01)
        raise Stopped("")

    monkeypatch.setattr(Upkeep, "compact", endless)
    await send("ends", 2)
    async with running(place.topics("ends")) as lake:
        await until(begun.is_set)
    assert lake.reports["ends"].upkeep_failure == ""
    await until(lambda: not own_threads())


async def test_without_hours_there_is_no_upkeep(
    place: Place, send: Send, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "UPKEEP_AFTER_SECONDS", 0.0)
    await send("alone", 2)
    settings = msgspec.structs.replace(place.topics("alone"), upkeep_hours=0.0)
    async with running(settings) as lake:
        await rows(lake, "alone", 2)
        assert "aerobee-lake-upkeep" not in " ".join(each.name for each in own_threads())


# --- the file of the settings -----------------------------------------------------------------


@pytest.fixture
def follows_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "FILE_SECONDS", 0.01)


@asynccontextmanager
async def following(place: Place, first: LakeSettings) -> AsyncIterator[tuple[Lake, Path]]:
    """A lake that follows its file, and that file."""
    path = place.folder / "lake.yaml"
    lake_settings.write(path, first)
    file = SettingsFile(path)
    lake = Lake(file.read(), file=file)
    await lake.start()
    try:
        yield lake, path
    finally:
        await lake.stop()


@pytest.mark.usefixtures("follows_at_once")
async def test_entries_that_come_and_go_count_while_the_lake_runs(place: Place, send: Send) -> None:
    for topic in ("stays", "goes", "comes", "fits-1"):
        await send(topic, 3)
    place.topics("stays", "goes", "comes")
    async with following(place, place.settings(entry(topic="stays"), entry(topic="goes"))) as (
        lake,
        path,
    ):
        await rows(lake, "stays", 3)
        await rows(lake, "goes", 3)
        kept = lake.reports["stays"]
        later = (entry(topic="stays"), entry(topic="comes"), entry(pattern="fits-.*"))
        lake_settings.write(path, place.settings(*later))
        await rows(lake, "comes", 3)
        await rows(lake, "fits-1", 3)
        await until(lambda: "goes" not in lake.reports)
        assert lake.reports["stays"] is kept  # was not begun again
        await send("goes", 1)
        await send("comes", 1)
        await rows(lake, "comes", 4)
        lake_settings.write(path, place.settings(entry(topic="stays")))
        await until(lambda: set(lake.reports) == {"stays"})
        await send("stays", 1)
        await rows(lake, "stays", 4)
    assert len(contents(place.catalog().load("goes", "goes"))) == 3


@pytest.mark.usefixtures("follows_at_once")
async def test_an_entry_that_changes_goes_on_in_its_table(place: Place, send: Send) -> None:
    await send("changes", 3)
    async with following(place, place.topics("changes")) as (lake, path):
        await rows(lake, "changes", 3)
        before = lake.reports["changes"]
        lake_settings.write(path, place.settings(entry(topic="changes", json="id bigint")))
        await until(lambda: lake.reports.get("changes") not in (None, before))
        await send("changes", 2)
        await until(lambda: lake.reports["changes"].dead == 2)
    assert len(contents(place.catalog().load("changes", "changes"))) == 3


@pytest.mark.usefixtures("follows_at_once")
async def test_a_file_that_can_not_be_read_ends_nothing(
    place: Place, send: Send, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    await send("unhurt", 3)
    settings = place.topics("unhurt")
    async with following(place, settings) as (lake, path):
        await rows(lake, "unhurt", 3)
        beside = path.with_name("beside")
        beside.write_text("tables: [")
        beside.replace(path)
        await until(lambda: lake.failure)
        assert f"{path} can't be read: line 1, column 10: while parsing" in lake.failure
        assert lake.failure.endswith("; the lake goes on with the entries of before")
        assert lake.failure in caplog.messages
        assert overview.note(lake) == "its settings or topics can't be read: see /status"
        await send("unhurt", 1)
        await rows(lake, "unhurt", 4)
        lake_settings.write(path, msgspec.structs.replace(settings, workers=7))
        await until(lambda: not lake.failure)
        assert f"workers of {path} changed, which counts from the next start on" in caplog.text
        assert caplog.messages.count(f"{path} is good again, and counts from now on") == 1


@pytest.mark.usefixtures("follows_at_once")
async def test_a_table_that_was_dropped_is_filled_from_the_start_when_it_is_added_again(
    place: Place, send: Send
) -> None:
    await send("dropped", 3)
    settings = place.topics("dropped")
    catalog = place.catalog()
    async with following(place, settings) as (lake, path):
        await rows(lake, "dropped", 3)
        catalog._catalog.drop_table(catalog.identifier("dropped"))
        await send("dropped", 1)
        await until(lambda: lake.reports["dropped"].failure)
        catalog.create("dropped", "dropped")
        says = "made again while aerobee wrote it"
        await until(lambda: says in lake.reports["dropped"].failure)
        lake_settings.write(path, settings)  # as aerobee lake add does
        await rows(lake, "dropped", 4)
        assert lake.reports["dropped"].failure == ""
    assert len(contents(catalog.load("dropped", "dropped"))) == 4
