"""Which requests an audit log has, and under what names."""

from .. import codes
from ..errors import Refusal
from .needs import Needs
from .policies import CREATE, DELETE, UPDATE
from .signature import ACCESS_KEY

# Header fields that are left out: the user has a place of its own, the others may be secret.
HIDDEN = frozenset({ACCESS_KEY, "Signature", "SecurityToken", "value"})
READING = (
    "GET_",
    "QUERY_",
    "VIEW_",
    "SEARCH_",
    "AUTH_GET_",
    "AUTH_LIST_",
    "CHECK_",
    "EXPORT_",
    "CONTROLLER_GET_",
)
CHANGING = {CREATE, UPDATE, DELETE}
# What brokers, name servers, slaves and consumers tell each other all the time.
ROUTINE = frozenset(
    {
        codes.REGISTER_BROKER,
        codes.BROKER_HEARTBEAT,
        codes.EXCHANGE_BROKER_HA_INFO,
        codes.NOTIFY_MIN_BROKER_ID_CHANGE,
        codes.NOTIFY_CONSUMER_IDS_CHANGED,
        codes.UPDATE_CONSUMER_OFFSET,
    }
)


def name_of(code: int) -> str:
    """RocketMQ's name of a request; its number for an unknown one."""
    return codes.REQUEST_NAMES.get(code, str(code))


def is_change(code: int, access: Needs) -> bool:
    """True if a request with this code, of a row with this access, is an administrative change."""
    if code in ROUTINE or name_of(code).startswith(READING):
        return False
    return bool(access.actions & CHANGING) or code == codes.CONSUME_MESSAGE_DIRECTLY


def is_denial(refusal: Refusal) -> bool:
    """True if access control has refused."""
    return refusal.code == codes.NO_PERMISSION
