"""The access lists by user: acls.json.

A change is in the file when the call returns, or did not happen. Only the file's owner can read it.
"""

from collections.abc import Iterable
from pathlib import Path

from ...protocol import codes
from ...protocol.bodies.access import AclInfo, AclTable, PolicyEntryInfo, PolicyInfo
from ...protocol.errors import Refusal
from ...protocol.security import policies as rules
from ...protocol.security.policies import (
    CUSTOM,
    DEFAULT,
    USER_PREFIX,
    Need,
    PolicyEntry,
    Resource,
    entry_of,
)
from ...store.files import json_file

ENTRIES_MAX = 1_000  # of one user
LISTS_MAX = 10_000
DECISIONS_MAX = 20_000  # remembered

_TYPES = {CUSTOM.lower(): CUSTOM, DEFAULT.lower(): DEFAULT}

Policies = dict[str, dict[Resource, PolicyEntry]]


class AccessLists:
    """The lists by the name of their user."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lists: dict[str, Policies] = {}
        # Why a user may not do something, None if allowed: every message asks the same again.
        self._decisions: dict[tuple[str, Need, str], str | None] = {}

    def load(self) -> None:
        """Read the file; StoreError naming it when neither it nor its .bak can be read."""
        found = json_file.load(self._path, _decode)
        if found is not None:
            self._lists = found

    def get(self, user: str) -> AclInfo | None:
        policies = self._lists.get(user)
        return None if policies is None else _to_info(user, policies)

    def all(
        self, subject_filter: str | None = None, resource_filter: str | None = None
    ) -> list[AclInfo]:
        """Lists whose subject contains the one text, with the entries whose resource contains the
        other; a subject that contains both comes with all entries, as in RocketMQ."""
        wanted = ((subject_filter or "").strip() and subject_filter) or ""
        about = ((resource_filter or "").strip() and resource_filter) or ""
        found = []
        for user in sorted(self._lists, key=str.encode):
            subject = USER_PREFIX + user
            if wanted not in subject:
                continue
            policies = self._lists[user]
            if about not in subject:
                policies = {
                    kind: {r: entry for r, entry in entries.items() if about in r.key}
                    for kind, entries in policies.items()
                }
                policies = {kind: entries for kind, entries in policies.items() if entries}
            if policies:
                found.append(_to_info(user, policies))
        return found

    def put(self, user: str, given: list[PolicyInfo] | None) -> None:
        """Add these entries. An entry about a resource that has one already replaces it.

        Refusal when something is wrong with one of them, or over the limit: then none is taken.
        """
        policies = {kind: dict(entries) for kind, entries in self._lists.get(user, {}).items()}
        for kind, entries in _policies_of(given).items():
            policies.setdefault(kind, {}).update(entries)
        count = sum(map(len, policies.values()))
        if count > ENTRIES_MAX:
            raise Refusal(
                codes.NO_PERMISSION,
                f"the access list of {USER_PREFIX}{user} would have {count} entries, the limit is "
                f"{ENTRIES_MAX}; use prefixes, or delete some",
            )
        if user not in self._lists and len(self._lists) >= LISTS_MAX:
            raise Refusal(
                codes.NO_PERMISSION,
                f"there are {len(self._lists)} access lists, the limit is {LISTS_MAX}; delete some",
            )
        self._save(self._lists | {user: policies})

    def delete(self, user: str, kind: str | None = None, about: Resource | None = None) -> None:
        """Remove a policy's (Custom unless named) entries for a resource, or the whole list.

        Refusal when there is no list.
        """
        old = self._lists.get(user)
        if old is None:
            raise Refusal(codes.NO_PERMISSION, "The acl is not exist.")
        policies: Policies = {}
        if about is not None:
            wanted = _type_of(kind)
            policies = {
                each: {r: entry for r, entry in entries.items() if each != wanted or r != about}
                for each, entries in old.items()
            }
            policies = {each: entries for each, entries in policies.items() if entries}
        lists = {other: each for other, each in self._lists.items() if other != user}
        self._save(lists | {user: policies} if policies else lists)

    def forget(self, user: str) -> None:
        """Remove a user's list, if there is one."""
        if user in self._lists:
            self.delete(user)

    def denial(self, user: str, need: Need, ip: str) -> str | None:
        """The reason why the user may not do this from that address; None if the user may."""
        key = (user, need, ip)
        decisions = self._decisions
        if key in decisions:
            return decisions[key]
        if len(decisions) >= DECISIONS_MAX:
            decisions.clear()
        found = decisions[key] = self._decide(user, need, ip)
        return found

    def _decide(self, user: str, need: Need, ip: str) -> str | None:
        policies = self._lists.get(user, {})
        return rules.denial(
            {kind: entries.values() for kind, entries in policies.items()}, need, ip
        )

    def _save(self, lists: dict[str, Policies]) -> None:
        infos = {USER_PREFIX + user: _to_info(user, each) for user, each in lists.items()}
        text = AclTable(infos).encode(standard=True)
        json_file.save(self._path, text, mode=json_file.OWNER_ONLY)
        self._lists = lists
        self._decisions.clear()


def user_of(subject: str | None) -> str:
    """The user that a subject names; Refusal for one that names none."""
    kind, _, user = (subject or "").partition(":")
    if kind.lower() != "user" or not user:
        raise Refusal(
            codes.INVALID_PARAMETER,
            f"the subject {(subject or '')[:80]!a} is none; give User:NAME",
        )
    return user


def _policies_of(given: Iterable[PolicyInfo] | None) -> Policies:
    found: Policies = {}
    for policy in given or ():
        entries = found.setdefault(_type_of(policy.policy_type), {})
        made: Iterable[PolicyEntryInfo] = policy.entries or ()
        for entry in map(entry_of, made):
            entries[entry.resource] = entry
    if not found or not all(found.values()):
        raise Refusal(codes.NO_PERMISSION, "The policies is empty: give entries to at least one")
    return found


def _type_of(name: str | None) -> str:
    if not name:
        return CUSTOM
    found = _TYPES.get(name.lower())
    if found is None:
        raise Refusal(
            codes.INVALID_PARAMETER,
            f"the policy type {name[:40]!a} is none; give {CUSTOM} or {DEFAULT}",
        )
    return found


def _to_info(user: str, policies: Policies) -> AclInfo:
    infos = [
        PolicyInfo(kind, [entry.to_info() for entry in entries.values()])
        for kind, entries in policies.items()
    ]
    return AclInfo(USER_PREFIX + user, infos)


def _decode(text: bytes) -> dict[str, Policies]:
    try:
        return {
            user_of(subject): _policies_of(info.policies)
            for subject, info in AclTable.decode(text).acls.items()
        }
    except Refusal as wrong:
        raise ValueError(wrong.remark) from None
