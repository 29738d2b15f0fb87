"""Settings that change while the broker runs: UPDATE_BROKER_CONFIG (25).

A key of `DYNAMIC` takes effect at once. A key of `AT_START` takes effect at the next start. A key
of RocketMQ without effect on this broker is kept and shown: RocketMQ takes each of its keys, and
its tools and tests set keys without checking whether they matter. A path, a class, a command, an
address, a name or a file size is refused (`conf/dynamic_keys.toml` has the lists). A key that
neither RocketMQ nor the configuration has is passed over, as there, with a warning in the log.

A request changes all its keys or none. The changes are kept in config/hotKeys.json, each with the
value that it replaced. The next start applies a change again, unless the configuration has a new
value for that key: the last change wins, as in RocketMQ, which edits the configuration file.
"""

import logging
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import msgspec

from ...conf import load
from ...conf.java_keys import JAVA_KEYS
from ...conf.load import OTHERS, UNKNOWN, text_of
from ...conf.sources import ConfigError, Setting
from ...protocol import codes
from ...protocol.bodies.body import Body
from ...protocol.bodies.data_version import DataVersion
from ...protocol.errors import Refusal
from ...store.files import json_file
from .config import KEYS, BrokerConfig

log = logging.getLogger(__name__)

Found = TypeVar("Found")

KEY_SHOWN_MAX = 128
VALUE_CHARS_MAX = 1_024

_LISTS = tomllib.loads(Path(load.__file__).with_name("dynamic_keys.toml").read_text())
STORE_LIMITS = frozenset(_LISTS["store_limits"])
DYNAMIC = STORE_LIMITS.union(_LISTS["at_once"])
AT_START = frozenset(_LISTS["at_start"])
REFUSED = frozenset(_LISTS["refused"])  # though they have no effect


class Change(Body):
    """One changed key: its text, and the text that the configuration had for it."""

    text: str = ""
    instead_of: str = ""


class ChangesTable(Body):
    """config/hotKeys.json."""

    changes: dict[str, Change] = {}
    data_version: DataVersion | None = None


