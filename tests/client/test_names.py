"""The names of `aerobee.client` are imported on first use."""

import subprocess
import sys

import aerobee.client
import pytest


def test_every_name_is_there_and_has_its_module() -> None:
    assert set(aerobee.client._MODULES) == set(aerobee.client.__all__)
    for name in aerobee.client.__all__:
        assert getattr(aerobee.client, name) is not None
    assert set(aerobee.client.__all__) <= set(dir(aerobee.client))
    with pytest.raises(AttributeError, match="has no Nothing; it has Admin, "):
        aerobee.client.Nothing  # noqa: B018


def test_a_program_that_reads_does_not_load_what_sends() -> None:
    sender = "aerobee.client.producer.producer"
    code = f"import sys, aerobee.client.pull.reader; print({sender!r} in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "False\n", done.stderr
