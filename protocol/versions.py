"""What RocketMQ calls the versions that commands carry as numbers: MQVersion's names by ordinal."""

_FIRST = """
    V3_0_0_SNAPSHOT V3_0_0_ALPHA1 V3_0_0_BETA1 V3_0_0_BETA2 V3_0_0_BETA3 V3_0_0_BETA4 V3_0_0_BETA5
    V3_0_0_BETA6_SNAPSHOT V3_0_0_BETA6 V3_0_0_BETA7_SNAPSHOT V3_0_0_BETA7 V3_0_0_BETA8_SNAPSHOT
    V3_0_0_BETA8 V3_0_0_BETA9_SNAPSHOT V3_0_0_BETA9 V3_0_0_FINAL
"""


def _names() -> list[str]:
    names = _FIRST.split()
    for number in range(1, 16):  # 3.0.1 to 3.0.15
        names += [f"V3_0_{number}_SNAPSHOT", f"V3_0_{number}"]
    for major in (3, 4, 5):
        for minor in range(10):
            if major == 3 and minor == 0:
                continue
            for patch in range(10):
                if major == 3 and patch == 0 and minor > 2:
                    continue
                name = f"V{major}_{minor}_{patch}"
                names += [f"{name}_SNAPSHOT", name]
    return [*names, "HIGHER_VERSION"]


NAMES = _names()


def version_name(number: int) -> str:
    """The name of a version; what is higher than all known ones is HIGHER_VERSION."""
    return NAMES[min(max(number, 0), len(NAMES) - 1)]
