"""Access control and TLS as options of the source and the sink."""

import pytest
from aerobee.client.base.security import Security
from aerobee.spark.security_options import SECURITY_OPTIONS, options_of, security_of

EACH = [
    Security(),
    Security("reports", "a-secret"),
    Security("reports", "a-secret", "a-token"),
    Security(tls=True),
    Security(tls_ca="ca.pem"),
    Security(tls_insecure=True),
]


@pytest.mark.parametrize("security", EACH, ids=repr)
def test_the_settings_of_a_command_reach_the_source_as_options(security: Security) -> None:
    options = options_of(security)
    assert options.keys() <= set(SECURITY_OPTIONS)
    assert security_of(options) == security


def test_options_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ValueError, match=r"tls_ca is 'ca\.pem' and tls_insecure is true"):
        security_of({"tlsCa": "ca.pem", "tlsInsecure": "true"})
    with pytest.raises(ValueError, match="option tls is 'yes'; give true or false"):
        security_of({"tls": "yes"})
