"""scripts/simulate: prints the history of a seed, or searches many for one with a fault."""

import argparse
import logging

from .history import EVENTS, Story, run


def main() -> int:
    """1 when a history has a fault."""
    parser = argparse.ArgumentParser(
        prog="scripts/simulate",
        description="Run a cluster in virtual time, with faults that a seed draws.",
    )
    parser.add_argument("seed", type=int, nargs="?", help="print the history of this seed")
    parser.add_argument("--events", type=int, default=EVENTS, help="how many faults it has")
    parser.add_argument("--from", type=int, dest="first", help="run the seeds from this one on")
    parser.add_argument("--to", type=int, dest="last", help="up to this one")
    parser.add_argument("--log", action="store_true", help="print what the servers log, too")
    given = parser.parse_args()
    if given.log:
        logging.basicConfig(format="%(levelname)s %(name)s %(message)s", level=logging.INFO)
    else:
        logging.disable()
    if given.seed is not None:
        story = run(given.seed, given.events)
        print("\n".join(story.lines))
        return _told(story, given.events)
    if given.first is None or given.last is None:
        parser.error("give a seed, or --from and --to")
    return max(
        _told(run(seed, given.events), given.events) for seed in range(given.first, given.last + 1)
    )


def _told(story: Story, events: int) -> int:
    print(
        f"seed {story.seed}: {story.seconds:.1f} s, {story.acknowledged} messages acknowledged, "
        f"{story.delivered} delivered, digest {story.digest}, {len(story.faults)} faults"
    )
    if story.faults:
        print("\n".join(story.faults[:20]), repeat(story.seed, events), sep="\n")
    return min(1, len(story.faults))


def repeat(seed: int, events: int = EVENTS) -> str:
    """The line that repeats a history."""
    return f"repeat it with: scripts/simulate {seed} --events {events}"


if __name__ == "__main__":
    raise SystemExit(main())
