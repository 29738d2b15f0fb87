"""The audit: a line before and after each action, no secret in it, and no action without it."""

import json
from pathlib import Path

import pytest
from aerobee.console.access.audit import Audit, AuditFailed
from aerobee.console.access.rights import Right, Visitor

VISITOR = Visitor("ann", Right.OPERATE, address="127.0.0.1")
AT_MS = 1_700_000_000_123


def audit_in(folder: Path) -> Audit:
    return Audit(folder / "state" / "audit.jsonl", now=lambda: AT_MS)


async def test_an_action_has_a_line_before_and_one_after_it(tmp_path: Path) -> None:
    audit = audit_in(tmp_path)
    entry = await audit.begin(VISITOR, "main", "topic.delete", "orders", {"brokers": ["a", "b"]})
    (before,) = map(json.loads, audit.path.read_text().splitlines())
    assert before == {
        "at": "2023-11-14T22:13:20.123+00:00",
        "entry": entry.id,
        "step": "begin",
        "visitor": "ann",
        "from": "127.0.0.1",
        "cluster": "main",
        "action": "topic.delete",
        "target": "orders",
        "details": {"brokers": ["a", "b"]},
    }
    await audit.end(entry, {"a": "done", "b": "unknown"})
    after, again = audit.last(10)
    assert again == before
    assert (after["entry"], after["step"]) == (entry.id, "end")
    assert after["result"] == {"a": "done", "b": "unknown"}
    assert audit.last(1) == [after]
    assert audit.path.stat().st_mode & 0o777 == 0o600


async def test_no_secret_and_no_endless_text_is_in_the_audit(tmp_path: Path) -> None:
    audit = audit_in(tmp_path)
    details = {"user": "bob", "password": "hush", "more": [{"secretKey": "hush"}], "x": "y" * 5_000}
    await audit.begin(VISITOR, "main", "user.create", "bob\n{}", details)
    text = audit.path.read_text()
    assert "hush" not in text
    assert "(5000 characters)" in text
    assert len(text.splitlines()) == 1
    with pytest.raises(AuditFailed, match="the limit is 262144; do this in smaller steps"):
        await audit.begin(VISITOR, "main", "x", "x", {"many": ["x" * 900] * 300})
    assert len(audit.last(10)) == 1


async def test_an_audit_that_can_not_be_written_fails(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "file").write_text("")
    for name in ("link", "", "file/below"):
        audit = Audit(tmp_path / name)
        with pytest.raises(AuditFailed, match="there is no action"):
            await audit.begin(VISITOR, "main", "topic.delete", "orders", {})
        with pytest.raises(AuditFailed):
            audit.check()
    assert not (tmp_path / "elsewhere").exists()


async def test_a_line_that_a_crash_cut_is_left_out(tmp_path: Path) -> None:
    audit = audit_in(tmp_path)
    assert audit.last(10) == []
    await audit.begin(VISITOR, "main", "one", "x", {})
    with audit.path.open("a") as file:
        file.write('{"at": "2023\n')
    await audit.begin(VISITOR, "main", "two", "x", {})
    assert [row["action"] for row in audit.last(10)] == ["two", "one"]
