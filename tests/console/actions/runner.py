"""Actions on a cluster without pages: `async with ActionRunner(address, folder) as runner`."""

from pathlib import Path
from types import TracebackType
from typing import Any, Self

from aerobee.client.base.security import OPEN, Security
from aerobee.console.actions.action import Outcome, Plan, State, apply, confirmed, preview
from aerobee.console.actions.registry import ActionRegistry
from aerobee.console.clusters.clusters import Clusters


class ActionRunner:
    """The clients of a console and its actions. With `is_sampled` it knows its cluster before the
    block begins."""

    def __init__(
        self, address: str, folder: Path, security: Security = OPEN, *, is_sampled: bool = True
    ) -> None:
        self._is_sampled = is_sampled
        self.clusters = Clusters({"main": address}, security)
        registry = ActionRegistry(folder)
        self.redrives = registry.redrives
        self.actions = registry.actions
        self.watched = self.clusters.by_name["main"]
        self.admin = self.watched.admin

    async def __aenter__(self) -> Self:
        await self.clusters.start()
        if self._is_sampled:
            await self.watched.collector.sampled.wait()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        wrong: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.redrives.close()
        await self.clusters.stop()

    async def plan(self, name: str, **form: str) -> Plan:
        """What a form would do."""
        action = self.actions[name]
        return await preview(action, self.watched, action.read(self.whole(name, form)), {})

    def whole(self, name: str, form: dict[str, str]) -> dict[str, str]:
        """A form as a browser sends it: with the defaults."""
        return {one.name: one.default for one in self.actions[name].fields} | form

    async def confirm(self, name: str, plan: Plan, **form: str) -> list[Outcome]:
        """Do what a plan showed."""
        action = self.actions[name]
        values = action.read(self.whole(name, form))
        again = await confirmed(action, self.watched, values, plan.pins, plan.fingerprint)
        return await apply(again.changes)

    async def do(self, name: str, **form: str) -> list[Outcome]:
        """Preview and confirm, and all is done."""
        plan = await self.plan(name, **form)
        assert plan.refusals == []
        found = await self.confirm(name, plan, **form)
        assert {one.state for one in found} == {State.DONE}, found
        return found


def rows(plan: Plan) -> list[tuple[str, Any, Any]]:
    """What a plan shows of its changes."""
    return [(one.place, one.before, one.after) for one in plan.changes]
