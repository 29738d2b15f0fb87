"""The options of a read: what they mean, and the sentence for each wrong one."""

import pytest
from aerobee.spark.options import Place, ReadOptions, read_options


def test_only_topics_are_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    assert read_options({"subscribe": "orders"}) == ReadOptions(
        topics=("orders",),
        name_server="127.0.0.1:9876",
        group="aerobee-spark",
        starting=Place("earliest"),
        ending=Place("latest"),
        messages_per_pull=32,
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
        ({"subscribe": "a", "path": "/tmp"}, "unknown option 'path'; known are subscribe"),
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
