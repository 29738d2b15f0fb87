"""Messages to send and their validation. Sending never changes a message."""

import functools
import math
from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass
from datetime import datetime, timedelta
from types import NoneType

from ...protocol.errors import Refusal
from ...protocol.message import properties as props
from ...protocol.names import SEND_FORBIDDEN_TOPICS, check_topic
from ..argument_errors import IllegalMessageError
from .arguments import check_type, shown, wrong_type

BODY_BYTES_MAX = 4 << 20  # maxMessageSize of Java's client and broker
SEPARATORS = (props.NAME_VALUE_SEPARATOR, props.PAIR_SEPARATOR)
BODIES = (bytes, bytearray, memoryview)
TOPICS_REMEMBERED = 1_024  # names that were checked


def check_message(message: object) -> None:
    """IllegalMessageError unless it is a `Message`."""
    if not isinstance(message, Message):
        raise IllegalMessageError(wrong_type("message", message, "give a client.Message"))


@dataclass(slots=True)
class Message:
    """A message to be sent.

    `tags` is one tag. `keys` is a list of keys (a key has no blanks) or, as in RocketMQ, a text
    with blanks between them. `properties` are any further names and texts. One of these delays it:
    `delay_level` 1 to 18 (1 s to 2 h with the broker's defaults), `delay` (a timedelta, or
    seconds), `deliver_at` (a datetime; without a time zone it is local). `wait_store` False lets
    the broker answer before its disk or slave has the message, even when it is set to wait for
    them. `flag` is a number for the application.
    """

    topic: str
    body: bytes
    _: KW_ONLY
    tags: str | None = None
    keys: str | Iterable[str] = ()
    properties: Mapping[str, str] | None = None
    flag: int = 0
    delay_level: int = 0
    wait_store: bool = True
    delay: timedelta | float | None = None
    deliver_at: datetime | None = None

    def __post_init__(self) -> None:
        # One test for the usual message, because this runs for each message.
        if type(self.topic) is not str or type(self.body) is not bytes or not self.is_plain:
            self._check_types()
        elif type(self.flag) is not int:
            raise IllegalMessageError(wrong_type("flag", self.flag, "give a whole number"))

    def _check_types(self) -> None:
        """IllegalMessageError for a field of the wrong type."""
        _check_type("topic", self.topic, str, "give a text")
        _check_type("body", self.body, BODIES, "give bytes (text.encode() makes them from a text)")
        _check_type("tags", self.tags, (str, NoneType), "give one tag as a text, or None")
        self._check_keys()
        _check_type("properties", self.properties, (Mapping, NoneType), "give names with texts")
        _check_type("flag", self.flag, int, "give a whole number")
        _check_type("delay_level", self.delay_level, int, "give 1 to 18, or 0")
        _check_type("wait_store", self.wait_store, bool, "give True or False")
        delay = (int, float, timedelta, NoneType)
        _check_type("delay", self.delay, delay, "give seconds or a timedelta")
        _check_type(
            "deliver_at",
            self.deliver_at,
            (datetime, NoneType),
            "give a datetime, such as datetime.now() + timedelta(days=1), or use delay",
        )

    def _check_keys(self) -> None:
        keys: object = self.keys
        if keys is None:
            self.keys = ()  # None means no keys
            return
        if isinstance(keys, BODIES) or not isinstance(keys, Iterable):
            raise IllegalMessageError(wrong_type("keys", keys, "give a text, or a list of texts"))
        if isinstance(keys, (list, tuple, set, frozenset)):  # others: readable once
            for key in keys:
                _check_key(key)

    def check(self, body_bytes_max: int = BODY_BYTES_MAX) -> None:
        """IllegalMessageError, with the reason, when no broker would take it."""
        self.__post_init__()  # fields may have been set since
        _check_topic(self.topic)
        body = self.body
        if not body:
            raise IllegalMessageError(
                f"the body for topic {self.topic} is empty; brokers refuse that, send at least a "
                "byte"
            )
        if len(body) > body_bytes_max:
            raise IllegalMessageError(
                f"the body for topic {self.topic} has {len(body)} bytes, the limit is "
                f"{body_bytes_max}; send less, or raise maxMessageSize of the broker and "
                "message_bytes_max of the producer"
            )
        if self.delay_level or self.is_delayed:
            self._check_delay()

    def _check_delay(self) -> None:
        if not self.delay_level >= 0:
            raise IllegalMessageError(f"delay_level is {self.delay_level}; give 1 to 18, or 0")
        said = (self.delay_level or None, self.delay, self.deliver_at)
        if sum(each is not None for each in said) > 1:
            raise IllegalMessageError(
                f"delay_level is {self.delay_level}, delay {self.delay}, deliver_at "
                f"{self.deliver_at}; a message takes one of them"
            )
        if self.delay is not None and not self._delay_ms() >= 0:
            raise IllegalMessageError(f"delay is {self.delay}; give a time that is not negative")

    @property
    def is_delayed(self) -> bool:
        """True if `delay_level`, `delay` or `deliver_at` is set."""
        return bool(self.delay_level) or self.delay is not None or self.deliver_at is not None

    @property
    def is_plain(self) -> bool:
        """True if only topic, body and flag are set."""
        # `is_delayed` is inlined, because this runs for each send.
        return (
            not self.tags
            and not self.keys
            and not self.properties
            and not self.delay_level
            and self.wait_store is True
            and self.delay is None
            and self.deliver_at is None
        )

    def all_properties(self) -> dict[str, str]:
        """The properties to send, including the ones made from other fields, such as `tags`.

        IllegalMessageError for a reserved name, an empty name or text, or a separator inside.
        """
        pairs: dict[str, str] = {}
        if self.properties:
            for name, text in self.properties.items():
                if name in props.RESERVED:
                    raise IllegalMessageError(
                        f"property {name} is reserved for the protocol; use another name"
                    )
                _check_pair(name, text)
                pairs[name] = text
        keys = self.keys if isinstance(self.keys, str) else self._joined_keys(self.keys)
        if keys:
            _check_pair(props.KEYS, keys)
            pairs[props.KEYS] = keys
        if self.tags:
            _check_pair(props.TAGS, self.tags)
            pairs[props.TAGS] = self.tags
        if self.delay_level:
            pairs[props.DELAY] = str(self.delay_level)
        if self.delay is not None:
            pairs[props.TIMER_DELAY_MS] = str(self._delay_ms())
        if self.deliver_at is not None:
            pairs[props.TIMER_DELIVER_MS] = str(round(self.deliver_at.timestamp() * 1000))
        if not self.wait_store:
            pairs[props.WAIT] = "false"
        return pairs

    @staticmethod
    def _joined_keys(keys: Iterable[str]) -> str:
        listed = list(keys)
        for key in listed:
            _check_key(key)
        return props.KEY_SEPARATOR.join(listed)

    def _delay_ms(self) -> int:
        delay = self.delay
        seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay or 0
        return round(seconds * 1000) if math.isfinite(seconds) else -1


