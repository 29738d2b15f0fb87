"""`aerobee lake`: tables of topics made, filled, shown, compared and given up."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import re
import time
import urllib.error
import urllib.request
from importlib.util import find_spec
from pathlib import Path

import pytest

pytest.importorskip("pyiceberg")

import pyarrow as pa
import pyarrow.compute as pc
import yaml
from aerobee.client.blocking import Admin, Message, Producer
from aerobee.console.clusters.lakes import Lakes, LakeStatus
from aerobee.lake import settings as lake_settings
from aerobee.lake import upkeep
from aerobee.lake.catalog import LakeCatalog
from aerobee.lake.materializer import Materializer
from aerobee.scripts.commands import lake
from aerobee.testing.cluster import LocalCluster

from ...lake.tables import rewrite
from ...waiting import PROCESS, wait_until
from ..command import Inside, aerobee, running

TOKEN = "a-token-of-twenty-four-characters"


class Lake:
    """A lake's settings in a folder, and the command with them."""

    def __init__(self, inside: Inside, cluster: LocalCluster, folder: Path) -> None:
        self.inside, self.cluster = inside, cluster
        self.place = folder / "tables"
        self.config = folder / "lake.yaml"
        self.where = ("--config", str(self.config), "-n", cluster.name_server)

    def output(self, *words: str) -> str:
        return self.inside.output("lake", *words, *self.where)

    def refused(self, *words: str) -> str:
        return self.inside.refused("lake", *words, *self.where)

    def code(self, *words: str) -> tuple[int, str]:
        code, out, error = self.inside("lake", *words, *self.where)
        assert error == ""
        return code, out

    def add(self, *words: str) -> str:
        """Add to this place, new or not."""
        return self.output("add", *words, "--to", str(self.place))

    def said(self) -> dict[str, object]:
        """The settings as they stand in the file."""
        found: dict[str, object] = yaml.safe_load(self.config.read_text())
        return found

    def catalog(self) -> LakeCatalog:
        given = lake_settings.read(self.config)
        return LakeCatalog(given.catalog, place=given.place, namespace=given.namespace)


@pytest.fixture
def own(inside: Inside, cluster: LocalCluster, tmp_path: Path) -> Lake:
    return Lake(inside, cluster, tmp_path)


def send(cluster: LocalCluster, topic: str, count: int = 8) -> None:
    """Send, to a topic that the name server knows then."""
    with Admin(cluster.name_server) as admin:
        admin.create_topic(topic)
    with Producer(cluster.name_server) as producer:
        for number in range(count):
            producer.send(Message(topic, f"{topic} {number}".encode()))


# --- add and remove -------------------------------------------------------------------------------


def test_a_group_gets_the_offsets_of_the_tables_and_keeps_them_when_one_is_removed(
    own: Lake, cluster: LocalCluster
) -> None:
    send(cluster, "grouped", 8)
    own.add("grouped", "--group", "tables")
    assert own.said()["group"] == "tables"
    assert own.output("run", "--once") == "grouped: 8 rows\n"
    with Admin(cluster.name_server) as admin:
        offsets = admin.consume_stats("tables", "grouped").offset_table.values()
        assert sum(each.consumer_offset for each in offsets) == 8
    assert own.refused("add", "grouped", "--group", "a b").endswith(
        "group is 'a b'; give up to 120 characters of A-Z a-z 0-9 _ - % |"
    )
    assert own.output("remove", "grouped").splitlines()[1] == (
        "the offsets of group tables stay at the brokers; brokers whose retainUntilConsumedBy "
        "names it hold the log there until that no longer names it, or until aerobee groups delete "
        "tables, after which a lake that runs commits those of its other tables again at its next "
        "start"
    )


