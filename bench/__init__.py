"""The benchmark, `scripts/bench`: measures aerobee beside the Java broker. Not in the wheel."""