class DynamicSettings:
    """Assigns to the config of a running broker. `version` counts the changes; `later` has the
    texts of the keys that take effect at the next start."""

    def __init__(self, config: BrokerConfig, path: Path, now_ms: Callable[[], int]) -> None:
        self._config = config
        self._path = path
        self._now_ms = now_ms
        self._changes: dict[str, Change] = {}
        self._effects: dict[str, list[Callable[[], object]]] = {}
        self.later: dict[str, str] = {}
        self.version = DataVersion(0, now_ms(), 0)

    def on_change(self, effect: Callable[[], object], *keys: str) -> None:
        """Call `effect` after one of these keys has changed, once for all keys of one request."""
        for key in keys:
            assert key in DYNAMIC, key
            self._effects.setdefault(key, []).append(effect)

    def load(self) -> None:
        """Bring the changes of earlier runs into the config; ValueError for a file that can't be
        read. To be called before any part reads the config."""
        found = json_file.load(self._path, ChangesTable.decode)
        if found is None:
            return
        self.version = found.data_version or self.version
        for key, change in self._known(found.changes, "hotKeys.json").items():
            try:
                values, texts = self._checked({key: change.text})
            except Refusal as wrong:
                log.warning("the change of %s that was kept is dropped: %s", _shown(key), wrong)
                continue
            configured = self._text(key)
            if configured != change.instead_of:
                log.warning(
                    "%s is %s: the configuration has a new value, so %s, which was set over the "
                    "network, is dropped",
                    key,
                    configured,
                    change.text,
                )
                continue
            self._changes[key] = change
            self._set(values)
            self._set_others(texts)
            log.info("%s is %s, set over the network; configured is %s", key, *_texts(change))

    def update(self, wanted: Mapping[str, str]) -> list[str]:
        """Change these keys, all of them or none; returns the keys whose value has changed.

        Refusal NO_PERMISSION for a key that may not be changed, INVALID_PARAMETER for an illegal
        value.
        """
        wanted = self._known(wanted, "a request")
        values, others = self._checked(wanted)
        texts = {key: self._wanted_text(key, values, others) for key in wanted}
        before = {key: self._current(key) for key in wanted}
        changed = [key for key in wanted if texts[key] != before[key]]
        if not changed:
            return []
        changes = dict(self._changes)
        for key in changed:
            old = changes.pop(key, None)
            configured = before[key] if old is None else old.instead_of
            if texts[key] != configured:
                changes[key] = Change(texts[key], configured)
        version = self.version.following(self._now_ms())
        json_file.save(self._path, ChangesTable(changes, version).encode(standard=True))
        self._changes, self.version = changes, version
        self._set(
            {
                KEYS.fields[key].name: values[KEYS.fields[key].name]
                for key in changed
                if key in DYNAMIC
            }
        )
        self._set_others({key: text for key, text in others.items() if key in changed})
        for key in changed:
            if key in AT_START:
                self.later[key] = texts[key]
            log.info("%s is %s now, it was %s%s", key, texts[key], before[key], _when(key))
        for effect in dict.fromkeys(one for key in changed for one in self._effects.get(key, ())):
            effect()
        return changed

    def _known(self, texts: Mapping[str, Found], source: str) -> dict[str, Found]:
        """The changes of keys that RocketMQ or the configuration has; warns about others."""
        known = {
            key: text
            for key, text in texts.items()
            if KEYS.state(key) != UNKNOWN or key in REFUSED | self._config.others.keys()
        }
        if unknown := sorted(texts.keys() - known.keys()):
            near = KEYS.nearest(unknown[0])
            log.warning(
                "%d unknown keys (%s) are not kept, the first is %s%s",
                len(unknown),
                source,
                _shown(unknown[0]),
                f"; did you mean {near}?" if near else "",
            )
        return known

    def _checked(self, wanted: Mapping[str, str]) -> tuple[dict[str, object], dict[str, str]]:
        """The values of settings by attribute name, and the texts of other keys; Refusal."""
        others = {}
        for key, text in wanted.items():
            if key in KEYS.fields:
                if key not in DYNAMIC and key not in AT_START:
                    raise _refused(key)
            else:
                _check(key, text)
                others[key] = text
        try:
            values, _ = KEYS.values([Setting(key, text, "request") for key, text in wanted.items()])
            values.pop(OTHERS, None)
            msgspec.structs.replace(self._config, **values)  # it checks what must fit together
        except ConfigError as wrong:
            raise Refusal(codes.INVALID_PARAMETER, str(wrong)) from None
        return values, others

    def _wanted_text(self, key: str, values: dict[str, object], others: dict[str, str]) -> str:
        return others[key] if key in others else text_of(values[KEYS.fields[key].name])

    def _current(self, key: str) -> str:
        """The value of a key that GET_BROKER_CONFIG shows."""
        return self.later.get(key) or self._text(key)

    def _text(self, key: str) -> str:
        """The text of a key in the config; empty if there is none."""
        info = KEYS.fields.get(key)
        if info is not None:
            return text_of(getattr(self._config, info.name))
        default = JAVA_KEYS.get(key, ("", None))[1]
        return self._config.others.get(key, default or "")

    def _set(self, values: Mapping[str, object]) -> None:
        for name, value in values.items():
            setattr(self._config, name, value)

    def _set_others(self, texts: Mapping[str, str]) -> None:
        """Keep keys without an effect."""
        self._config.others = {**self._config.others, **texts}


def _when(key: str) -> str:
    if key in DYNAMIC:
        return ""
    if key in AT_START:
        return "; it takes effect at the next start"
    return "; it is without effect on this broker"


def _texts(change: Change) -> tuple[str, str]:
    return change.text, change.instead_of


def _check(key: str, text: str) -> None:
    """Refusal when a key that has no effect may not be kept, or not with this value."""
    if key in REFUSED:
        raise _refused(key)
    if len(text) > VALUE_CHARS_MAX or not text.isprintable():
        raise Refusal(
            codes.INVALID_PARAMETER,
            f"the value of {key} has {len(text)} characters, of which at most {VALUE_CHARS_MAX} "
            "printable ones are kept; shorten it",
        )


def _shown(key: str) -> str:
    """A key as it may stand in a sentence."""
    return ascii(key[:KEY_SHOWN_MAX])[1:-1]


def _refused(key: str) -> Refusal:
    """The Refusal for a key that is never changed over the network."""
    return Refusal(
        codes.NO_PERMISSION,
        f"Can not update config in black list. {_shown(key)} may be a path, a size of files, a "
        "class, a command, an address, a name or a right, so the network can't change it. Put it "
        "into the configuration and restart",
    )
