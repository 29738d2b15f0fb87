"""Bloom filter bits compared with the bits that the Java classes computed."""

import json
from pathlib import Path
from typing import Any

import pytest
from aerobee.broker.filters.bloom import BloomFilter
from aerobee.protocol.bodies.subscription import BloomFilterData

CASES = json.loads((Path(__file__).parents[2] / "golden" / "bloom.json").read_text())


@pytest.mark.parametrize(
    "case", CASES, ids=[f"{c['error_rate']}-{c['consumers']}-{c['text'][:20]}" for c in CASES]
)
def test_a_string_has_the_same_bits_as_in_java(case: dict[str, Any]) -> None:
    bloom = BloomFilter(case["error_rate"], case["consumers"])
    found = bloom.generate(case["text"])
    assert (found.bit_num, found.bit_pos) == (case["bits"], case["positions"])
    assert bloom.is_valid(found)


def test_bits_computed_with_other_settings_are_invalid() -> None:
    bloom = BloomFilter(20, 32)
    assert not bloom.is_valid(None)
    assert not bloom.is_valid(BloomFilter(20, 64).generate("G#T"))
    assert not bloom.is_valid(BloomFilterData(112, [1, 2]))