def test_the_first_add_needs_a_place_and_makes_table_and_settings(
    own: Lake, cluster: LocalCluster
) -> None:
    send(cluster, "first", 1)
    assert own.refused("add", "first") == (
        f"aerobee lake: there is no {own.config} yet; say where tables lie: --to FOLDER, or --to "
        "s3://bucket/folder"
    )
    assert own.add("first") == (
        f"topic first goes to table rocketmq.first at file://{own.place}/rocketmq/first; copy "
        f"with: aerobee lake run --config {own.config} (one that runs takes it over)\n"
    )
    assert own.config.stat().st_mode & 0o777 == 0o600  # a catalog's token may be in it
    assert own.said() == {
        "place": str(own.place),
        "namesrvAddr": cluster.name_server,
        "catalog": {"type": "sql", "uri": f"sqlite:///{own.place}/catalog.db"},
        "tables": [{"topic": "first"}],
    }
    assert own.catalog().load("first", "first").scan().to_arrow().num_rows == 0


def test_a_later_add_needs_no_place_and_keeps_what_it_does_not_name(
    own: Lake, cluster: LocalCluster
) -> None:
    send(cluster, "kept", 1)
    send(cluster, "more", 1)
    own.add("kept", "--commit-seconds", "2.5", "--from", "latest", "--table", "mine")
    own.output("add", "more", "--on-gone", "skip", "--from", "0")
    own.output("add", "kept", "--commit-mib", "3")
    assert own.said()["tables"] == [
        {"topic": "more", "start": 0, "onGone": "skip"},
        {"topic": "kept", "table": "mine", "commitSeconds": 2.5, "commitMib": 3, "start": "latest"},
    ]


def test_a_lake_has_one_place_one_namespace_and_one_catalog(
    own: Lake, cluster: LocalCluster, tmp_path: Path
) -> None:
    send(cluster, "placed", 1)
    own.add("placed")
    hint = "; leave it out, or name another file with --config"
    assert own.refused("add", "placed", "--to", "elsewhere").endswith(
        f"lake.yaml has the place {own.place}, --to is elsewhere{hint}"
    )
    assert own.refused("add", "placed", "--namespace", "other").endswith(
        f"lake.yaml has the namespace rocketmq, --namespace is other{hint}"
    )
    assert own.refused("add", "placed", "--catalog", "sqlite:///other.db").endswith(
        f"lake.yaml has the catalog sqlite:///{own.place}/catalog.db, --catalog is "
        f"sqlite:///other.db{hint}"
    )


