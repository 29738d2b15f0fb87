"""Requests about replication and access control, of a lone master without either."""

import pytest
from aerobee.broker.server import Broker
from aerobee.protocol import codes

from ..conftest import Caller


async def test_a_lone_master_names_its_end_and_no_slaves(broker: Broker, caller: Caller) -> None:
    await caller.send("T")
    answer = await caller.ask(codes.GET_BROKER_HA_STATUS)
    end = broker.store.log_end
    assert end > 0
    assert answer.body == (
        b'{"haClientRuntimeInfo":{"lastReadTimestamp":0,"lastWriteTimestamp":0,'
        b'"masterFlushOffset":0,"maxOffset":0,"transferredByteInSecond":0},"haConnectionInfo":[],'
        b'"inSyncSlaveNums":0,"master":true,"masterCommitLogMaxOffset":%d}' % end
    )


async def test_a_master_passes_over_its_masters_flush_offset(caller: Caller) -> None:
    fields = {"masterFlushOffset": "5"}
    assert (await caller.ask(codes.RESET_MASTER_FLUSH_OFFSET, fields)).code == codes.SUCCESS


async def test_epochs_are_a_controllers(caller: Caller) -> None:
    answer = await caller.ask(codes.GET_BROKER_EPOCH_CACHE)
    assert answer.code == codes.SYSTEM_ERROR
    assert (answer.remark or "").startswith("this request only for controllerMode")


@pytest.mark.parametrize("code", range(codes.AUTH_CREATE_USER, codes.AUTH_LIST_ACL + 1))
async def test_users_and_access_lists_are_not_there_and_the_answer_says_why(
    caller: Caller, code: int
) -> None:
    answer = await caller.ask(code, {"username": "u"}, b"{}")
    assert answer.code == codes.SYSTEM_ERROR
    assert "access control is not configured" in (answer.remark or "")
