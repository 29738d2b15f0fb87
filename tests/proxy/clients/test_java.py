"""The example of rocketmq-client-java before our proxy; tests/interop/test_proxy.py has more."""

import asyncio
import os
from pathlib import Path

import pytest
from aerobee.harness import java_side

from .told import EXAMPLES, PRINTED, printed_by_example


@pytest.mark.java
@pytest.mark.parametrize("version", [java_side.GRPC, "5.2.0-grpc"])
def test_the_example_prints_what_it_received(tmp_path: Path, version: str) -> None:
    if os.environ.get("CI") != "true" and (lack := java_side.missing()) is not None:
        pytest.skip(lack)
    words = ["java", *java_side.SHORT_LIVED, f"-Duser.home={tmp_path}"]
    words += ["-cp", java_side.class_path(version), str(EXAMPLES / "FirstMessage.java")]
    assert asyncio.run(printed_by_example(words, {})) == PRINTED