def test_the_place_may_be_said_again_relative_to_where_one_is(
    own: Lake, cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(cluster, "again", 1)
    monkeypatch.chdir(own.config.parent)
    own.output("add", "again", "--to", "tables")
    own.output("add", "again", "--to", "tables/")
    assert own.said()["place"] == str(own.place)


def test_catalog_properties_stores_and_namespace_go_into_the_settings(
    own: Lake, cluster: LocalCluster
) -> None:
    send(cluster, "told", 1)
    url = f"sqlite:///{own.config.parent}/own.db"
    own.add(
        *("told", "--catalog", url, "--property", "echo=false", "--namespace", "shop.raw"),
        *("--store", "broker-b=/srv/store"),
    )
    said = own.said()
    assert said["catalog"] == {"type": "sql", "uri": url, "echo": "false"}
    assert (said["namespace"], said["stores"]) == ("shop.raw", {"broker-b": "/srv/store"})
    assert own.output("status").splitlines()[1].split()[:2] == ["told", "shop.raw.told"]


def test_a_pattern_takes_the_topics_of_applications_also_those_to_come(
    own: Lake, cluster: LocalCluster
) -> None:
    send(cluster, "fits-a", 3)
    assert own.add(".*", "--pattern").startswith("topics that fit '.*' (")
    own.output("add", r"fits-.*", "--pattern")
    assert own.refused("remove", ".*").endswith(r"it has .* (--pattern), fits-.* (--pattern)")
    assert own.output("remove", ".*", "--pattern").startswith("the entry .* is gone, its table")
    send(cluster, "fits-b", 2)
    assert own.output("run", "--once") == "fits-a: 3 rows\nfits-b: 2 rows\n"
    assert own.catalog().load("fits-b", "fits-b").scan().to_arrow().num_rows == 2


def test_a_pattern_fits_no_topic_of_the_system(own: Lake, cluster: LocalCluster) -> None:
    """Brokers and clusters have topics with their names, and one for replies."""
    send(cluster, "plain", 1)
    own.add(".*", "--pattern")
    topics = {line.split(":")[0] for line in own.output("run", "--once").splitlines()}
    with Admin(cluster.name_server) as admin:
        assert {"DefaultCluster", "broker-a"} < set(admin.topics())
    assert "plain" in topics
    assert not {name for name in topics if name.startswith(("Default", "broker", "RMQ", "rmq"))}


def test_removing_leaves_the_table(own: Lake, cluster: LocalCluster) -> None:
    send(cluster, "removed", 4)
    own.add("removed")
    own.output("add", "rem.*", "--pattern")
    own.output("run", "--once")
    assert own.output("remove", "removed") == (
        "the entry removed is gone, its pattern rem.* goes on\n"
    )
    own.output("remove", "rem.*", "--pattern")
    assert own.said() == {key: value for key, value in own.said().items() if key != "tables"}
    assert own.refused("remove", "removed").endswith("lake.yaml has no entry removed; it has none")
    assert own.catalog().load("removed", "removed").scan().to_arrow().num_rows == 4


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("add",), "which topic? write: aerobee lake add NAME"),
        (("add", "nobody"), "no name server knows topic nobody; create it"),
        (("add", "SCHEDULE_TOPIC_XXXX"), "SCHEDULE_TOPIC_XXXX is a topic of the system"),
        (("add", "(", "--pattern"), "pattern '(' is no regular expression: missing )"),
        (("add", "x", "--pattern", "--table", "y"), "but a pattern has a table for each topic"),
        (("add", "wrong", "--table", "a b"), "the table's name is 'a b'; give up to 200 of A-Z"),
        (("add", "wrong", "--commit-seconds", "0"), "Expected `float` >= 0.1 - at `$.commitSec"),
        (("add", "wrong", "--commit-mib", "2000"), "Expected `int` <= 1024 - at `$.commitMib`"),
        (("add", "wrong", "--from", "someday"), "--from someday is no place to begin; give"),
        (("add", "wrong", "--property", "x"), "--property is 'x'; write KEY=VALUE"),
        (("add", "wrong", "--store", "=x"), "--store is '=x'; write KEY=VALUE"),
        (("add", "wrong", "--catalog", "mysql://x"), "the catalog is 'mysql://x'; give sqlite:"),
        (("add", "wrong", "--namespace", "a b"), "namespace is 'a b'; give names of A-Z"),
        (("add", "wrong", "--catalog", "sqlite:////no/folder/x.db"), "could not open the catalog"),
        (("add", "wrong", "--to", " "), "--to is empty; give a folder, or s3://bucket/folder"),
    ],
)
def test_what_add_refuses_is_one_line_and_leaves_no_settings(
    own: Lake, cluster: LocalCluster, words: tuple[str, ...], says: str
) -> None:
    send(cluster, "wrong", 1)
    place = () if "--to" in words else ("--to", str(own.place))
    assert says in own.refused(*words, *place)
    assert not own.config.exists()


def test_a_table_of_another_topic_is_not_taken(own: Lake, cluster: LocalCluster) -> None:
    send(cluster, "mine", 1)
    send(cluster, "yours", 1)
    own.add("mine")
    assert own.refused("add", "yours", "--table", "mine").endswith(
        "table rocketmq.mine is that of topic mine, not of yours; give another name with aerobee "
        "lake add yours --table NAME"
    )