def _check_type(name: str, value: object, wanted: type | tuple[type, ...], cure: str) -> None:
    check_type(name, value, wanted, cure, IllegalMessageError)


def _check_key(key: object) -> None:
    _check_type("one of keys", key, str, "give texts")
    assert isinstance(key, str)
    if props.KEY_SEPARATOR in key:
        raise IllegalMessageError(
            f"the key {shown(key)} has a blank, at which RocketMQ divides it into several keys; "
            "replace the blank, such as by '-', or give several keys as a list"
        )


@functools.lru_cache(maxsize=TOPICS_REMEMBERED)
def _check_topic(topic: str) -> None:
    try:
        check_topic(topic)
    except Refusal as refusal:
        raise IllegalMessageError(refusal.remark) from None
    if topic in SEND_FORBIDDEN_TOPICS:
        raise IllegalMessageError(
            f"topic {topic} belongs to the broker; send to a topic of your own"
        )


def _check_pair(name: str, text: str) -> None:
    if (
        isinstance(name, str)
        and isinstance(text, str)
        and name.isprintable()  # separators are not printable, so this is usually the only check
        and text.isprintable()
        and name.strip()
        and text.strip()
    ):
        return
    if not isinstance(name, str) or not isinstance(text, str):
        raise IllegalMessageError(f"property {name!r} is {text!r}; names and values are texts")
    if not name.strip() or not text.strip():
        raise IllegalMessageError(
            f"property {name!r} is {text!r}; readers drop blank ones, leave it out"
        )
    for separator in SEPARATORS:
        if separator in text or separator in name:
            raise IllegalMessageError(
                f"property {name!r} holds the character {separator!r}, which separates properties"
            )


def encode_properties(pairs: dict[str, str]) -> str:
    """The sent form of properties; IllegalMessageError when it is too long."""
    text = props.join(pairs)
    size = len(text)
    if not text.isascii():
        raw = text.encode(errors="replace")
        text, size = raw.decode(), len(raw)
    if size > props.PROPERTIES_BYTES_MAX:
        raise IllegalMessageError(
            f"the properties have {size} bytes together, the limit is "
            f"{props.PROPERTIES_BYTES_MAX}; put some of it into the body"
        )
    return text
