"""Texts of a table's entries: what the whole body's own writer writes, and made once."""

import pytest
from aerobee.broker.runtime.encoded_entries import SPARE_MAX, EncodedEntries
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
def test_the_text_is_that_of_the_whole_body(names: tuple[str, ...], standard: bool) -> None:
    texts, topics, version = EncodedEntries(), table(*names), DataVersion(1, 2)
    for _ in range(2):
        whole = TopicConfigAndMappingSerializeWrapper(topics, version).encode(standard=standard)
        empty = TopicConfigAndMappingSerializeWrapper({}, version)
        assert put_into(texts, empty, topics, standard=standard) == whole
    topics.update(table("new", "a"))
    topics["a"].perm = 2
    whole = TopicConfigAndMappingSerializeWrapper(topics, version).encode(standard=standard)
    assert put_into(texts, empty, topics, standard=standard) == whole


@pytest.mark.requirement(
    "Transactions, operation, overload: New topics and groups in a burst cost few writes"
)
def test_only_what_is_new_is_written_anew(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_texts_of_what_is_gone_are_forgotten() -> None:
    texts = EncodedEntries()
    empty = TopicConfigAndMappingSerializeWrapper({})
    for number in range(3 * SPARE_MAX):
        put_into(texts, empty, table(f"T{number}"))
    assert len(texts._known) <= SPARE_MAX + 2


def test_a_table_may_change_while_its_text_is_made() -> None:
    texts, topics = EncodedEntries(), table("a", "b", "c", "d")
    pieces = texts.pieces(TopicConfigAndMappingSerializeWrapper({}), NAME, topics)
    text = next(pieces) + next(pieces)
    del topics["a"], topics["c"]
    topics |= table("bb", "e")
    text += b"".join(pieces)
    found = TopicConfigAndMappingSerializeWrapper.decode(text)
    assert list(found.topic_config_table) == ["a", "b", "d"]