# --- the settings ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is empty; give at least place; docs/lake.md has all settings"),
        ("# later", "is empty; give at least place"),
        (
            "a:\n- [",
            "can't be read: line 2, column 4: while parsing a flow node expected the node content, "
            "but found '<stream end>'",
        ),
        ("place: \x00", "can't be read: unacceptable character #x0000: special characters are not"),
        ("tables: []", "missing required field `place`"),
        ("place: x\nplaces: y", "unknown field `places` (is place meant?); docs/lake.md has all"),
        ("place: x\ntables: [{topik: y}]", "unknown field `topik` - at `$.tables[0]` (is topic me"),
        ("place: x\nzzz: y", "unknown field `zzz`; docs/lake.md has all settings"),
        ("place: x\nworkers: 0", "Expected `int` >= 1 - at `$.workers`"),
        ("place: x\nhttpPort: 70000", "Expected `int` <= 65535 - at `$.httpPort`"),
        ("place: x\ncatalog: {a: true}", "Expected `str`, got `bool` - at `$.catalog[...]`"),
        ("place: x\nnamespace: a..b", "namespace is 'a..b'; give names of A-Z a-z 0-9 _ -"),
        ("place: x\ntables: [{}]", "a table needs either topic or pattern - at `$.tables[0]`"),
        ("place: x\ntables: [{topic: a, pattern: b}]", "a table needs either topic or pattern"),
        ("place: x\ntables: [{pattern: (}]", "pattern '(' is no regular expression"),
        ("place: x\ntables: [{pattern: a, table: b}]", "table is 'b', but a pattern has a table"),
        ("place: x\ntables: [{topic: a, start: soon}]", "Invalid enum value 'soon'"),
        ("place: x\ntables: [{topic: a}, {topic: a}]", "topic a is there twice; leave one entry"),
    ],
)
def test_wrong_settings_are_one_line_that_names_the_file(own: Lake, text: str, says: str) -> None:
    own.config.write_text(text)
    for action in ("status", "run"):
        said = own.refused(action)
        assert f"aerobee lake: {own.config}" in said
        assert "\\x0a" not in said
        assert says in said


@pytest.mark.parametrize(
    "words", [("status",), ("run", "--once"), ("verify", "a"), ("remove", "a")]
)
def test_settings_that_are_missing_say_how_to_make_them(own: Lake, words: tuple[str, ...]) -> None:
    assert own.refused(*words) == (
        f"aerobee lake: there is no file {own.config}; make it with aerobee lake add TOPIC --to "
        "PLACE, or name another with --config"
    )


