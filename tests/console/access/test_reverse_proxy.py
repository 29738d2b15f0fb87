"""Addresses of a proxy, and what it says of its visitors."""

import pytest
from aerobee.console.access.reverse_proxy import ReverseProxy
from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from multidict import CIMultiDict


def asked(peer: str, *headers: tuple[str, str]) -> web.Request:
    return make_mocked_request("GET", "/", CIMultiDict(headers)).clone(remote=peer)


@pytest.mark.parametrize(
    ("address", "is_proxy"),
    [
        ("10.0.0.7", True),
        ("::ffff:10.0.0.7", True),
        ("10.0.1.7", False),
        ("2001:db8::5", True),
        ("2001:db8::6", False),
        ("127.0.0.1", False),
        ("", False),
    ],
)
def test_only_named_addresses_are_the_proxy(address: str, is_proxy: bool) -> None:
    reverse_proxy = ReverseProxy(["10.0.0.0/24", "2001:db8::5"], header="X-User")
    assert reverse_proxy.is_proxy(address) is is_proxy
    assert reverse_proxy.name_in(asked(address, ("X-User", "ann"))) == ("ann" if is_proxy else "")
    if not is_proxy:
        with pytest.raises(web.HTTPForbidden) as raised:
            reverse_proxy.check(asked(address))
        assert "name this one with --behind-proxy" in (raised.value.text or "")


def test_the_visitor_s_address_is_the_one_that_the_proxy_added() -> None:
    reverse_proxy = ReverseProxy(["10.0.0.1"])
    for words, found in (
        (["198.51.100.1"], "198.51.100.1"),
        (["1.1.1.1, 198.51.100.1"], "198.51.100.1"),  # the visitor sent the first one
        (["1.1.1.1", "198.51.100.1"], "198.51.100.1"),
        (["nonsense"], "10.0.0.1"),
        ([], "10.0.0.1"),
    ):
        request = asked("10.0.0.1", *(("X-Forwarded-For", word) for word in words))
        assert reverse_proxy.address_of(request) == found


def test_a_name_that_is_there_twice_is_none() -> None:
    reverse_proxy = ReverseProxy(["10.0.0.1"], header="X-User")
    assert reverse_proxy.name_in(asked("10.0.0.1", ("X-User", "ann"), ("x-user", "eve"))) == ""
    assert ReverseProxy(["10.0.0.1"]).name_in(asked("10.0.0.1", ("X-User", "ann"))) == ""


@pytest.mark.parametrize("text", ["", "proxy.example", "10.0.0.0/99"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="give an IP address, or a network"):
        ReverseProxy([text])
