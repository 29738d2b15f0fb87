"""The signatures of many requests, checked at once: HMAC-SHA1 by OpenSSL, called from machine code.

`protocol/security/signature.py` checks one. A call of `hashlib` from Python costs as much as the
digest of a small message. The functions come from the OpenSSL that Python's own `hashlib` has
loaded; where `hashlib` shows none, interpreted Python makes the digests.
"""

import _hashlib
import ctypes
import functools
import hmac
from binascii import b2a_base64
from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from llvmlite import binding
from numba.core import types

from ..security.signature import KEYS_MAX, SigningKey
from .compiled import compiled, int64
from .parse_sends import SIGNED_NUMBERS, Bytes, Numbers
from .send_table import SendTable

STATE_BYTES = 128  # for an SHA_CTX of OpenSSL, which has 96
DIGEST_BYTES = 20
SIGNATURE_BYTES = 28  # a digest in base64

if TYPE_CHECKING:

    def _init(state: int) -> int:
        """Begin a digest in the state at this address."""

    def _update(state: int, address: int, size: int) -> int:
        """Add the `size` bytes at `address` to it."""

    def _final(digest: int, state: int) -> int:
        """Write the digest to its address."""

else:
    _init = types.ExternalFunction("SHA1_Init", types.intc(types.intp))
    _update = types.ExternalFunction("SHA1_Update", types.intc(types.intp, types.intp, types.uintp))
    _final = types.ExternalFunction("SHA1_Final", types.intc(types.intp, types.intp))


@compiled
def _begin(block: int, size: int, state: int) -> None:
    """Begin a digest with the block at this address."""
    _init(state)
    _update(state, block, size)


@compiled
def _letter(value: int) -> int:
    """The letter of base64 for six bits."""
    if value < 26:
        return 65 + value
    if value < 52:
        return 71 + value
    if value < 62:
        return value - 4
    return 43 if value == 62 else 47


@compiled
def _has_signature(digest: Bytes, data: Bytes, at: int, end: int) -> bool:
    """True if the digest stands there in base64; as long as that is, it takes the same time."""
    if end - at != SIGNATURE_BYTES:
        return False
    different = 0
    for letter in range(SIGNATURE_BYTES - 1):
        bit = 6 * letter
        first = int64(digest[bit // 8]) << 8
        if bit // 8 + 1 < DIGEST_BYTES:
            first |= int64(digest[bit // 8 + 1])
        different |= _letter((first >> (10 - bit % 8)) & 63) ^ int64(data[at + letter])
    return bool((different | (int64(data[end - 1]) ^ 61)) == 0)  # the last one is "="


@compiled
def _check(
    data: Bytes,
    contents: Bytes,
    contents_at: int,
    signed: Numbers,
    users: Numbers,
    states: Bytes,
    state: Bytes,
    state_at: int,
    digest: Bytes,
    digest_at: int,
    wrong: npt.NDArray[np.bool_],
) -> None:
    """Set in `wrong` what requests have another signature than that of their user's key.

    `states` has two for each user. Where the name of an array ends with `_at` it is the address.
    """
    for row in range(len(users)):
        one = row * SIGNED_NUMBERS
        begin, end = signed[one + 2], signed[one + 3]
        if not 0 <= begin <= end <= len(contents):
            raise IndexError("the signed bytes are outside of the array")
        for half in range(2):
            first = (2 * users[row] + half) * STATE_BYTES
            for place in range(STATE_BYTES):
                state[place] = states[first + place]
            if half:
                _update(state_at, digest_at, DIGEST_BYTES)
            else:
                _update(state_at, contents_at + begin, end - begin)
            _final(digest_at, state_at)
        if not _has_signature(digest, data, signed[one + 6], signed[one + 7]):
            wrong[row] = True


@compiled
def _name_users(
    data: Bytes, signed: Numbers, row: int, names: Bytes, ends: Numbers, users: Numbers
) -> int:
    """Give the requests from `row` on the numbers of their users among the `names`, which end at
    `ends`; the first one of another user, or how many requests there are."""
    while row < len(users):
        at, end = signed[row * SIGNED_NUMBERS + 4], signed[row * SIGNED_NUMBERS + 5]
        number, start = 0, 0
        while number < len(ends):
            is_it = ends[number] - start == end - at
            place = 0
            while is_it and place < end - at:
                is_it = data[at + place] == names[start + place]
                place += 1
            if is_it:
                break
            start = ends[number]
            number += 1
        if number == len(ends):
            break
        users[row] = number
        row += 1
    return row


def _shown() -> bool:
    """Show OpenSSL's functions to the compiler; whether they are there."""
    try:
        library = ctypes.CDLL(_hashlib.__file__)
        for name in ("SHA1_Init", "SHA1_Update", "SHA1_Final"):
            binding.add_symbol(name, ctypes.cast(getattr(library, name), ctypes.c_void_p).value)
    except (OSError, AttributeError):
        return False
    return True


IS_COMPILED = _shown()


class Signatures:
    """Checks signatures; `is_compiled` says by which code."""

    def __init__(self, *, is_compiled: bool = IS_COMPILED) -> None:
        self._is_compiled = is_compiled
        self._state = np.zeros(STATE_BYTES, np.uint8)
        self._digest = np.zeros(DIGEST_BYTES, np.uint8)

    def wrong(
        self, table: SendTable, users: Numbers, keys: Sequence[SigningKey]
    ) -> npt.NDArray[np.bool_]:
        """True for each signed request that was not signed by the key of its user; `users`
        has the number of each request's user among the `keys`."""
        signed, found = table.signed, np.zeros(len(users), np.bool_)
        if not self._is_compiled:
            data, contents = table.data.data, table.contents.data
            for row, (_, _, at, end, *_, proof_at, proof_end) in enumerate(signed.tolist()):
                proof = b2a_base64(keys[users[row]].digest(contents[at:end]), newline=False)
                found[row] = not hmac.compare_digest(proof, data[proof_at:proof_end])
            return found
        states = np.concatenate([_states(key) for key in keys])
        _check(
            table.data,
            table.contents,
            table.contents.ctypes.data,
            signed.ravel(),
            users,
            states,
            self._state,
            self._state.ctypes.data,
            self._digest,
            self._digest.ctypes.data,
            found,
        )
        return found


def signers(table: SendTable) -> tuple[list[bytes], Numbers]:
    """The names of the users that sent the signed requests, and for each request the number of
    its user among them."""
    names: list[bytes] = []
    users = np.zeros(len(table.signed), np.int64)
    signed, row = table.signed.ravel(), 0
    while True:
        joined = np.frombuffer(b"".join(names) or bytes(1), np.uint8)
        ends = np.fromiter(accumulate(map(len, names)), np.int64, len(names))
        row = _name_users(table.data, signed, row, joined, ends, users)
        if row == len(users):
            return names, users
        names.append(table.data[slice(*table.signed[row, 4:6])].tobytes())


@functools.lru_cache(KEYS_MAX)
def _states(key: SigningKey) -> Bytes:
    """The two states that a digest with this key begins with."""
    states = np.zeros(2 * STATE_BYTES, np.uint8)
    for half, text in enumerate(key.blocks):
        block = np.frombuffer(text, np.uint8)
        _begin(block.ctypes.data, len(block), states.ctypes.data + half * STATE_BYTES)
    return states