def test_without_pyiceberg_the_command_says_what_to_install(
    own: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without(name: str) -> object:
        return None if name == "pyiceberg" else find_spec(name)

    monkeypatch.setattr(lake, "find_spec", without)
    assert own.refused("status") == (
        "aerobee lake: the lake needs pyiceberg, which is not installed; run pip install "
        "'aerobee[lake]'"
    )


# --- run, status and verify -----------------------------------------------------------------------


def test_run_once_copies_what_is_there_and_then_what_is_new(
    own: Lake, cluster: LocalCluster
) -> None:
    send(cluster, "once", 8)
    own.add("once")
    assert own.output("run", "--once") == "once: 8 rows\n"
    assert own.output("run", "--once") == "once: 0 rows\n"
    send(cluster, "once", 3)
    assert own.output("run", "--once") == "once: 3 rows\n"


def test_a_table_that_fails_costs_the_exit_code_and_not_the_other_tables(
    own: Lake, cluster: LocalCluster
) -> None:
    for topic in ("broken", "whole"):
        send(cluster, topic, 2)
        own.add(topic)
    catalog = own.catalog()
    catalog._catalog.drop_table(catalog.identifier("broken"))
    code, out = own.code("run", "--once")
    assert code == 1
    assert out.startswith("broken: 0 rows, then: the catalog has no table rocketmq.broken: it was")
    assert out.endswith("whole: 2 rows\n")
    code, out = own.code("status")
    assert code == 1
    assert "\nbroken: the catalog has no table rocketmq.broken: it was dropped" in out


def test_status_shows_rows_and_lag(own: Lake, cluster: LocalCluster) -> None:
    send(cluster, "shown", 6)
    own.add("shown")
    own.output("run", "--once")
    send(cluster, "shown", 2)
    [found] = own.inside.objects("lake", "status", *own.where)
    assert (found["topic"], found["table"], found["rows"]) == ("shown", "rocketmq.shown", 6)
    assert (found["lag_messages"], found["gone"], found["failure"]) == (2, 0, "")
    assert found["bytes"] > 0
    assert found["committed_ms"] > 0
    header, row = own.output().splitlines()
    assert re.split(" {2,}", header)[3:8] == [
        "BYTES",
        "FILES",
        "MESSAGES BEHIND",
        "BYTES BEHIND",
        "SECONDS BEHIND",
    ]
    assert row.split()[:3] == ["shown", "rocketmq.shown", "6"]
    assert int(row.split()[4]) == found["files"] > 0
    assert row.split()[5:7] == ["2", str(found["lag_bytes"])]
    assert found["lag_bytes"] == len(b"shown 0shown 1")
    assert own.output("status", "shown") == own.output("status")
    assert own.refused("status", "other").endswith("lake.yaml has no entry for topic other")


def test_status_says_why_a_table_stands_still(own: Lake, cluster: LocalCluster) -> None:
    """Whether a lake runs or not: the log and the table tell it."""
    send(cluster, "remade", 16)
    send(cluster, "unfit", 1)
    own.add("remade")
    own.output("add", "unfit", "--fields", "id bigint")
    own.output("add", "waits.*", "--pattern")
    own.output("run", "--once")
    send(cluster, "waits-1", 1)
    with Admin(cluster.name_server) as admin:
        admin.delete_topic("remade")
    send(cluster, "remade", 1)
    catalog = own.catalog()
    catalog._catalog.drop_table(catalog.identifier("unfit__dlq"))
    catalog.create("unfit__dlq", "another", of_dead_letters=True)
    code, out = own.code("status")
    assert code == 1
    assert re.search(
        r"\nremade: queue \S+ of topic remade ends at offset [01], and table .*: the topic", out
    )
    assert "\nunfit: the dead letters of topic unfit: table rocketmq.unfit__dlq is that of " in out
    assert "\nwaits-1: its table is not made yet; aerobee lake run makes it within 30 s" in out
    [row] = [line.split() for line in out.splitlines() if line.startswith("waits-1 ")]
    assert row[2:] == ["-"] * 9
    found = {
        each["topic"]: each
        for each in map(json.loads, own.code("status", "--json")[1].splitlines())
    }
    assert found["waits-1"]["rows"] is found["waits-1"]["lag_messages"] is None
    assert found["remade"]["rows"] == 16
    assert "of topic remade ends at offset" in own.refused("verify", "remade")


def test_a_catalog_that_was_moved_away_is_named(own: Lake, cluster: LocalCluster) -> None:
    send(cluster, "moved", 1)
    own.add("moved")
    file = own.place / "catalog.db"
    file.rename(file.with_suffix(".away"))
    for words in (("status",), ("run", "--once"), ("verify", "moved"), ("add", "more")):
        assert f"the catalog {file} does not exist: it was moved or deleted" in own.refused(*words)
        assert not file.exists()
    file.with_suffix(".away").rename(file)
    assert own.output("run", "--once") == "moved: 1 rows\n"


def test_verify_finds_the_table_clean_and_then_a_row_that_was_deleted(
    own: Lake, cluster: LocalCluster
) -> None:
    send(cluster, "proved", 12)
    own.add("proved")
    own.output("run", "--once")
    assert own.output("verify", "proved").endswith(
        "\nthe table and the log are the same: 12 rows\n"
    )
    found = own.inside.objects("lake", "verify", "proved", *own.where)
    assert sum(each["compared"] for each in found) == 12

    def without_one(rows: pa.Table) -> pa.Table:
        is_it = pc.and_(pc.equal(rows["queueId"], 0), pc.equal(rows["offset"], 1))
        return rows.filter(pc.invert(is_it))

    rewrite(own.catalog().load("proved", "proved"), without_one)
    code, out = own.code("verify", "proved")
    assert code == 1
    assert out.endswith("the table and the log differ in broker-a:0; OFFSETS has the first ones\n")
    code, out = own.code("verify", "proved", "--json")
    queues = {each["queue"]: each for each in map(json.loads, out.splitlines())}
    assert code == 1
    assert (queues["broker-a:0"]["missing"], queues["broker-a:0"]["offsets"]) == (1, "1")
    assert queues["broker-a:1"]["missing"] == 0
    assert own.output("verify", "proved", "--from", "2100-01-01T00:00").endswith(": 0 rows\n")
    assert own.code("verify", "proved", "--from", "earliest")[0] == 1
    assert own.refused("verify", "other").endswith("lake.yaml has no entry for topic other")
    assert "--from latest is no place to begin" in own.refused(
        "verify", "proved", "--from", "latest"
    )


async def as_a_console_sees(page: str) -> LakeStatus:
    """The status of a lake by the console's own client."""
    lakes = Lakes([page.rstrip("/")], TOKEN.encode())
    found, faults = await lakes.statuses()
    await lakes.close()
    assert faults == {}
    [status] = found.values()
    return status


def test_the_daemon_copies_serves_its_pages_and_ends_at_a_signal(
    own: Lake, cluster: LocalCluster, tmp_path: Path
) -> None:
    send(cluster, "served", 5)
    own.add("served", "--commit-seconds", "0.1")
    said = own.said() | {"httpPort": 0, "httpToken": TOKEN}
    own.config.write_text(yaml.safe_dump(said))
    with running(tmp_path, "lake", "run", "--config", str(own.config)) as daemon:
        assert daemon.ready == (
            f"the lake is ready: 1 entry of {own.config}, tables at {own.place}, HTTP {daemon.page}"
        )

        def rows() -> float:
            found = re.search(
                r'^aerobee_lake_rows_total\{topic="served",table="rocketmq.served"\} (\S+)$',
                get(f"{daemon.page}metrics"),
                re.MULTILINE,
            )
            return float(found[1]) if found else 0

        wait_until(lambda: rows() == 5, rows)
        send(cluster, "served", 2)
        wait_until(lambda: rows() == 7, rows)
        status = json.loads(get(f"{daemon.page}status?format=json"))
        [table] = status["tables"]
        assert (status["daemon"], table["state"], table["rows"]) == ("lake", "copies", 7)
        [seen] = asyncio.run(as_a_console_sees(daemon.page)).tables
        assert (seen.topic, seen.in_table.rows) == ("served", 7)
        assert seen.in_table.files >= 2  # one for each commit
        assert (seen.lag_messages, seen.failure, seen.in_table.dead_letters) == (0, "", 0)
        assert seen.in_table.committed_ms > 0
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(f"{daemon.page}metrics", timeout=PROCESS)
        urllib.request.urlopen(f"{daemon.page}readyz", timeout=PROCESS).close()
        assert "/status" in get(daemon.page)
    log = (tmp_path / "lake.stderr").read_text()
    assert " INFO aerobee.lake.service: table rocketmq.served: 5 rows, snapshot " in log
    assert own.output("verify", "served").endswith(": 7 rows\n")


# --- upkeep ---------------------------------------------------------------------------------------


def test_upkeep_tells_what_it_did_of_one_table_or_all(
    own: Lake, cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    for topic in ("kept-a", "kept-b"):
        send(cluster, topic, 3)
        own.add(topic)
    for _ in range(3):
        own.output("run", "--once")
        send(cluster, "kept-a", 1)
    assert own.output("compact") == (
        "kept-a: no closed day has files to compact\nkept-b: no closed day has files to compact\n"
    )
    now_ms = int(time.time() * 1000)
    monkeypatch.setattr(upkeep, "_now_ms", lambda: now_ms + 3 * 86_400_000)
    assert re.fullmatch(
        r"kept-a: 3 files of 1 day are 1 now, 5 rows\n", own.output("compact", "kept-a")
    )
    assert own.output("expire", "kept-a", "--older", "1h") == "kept-a: 3 snapshots dropped\n"
    assert own.output("expire", "--keep", "1") == (
        "kept-a: 0 snapshots dropped\nkept-b: 0 snapshots dropped\n"
    )
    folder = own.place / "rocketmq" / "kept-a"
    before = sorted(folder.rglob("*.parquet"))
    assert own.output("sweep", "kept-a", "--dry-run").startswith(
        "kept-a: 0 files (0 bytes) would be deleted; "
    )
    assert own.output("sweep", "kept-a").startswith("kept-a: 0 files (0 bytes) deleted; ")
    monkeypatch.setattr(upkeep, "_now_ms", lambda: now_ms + 4 * 86_400_000)
    for path in folder.rglob("*"):
        if path.is_file():
            os.utime(path, (now_ms / 1000, now_ms / 1000))
    notes = folder / "metadata" / "aerobee-orphans.json"
    os.utime(notes, (now_ms / 1000 + 4 * 86_400, now_ms / 1000 + 4 * 86_400))
    listed = own.output("sweep", "kept-a", "--dry-run")
    assert len(re.findall(r"\n  data/timestamp_day=.*\.parquet", listed)) == 3
    assert sorted(folder.rglob("*.parquet")) == before
    assert re.match(r"kept-a: \d+ files \([\d,]+ bytes\) deleted\n", own.output("sweep", "kept-a"))
    assert len(list(folder.rglob("*.parquet"))) == len(before) - 3
    assert own.output("verify", "kept-a").endswith("the same: 5 rows\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("compact", "other"), "lake.yaml has no entry for topic other"),
        (("expire", "--keep", "0"), "--keep is 0; give 1 to 100, what a table keeps"),
        (("expire", "--older", "yesterday"), "--older is 'yesterday'; write an age like 12h or 7d"),
    ],
)
def test_upkeep_that_is_asked_for_wrongly_is_refused(
    own: Lake, cluster: LocalCluster, words: tuple[str, ...], said: str
) -> None:
    send(cluster, "asked", 1)
    own.add("asked")
    assert own.refused(*words).endswith(said)


def test_a_table_whose_upkeep_fails_leaves_that_of_others(own: Lake, cluster: LocalCluster) -> None:
    for topic in ("fails", "goes"):
        send(cluster, topic, 1)
        own.add(topic)
    own.catalog()._catalog.drop_table("rocketmq.fails")
    code, out = own.code("compact")
    assert code == 1
    first, second = out.splitlines()
    assert first.startswith("fails: the catalog has no table rocketmq.fails")
    assert second == "goes: no closed day has files to compact"
    assert own.code("sweep", "goes", "--older", "1h")[1].startswith("goes: files of 1 hours can't")


def get(url: str) -> str:
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {TOKEN}"})
    with urllib.request.urlopen(request, timeout=PROCESS) as answer:
        found: str = answer.read().decode()
        return found


def test_a_daemon_without_tables_does_not_start(own: Lake) -> None:
    own.config.write_text(yaml.safe_dump({"place": str(own.place)}))
    done = aerobee("lake", "run", *own.where)
    assert done.returncode == 1
    assert done.stderr == (
        "aerobee lake: the settings have no tables; aerobee lake add TOPIC adds one\n"
    )


def test_bodies_that_do_not_fit_are_shown_and_read_again(own: Lake, cluster: LocalCluster) -> None:
    with Producer(cluster.name_server) as producer:
        for body in (b'{"id": 1, "name": "a"}', b'{"id": 2}', b"{"):
            producer.send(Message("orders", body))
    assert "columns of the newest messages: id bigint, name string" in own.add(
        "orders", "--fields", "infer"
    )
    assert own.said()["tables"] == [{"topic": "orders", "json": "id bigint, name string"}]
    own.add("orders", "--fields", "id boolean")
    assert own.output("run", "--once") == "orders: 0 rows, 3 dead letters\n"
    (status,) = json.loads(own.output("status", "--json").join("[]"))
    assert (status["rows"], status["dead_letters"]) == (0, 3)
    assert own.output("retry", "orders").splitlines() == [
        "0 dead letters fit now and are rows, 3 stay",
        "2: Expected `bool`, got `int` - at `$.id`",
        "1: the body is no JSON: Input data was truncated",
    ]
    own.refused("add", "orders", "--fields", "id bigint")
    own.add("orders", "--fields", "name string")
    assert own.output("retry", "orders").splitlines() == [
        "2 dead letters fit now and are rows, 1 stay",
        "1: the body is no JSON: Input data was truncated",
    ]
    assert "are the same: 3 rows" in own.output("verify", "orders")
    assert "'money' is there instead of a type" in own.refused(
        "add", "orders", "--fields", "id money"
    )
    assert "for one topic" in own.refused("add", "o.*", "--pattern", "--fields", "infer")


def test_infer_tells_what_it_leaves_out_and_how_many_bodies_fit(
    own: Lake, cluster: LocalCluster
) -> None:
    with Producer(cluster.name_server) as producer:
        for body in (*[b'{"id": 1, "s": "x"}'] * 3, b'{"id": "7", "s": "q"}', b"[]", b'{"s": 1'):
            producer.send(Message("left", body))
    assert own.add("left", "--fields", "infer").splitlines()[:-1] == [
        "columns of the newest messages: s string",
        "left out: id: its values have several types: bigint, string",
        "4 of the 6 newest bodies fit; the others would be dead letters",
    ]


def test_add_says_the_columns_that_the_entry_has_now(own: Lake, cluster: LocalCluster) -> None:
    send(cluster, "columns", 1)

    def said(*words: str) -> list[str]:
        return own.add("columns", *words).splitlines()[:-1]

    assert said() == []
    assert said("--fields", "") == ["no columns of JSON"]
    assert said("--fields", "id long,  s string") == ["columns of JSON: id bigint, s string"]
    assert said("--commit-seconds", "1") == ["columns of JSON: id bigint, s string"]
    assert said("--fields", "") == [
        "no columns of JSON any more: id bigint, s string stay in the table, without values in new "
        "rows"
    ]
    assert said() == []
    assert own.said()["tables"] == [{"topic": "columns", "commitSeconds": 1.0}]
    own.output("run", "--once")
    [row] = own.catalog().load("columns", "columns").scan().to_arrow().to_pylist()
    assert row["value"] == b"columns 0"


REFUSED_DEAD = (
    "the dead letters of topic {} go to table {}__dlq, which is that of topic {}; give one of the "
    "two topics another table with aerobee lake add TOPIC --table NAME"
)


@pytest.mark.parametrize("is_first", [True, False])
def test_a_table_with_the_name_of_anothers_dead_letters_is_refused(
    own: Lake, cluster: LocalCluster, is_first: bool
) -> None:
    for topic in ("bills", "bills__dlq", "else"):
        send(cluster, topic, 1)
    words = [("bills", "--fields", "id bigint"), ("bills__dlq",)]
    own.add(*words[is_first])
    kept = own.said()["tables"]
    refused = REFUSED_DEAD.format("bills", "bills", "bills__dlq")
    assert own.refused("add", *words[not is_first]).endswith(refused)
    assert own.said()["tables"] == kept
    own.add("else", "--table", "mine")  # is in nobody's way
    table = ("bills_2", "bills_dead")[is_first]
    own.add(*words[not is_first], "--table", table)
    assert own.output("run", "--once")


def test_the_names_of_dead_letters_are_those_of_tables_given_and_of_patterns(
    own: Lake, cluster: LocalCluster
) -> None:
    for topic in ("given", "taken", "fit", "fit__dlq"):
        send(cluster, topic, 1)
    own.add("taken", "--table", "mine__dlq")
    assert own.refused("add", "given", "--table", "mine", "--fields", "id int").endswith(
        REFUSED_DEAD.format("given", "mine", "taken")
    )
    assert own.refused("add", "fit.*", "--pattern", "--fields", "id int").endswith(
        REFUSED_DEAD.format("fit", "fit", "fit__dlq")
    )
    own.add("fit__dlq", "--table", "dead")
    own.add("fit.*", "--pattern", "--fields", "id int")


def test_a_table_of_dead_letters_that_is_anothers_is_told_when_it_is_needed(
    own: Lake, cluster: LocalCluster
) -> None:
    for topic in ("late", "late__dlq"):
        send(cluster, topic, 1)
    own.add("late__dlq")
    own.output("remove", "late__dlq")
    own.add("late", "--fields", "id bigint")
    code, out = own.code("run", "--once")
    assert code == 1
    assert (
        "late: 0 rows, then: the dead letters of topic late: table rocketmq.late__dlq is that of "
        "topic late__dlq, not of late" in out
    )


def test_a_disk_that_is_full_is_told_with_its_place_and_the_remedy(
    own: Lake, cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(cluster, "full", 1)
    own.add("full")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Materializer, "copy", full)
    assert own.code("run", "--once") == (
        1,
        f"full: 0 rows, then: [Errno 28] No space left on device, below {own.place}: free space "
        "there, or look after its limits\n",
    )
