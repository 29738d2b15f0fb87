"""The defaults of an aerobee broker, as the console compares settings with them."""

import json

from ..broker.settings.config import BrokerConfig
from ..conf.java_keys import JAVA_KEYS
from ..console.web.broker_settings import PLACES, PROCESSORS


def document() -> bytes:
    """Every setting that a broker tells, with its default; null is not set."""
    told: dict[str, str | None] = {**BrokerConfig().as_properties()}
    found = {key: None for key in ("namesrvAddr", *JAVA_KEYS)} | told
    kept = {key: found[key] for key in sorted(found.keys() - PLACES - PROCESSORS)}
    return (json.dumps(kept, indent=1) + "\n").encode()
