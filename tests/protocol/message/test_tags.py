"""Java's hash of texts."""

import json
from pathlib import Path
from typing import Any

import pytest
from aerobee.protocol.message import tags

HASHES = json.loads((Path(__file__).parents[2] / "golden" / "hashes.json").read_text())
TAGS = [vector for vector in HASHES if vector["kind"] == "tag"]


@pytest.mark.parametrize("vector", TAGS, ids=lambda v: v["text"])
def test_a_tag_hash_is_that_of_java(vector: dict[str, Any]) -> None:
    assert tags.string_hash(vector["text"]) == vector["java_string_hashCode"]
    assert tags.tag_hash(vector["text"]) == vector["as_tagsCode_int64"]


def test_a_message_without_tags_has_the_code_0() -> None:
    assert tags.tag_hash(None) == 0
    assert tags.tag_hash("") == 0


def test_the_remembered_tags_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tags, "TAG_HASHES_MAX", 10)
    tags.TAG_HASHES.clear()
    for number in range(25):
        assert tags.tag_hash(f"t{number}") == tags.string_hash(f"t{number}")
        assert len(tags.TAG_HASHES) <= 10


def test_half_a_surrogate_pair_has_a_hash_too() -> None:
    assert tags.string_hash("\ud83d") == 0xD83D
