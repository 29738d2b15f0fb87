"""The descriptor set of the proxy is the one that the vendored definitions give."""

from aerobee.tools import definitions


def test_the_descriptor_set_is_current() -> None:
    assert definitions.main([]) == 0
    assert definitions.MADE.read_bytes() == definitions.compiled()
