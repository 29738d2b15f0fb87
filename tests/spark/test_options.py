"""The options of a read: what they mean, and the sentence for each wrong one."""

import time
from pathlib import Path

import pytest
from aerobee.spark.options import Place, ReadOptions, read_options, with_lake


def test_only_topics_are_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    assert read_options({"subscribe": "orders"}) == ReadOptions(
        topics=("orders",),
        name_server="127.0.0.1:9876",
        group="aerobee-spark",
        starting=Place("earliest"),
        ending=Place("latest"),
        messages_per_pull=None,
        partitions_min=0,
        headers=False,
        full=False,
        fail_on_data_loss=True,
    )


def test_names_are_read_without_regard_to_case() -> None:
    options = read_options(
        {
            "SUBSCRIBE": " a, b ,a",
            "nameserver": "host:1;host:2",
            "StartingOffsets": '{"a": {"0": 5, "broker-b:0": -2}}',
            "endingoffsets": "LATEST",
            "MAXMESSAGESPERPULL": "1024",
            "minpartitions": "7",
            "includeHEADERS": "True",
            "rowschema": "FULL",
            "failondataloss": "false",
            "group": "g",
        }
    )
    assert options == ReadOptions(
        topics=("a", "b"),
        name_server="host:1;host:2",
        group="g",
        starting=Place({"a": {"0": 5, "broker-b:0": -2}}),
        messages_per_pull=1024,
        partitions_min=7,
        headers=True,
        full=True,
        fail_on_data_loss=False,
    )


