"""Endpoints: what the client dialled."""

import pytest
from aerobee.proxy.calls.query_route import Endpoints, endpoints, scheme_of

LOCAL = ("10.0.0.5", 8_081)


@pytest.mark.parametrize(
    ("authority", "host", "port", "scheme"),
    [
        ("proxy.example:30081", "proxy.example", 30_081, 3),
        ("192.0.2.1:8081", "192.0.2.1", 8_081, 1),
        ("[2001:db8::1]:9000", "2001:db8::1", 9_000, 2),
        ("proxy.example", "proxy.example", 8_081, 3),
        ("", "10.0.0.5", 8_081, 1),
    ],
)
def test_without_endpoints_in_the_request_it_is_the_authority(
    authority: str, host: str, port: int, scheme: int
) -> None:
    found = endpoints(Endpoints(), authority, LOCAL, None)
    assert [(each.host, each.port) for each in found.addresses] == [(host, port)]
    assert found.scheme == scheme


def test_the_endpoints_of_a_request_are_kept_whole() -> None:
    given = Endpoints(scheme=1)
    for port in (1, 2):
        given.addresses.add(host="192.0.2.1", port=port)
    assert endpoints(given, "other:5", LOCAL, None) == given
    assert [each.port for each in endpoints(given, "", LOCAL, 9).addresses] == [9, 9]


@pytest.mark.parametrize(("authority", "port"), [("proxy:30081", 30_081), ("", 8_081)])
def test_endpoints_of_a_request_without_a_port_get_the_one_that_was_dialled(
    authority: str, port: int
) -> None:
    given = Endpoints(scheme=1)
    given.addresses.add(host="192.0.2.1")
    given.addresses.add(host="192.0.2.2", port=7)
    found = endpoints(given, authority, LOCAL, None).addresses
    assert [(each.host, each.port) for each in found] == [("192.0.2.1", port), ("192.0.2.2", 7)]


def test_a_scheme_follows_from_the_text() -> None:
    assert [scheme_of(host) for host in ("1.2.3.4", "::1", "[::1]", "a.b")] == [1, 2, 2, 3]
