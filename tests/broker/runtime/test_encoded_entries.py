"""Cached JSON of table entries: each is encoded once, equal to the whole body's encoding."""

import pytest
from aerobee.broker.runtime.table_file import SPARE_MAX, EncodedEntries
from aerobee.protocol.bodies.data_version import DataVersion
from aerobee.protocol.bodies.topic import TopicConfig, TopicConfigAndMappingSerializeWrapper
from aerobee.protocol.codec import fastjson

NAME = "topicConfigTable"


def table(*names: str) -> dict[str, TopicConfig]:
    return {name: TopicConfig(name, attributes={"+message.type": "FIFO"}) for name in names}


def put_into(
    texts: EncodedEntries,
    body: TopicConfigAndMappingSerializeWrapper,
    topics: dict[str, TopicConfig],
    *,
    standard: bool = True,
) -> bytes:
    return b"".join(texts.pieces(body, NAME, topics, standard=standard))


@pytest.mark.parametrize("standard", [True, False])
@pytest.mark.parametrize("names", [(), ("a",), ("b", "a", 'ünüsual "name"', "%RETRY%g")])
def test_the_pieces_are_equal_to_the_encoded_body(names: tuple[str, ...], standard: bool) -> None:
    texts, topics, version = EncodedEntries(), table(*names), DataVersion(1, 2)
    for _ in range(2):
        whole = TopicConfigAndMappingSerializeWrapper(topics, version).encode(standard=standard)
        empty = TopicConfigAndMappingSerializeWrapper({}, version)
        assert put_into(texts, empty, topics, standard=standard) == whole
    topics.update(table("new", "a"))
    topics["a"].perm = 2
    whole = TopicConfigAndMappingSerializeWrapper(topics, version).encode(standard=standard)
    assert put_into(texts, empty, topics, standard=standard) == whole


def test_only_new_entries_are_encoded(monkeypatch: pytest.MonkeyPatch) -> None:
    texts, topics = EncodedEntries(), table("a", "b")
    empty = TopicConfigAndMappingSerializeWrapper({})
    put_into(texts, empty, topics)
    written: list[object] = []
    dump = fastjson.dump

    def note(value: object, **options: bool) -> bytes:
        written.append(value)
        return dump(value, **options)

    monkeypatch.setattr(fastjson, "dump", note)
    topics |= table("c")
    put_into(texts, empty, topics)
    assert [value for value in written if isinstance(value, dict)] == [{"c": topics["c"]}]


def test_the_text_of_a_removed_entry_is_dropped() -> None:
    texts = EncodedEntries()
    empty = TopicConfigAndMappingSerializeWrapper({})
    for number in range(3 * SPARE_MAX):
        put_into(texts, empty, table(f"T{number}"))
    assert len(texts._known) <= SPARE_MAX + 2


def test_a_table_may_change_between_two_pieces_of_its_text() -> None:
    texts, topics = EncodedEntries(), table("a", "b", "c", "d")
    pieces = texts.pieces(TopicConfigAndMappingSerializeWrapper({}), NAME, topics)
    text = next(pieces) + next(pieces)
    del topics["a"], topics["c"]
    topics |= table("bb", "e")
    text += b"".join(pieces)
    found = TopicConfigAndMappingSerializeWrapper.decode(text)
    assert list(found.topic_config_table) == ["a", "b", "d"]