def test_the_drivers_environment_names_the_name_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", "elsewhere:9876")
    assert read_options({"subscribe": "a"}).name_server == "elsewhere:9876"
    given = read_options({"subscribe": "a", "nameServer": "here:9876"})
    assert given.name_server == "here:9876"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "subscribe is missing"),
        ({"subscribe": " , "}, "subscribe names no topic"),
        ({"subscribe": "../etc"}, "illegal characters"),
        ({"subscribe": ",".join(map(str, range(1001)))}, "1001 topics, the limit is 1000"),
        ({"subscribe": "a", "group": "no such/group"}, "option group: .*illegal characters"),
        ({"subscribe": "a", "includeHeader": "true"}, "did you mean includeHeaders"),
        ({"subscribe": "a", "colour": "red"}, "unknown option 'colour'; known are subscribe"),
        ({"subscribe": "a", "subscribePattern": "b"}, "subscribe and subscribePattern were given"),
        ({"subscribePattern": "("}, "no regular expression"),
        ({"assign": '{"a": []}'}, "give JSON such as"),
        ({"assign": '["a"]'}, "give JSON such as"),
        ({"subscribe": "a", "topic": "b"}, "subscribe was given twice, once as 'topic'"),
        ({"subscribe": "a", "startingTimestamp": "-1"}, "give ms since the epoch, or how long ago"),
        ({"subscribe": "a", "endingTimestamp": "2 weeks"}, "give ms since the epoch, or how long"),
        ({"subscribe": "a", "maxRecordsPerPartition": "0"}, "give a number from 1"),
        ({"subscribe": "a", "maxBytesPerTrigger": "0"}, "give bytes, or a number with k, m"),
        ({"subscribe": "a", "maxBytesPerTrigger": "9 miles"}, "give bytes, or a number with k"),
        ({"subscribe": "a", "lakeConfig": "lake.yaml"}, "is for streams; aerobee.spark.read_table"),
        (
            {"subscribe": "a", "startingTimestamp": "1", "startingOffsets": "earliest"},
            "startingTimestamp and startingOffsets were given",
        ),
        ({"subscribe": "a", "startingOffsetsByTimestamp": "{"}, "ms since the epoch"),
        ({"subscribe": "a", "subExpression": "x", "filterSql": "y = 1"}, "give one of them"),
        ({"subscribe": "a", "storePath": "/s", "filterSql": "y = 1"}, "only a broker evaluates"),
        ({"subscribe": "a", "maxTriggerDelay": "soon"}, "a time such as 500ms"),
        ({"subscribe": "a", "accessKey": "k"}, "secret_key is empty"),
        ({"subscribe": "a", "tls": "1"}, "give true or false"),
        ({"subscribe": "a", "minPartitions": "0"}, "give a number from 1 to 100000"),
        ({"subscribe": "a", "maxMessagesPerPull": "1025"}, "'1025'; give a number from 1 to 1024"),
        ({"subscribe": "a", "maxMessagesPerPull": "-1"}, "give a number from 1"),
        ({"subscribe": "a", "includeHeaders": "yes"}, "'yes'; give true or false"),
        ({"subscribe": "a", "rowSchema": "wide"}, "'wide'; give kafka or full"),
        ({"subscribe": "a", "startingOffsets": "latest"}, "can't be latest in a batch read"),
        ({"subscribe": "a", "endingOffsets": "earliest"}, "can't be earliest in a batch read"),
        ({"subscribe": "a", "startingOffsets": "{"}, "give earliest, latest or JSON"),
        ({"subscribe": "a", "startingOffsets": "[1]"}, "give earliest, latest or JSON"),
        (
            {"subscribe": "a", "startingOffsets": '{"a": {"0": "1"}}'},
            "give earliest, latest or JSON",
        ),
        (
            {"subscribe": "a", "startingOffsets": '{"a": {"0": true}}'},
            "give earliest, latest or JSON",
        ),
        (
            {"subscribe": "a", "startingOffsets": '{"a": {"0": -3}}'},
            "give earliest, latest or JSON",
        ),
    ],
)
def test_a_wrong_option_is_refused_with_what_would_do(given: dict[str, str], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        read_options(given)


@pytest.mark.parametrize("option", ["endingOffsets", "endingTimestamp"])
def test_a_stream_has_no_end(option: str) -> None:
    with pytest.raises(ValueError, match="a stream has no end"):
        read_options({"subscribe": "a", option: "1"}, stream=True)


@pytest.mark.parametrize(
    ("option", "value"),
    [("filterSql", "a = 1"), ("includeHeaders", "true"), ("dedup", "true")],
)
def test_what_a_table_can_not_give_is_refused_beside_it(option: str, value: str) -> None:
    given = {"subscribe": "a", "lakeConfig": "lake.yaml", option: value}
    with pytest.raises(ValueError, match=f"lakeConfig and {option} were both given"):
        read_options(given, stream=True)


@pytest.mark.parametrize(
    ("text", "size"), [("1", 1), ("64k", 64 << 10), ("512MB", 512 << 20), ("2 g", 2 << 30)]
)
def test_bytes_may_have_a_unit(text: str, size: int) -> None:
    found = read_options({"subscribe": "a", "maxBytesPerTrigger": text}, stream=True)
    assert found.bytes_max == size


def test_a_stream_with_a_lake_finds_its_name_servers_there(tmp_path: Path) -> None:
    path = tmp_path / "lake.yaml"
    path.write_text("place: /tables\nnamesrvAddr: h:1\n")
    given = {"subscribe": "a", "lakeConfig": str(path)}
    options = read_options(given, stream=True)
    assert with_lake(options, given).name_server == "h:1"
    given["nameServer"] = "other:1"
    assert with_lake(read_options(given, stream=True), given).name_server == "other:1"


def test_a_stream_begins_at_the_end_unless_told_otherwise() -> None:
    assert read_options({"subscribe": "a"}, stream=True).starting == Place("latest")
    early = read_options({"subscribe": "a", "startingOffsets": "earliest"}, stream=True)
    assert early.starting == Place("earliest")


def test_the_words_of_the_older_connector_are_understood() -> None:
    options = read_options({"nameserver.addr": "h:1", "topic": "a", "consumer.group": "g"})
    assert (options.name_server, options.topics, options.group) == ("h:1", ("a",), "g")


def test_queues_and_filters_reach_the_client() -> None:
    options = read_options({"assign": '{"a": [0, "b:1"]}', "subExpression": "x || y"})
    assert options.queues == {"a": ["0", "b:1"]}
    assert options.reader["expression"] == "x || y"
    assert read_options({"subscribe": "a", "filterSql": "n > 1"}).reader["is_sql"]


def test_a_secret_is_not_shown() -> None:
    options = read_options({"subscribe": "a", "accessKey": "k", "secretKey": "hush"})
    assert options.security.secret_key == "hush"
    assert "hush" not in repr(options)


@pytest.mark.parametrize(("text", "ms"), [("90s", 90_000), ("2h", 7_200_000), ("7 d", 604_800_000)])
def test_a_time_may_be_given_as_how_long_ago(
    monkeypatch: pytest.MonkeyPatch, text: str, ms: int
) -> None:
    monkeypatch.setattr(time, "time", lambda: 1_800_000_000.0)
    found = read_options({"subscribe": "a", "startingTimestamp": text})
    assert found.starting.times == 1_800_000_000_000 - ms
