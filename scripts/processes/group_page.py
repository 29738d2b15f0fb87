"""The HTTP endpoint of a group of brokers: the metrics of its members added up, and each member."""

from collections.abc import Generator, Iterator
from typing import TypeVar

from ...broker.settings.config import BrokerConfig
from ...conf.secret import secret_of
from ...console.endpoint import DaemonView, Endpoint
from ...console.exposition import Family
from ...console.metrics_merge import added_up, fetched, total
from ...protocol.aio.slices import step_per_tick
from ..endpoints import endpoint_at
from .broker_group import BrokerGroup

Result = TypeVar("Result")

IN, OUT = "rocketmq_messages_in_total", "rocketmq_messages_out_total"
LABEL = ("member",)


class GroupPage:
    """The pages of the endpoint, read from the members for each request."""

    def __init__(self, group: BrokerGroup, config: BrokerConfig) -> None:
        self._group = group
        self._config = config
        self._token = secret_of("httpToken", config.http_token)
        self._texts: dict[str, str] = {}

    def endpoint(self) -> Endpoint:
        """The endpoint, not started yet, at the address of the settings."""
        view = DaemonView(
            fault=self._fault,
            not_ready=self._fault,
            metrics=self._families,
            in_slices=self._in_slices,
            status=self._status,
            note=lambda: "; ".join(self._group.notes()) or None,
            more_metrics=self._added_up,
            console=self._config.console_url,
        )
        return endpoint_at(self._config, view, self._config.listen_port)

    def _fault(self) -> str | None:
        if any(member.is_serving for member in self._group.members):
            return None
        return "no member serves; " + "; ".join(self._group.notes())

    async def _in_slices(self, steps: Generator[object, None, Result], /) -> Result:
        members = self._group.members
        pages = {each.plan.name: each.page for each in members if each.is_serving and each.page}
        self._texts = await fetched(pages, self._token)
        return await step_per_tick(steps)

    async def _added_up(self) -> bytes:
        return added_up(self._texts, self._config.broker_name).encode()

    def _families(self) -> Iterator[Family]:
        members, texts = self._group.members, self._texts
        up = [((each.plan.name,), float(each.is_serving)) for each in members]
        yield "aerobee_member_up", "gauge", "1 for a member that serves", LABEL, up
        restarts = [((each.plan.name,), float(each.restarts)) for each in members]
        text = "Starts of a member after it ended by itself"
        yield "aerobee_member_restarts_total", "counter", text, LABEL, restarts
        for name, text, family in (
            ("aerobee_member_messages_in_total", "Messages that a member took", IN),
            ("aerobee_member_messages_out_total", "Messages that a member handed out", OUT),
        ):
            values = [((member,), total(found, family)) for member, found in texts.items()]
            yield name, "counter", text, LABEL, values

    def _status(self, with_system: bool) -> Generator[None, None, dict[str, object]]:
        yield
        texts = self._texts
        return {
            "daemon": "group of brokers",
            "name": self._config.broker_name,
            "members": [
                {
                    "member": each.plan.name,
                    "state": each.state,
                    "address": each.address,
                    "http": each.page,
                    "process": None if each.child is None else each.child.pid,
                    "restarts": each.restarts,
                    "messages_in": int(total(texts.get(each.plan.name, ""), IN)),
                    "messages_out": int(total(texts.get(each.plan.name, ""), OUT)),
                    "reason": each.reason,
                }
                for each in self._group.members
            ],
        }
