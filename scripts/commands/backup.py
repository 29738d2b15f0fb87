"""`aerobee backup` and `aerobee restore`: a store folder to another place, and back.

A backup only reads the store, and works while a broker, aerobee's or Java's, uses the folder. It
reads files of this machine: where a broker is named, its folder must be here.
"""

import argparse
import asyncio
import json
import os
import re
import time
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from ...client.admin.admin import Admin
from ...client.base.start_from import TIMESTAMP
from ...conf.version import own_version
from ..begin_at import TIMES, start_of
from ..connecting import add_options, security
from ..numbers import whole
from ..output.command_error import CommandError
from ..output.progress import bytes_bar
from ..output.table import print_rows

if TYPE_CHECKING:
    from ...store.backup.taking import Pace
    from ...store.backup.targets import Target

NICE = 19  # a broker on the same cores goes first
UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
KEPT = whole("is no number from 1 on", 1)
TARGET = "a folder, or a URL that fsspec knows, such as s3://bucket/path (extra `backup`)"


def declare(command: str, parser: argparse.ArgumentParser) -> None:
    """The options of both commands."""
    add = parser.add_argument
    if command == "backup":
        parser.epilog = "What an earlier backup in TARGET has is not written again."
        add("source", metavar="STORE|BROKER", help="a store folder, or a broker of this machine")
        add("target", metavar="TARGET", help=TARGET)
        add("--rate", metavar="SIZE", help="bytes to read a second, such as 50MiB (no limit)")
        add("--keep", type=KEPT, metavar="N", help="delete all but the newest N backups (none)")
        add("--log-folder", type=Path, metavar="DIR", help="the broker's storePathCommitLog")
    else:
        parser.epilog = "An interrupted restore goes on when the command is repeated."
        add("target", metavar="TARGET", help=TARGET)
        add("folder", nargs="?", type=Path, metavar="DIR", help="a new or empty store folder")
        add("--until", metavar="TIME", help=f"only messages stored up to then: {TIMES}")
        add("--backup", metavar="NAME", help="not the newest; a part of its name will do")
        add("--list", action="store_true", help="list the backups in TARGET")
        add("--check", action="store_true", help="read all of a backup and compare the hashes")
    add("--json", action="store_true", help="the result as an object")
    add_options(parser)
    parser.set_defaults(run=take if command == "backup" else bring)


def take(options: argparse.Namespace) -> int:
    """Take a backup."""
    from ...store.backup import taking
    from ...store.backup.targets import target_of

    root, log_folder = _source(options)
    target = target_of(options.target)
    with suppress(OSError):
        os.nice(NICE)
    begun = time.monotonic()
    with bytes_bar("backing up", counted="files") as progress:
        taken = taking.take(
            root,
            target,
            version=own_version(),
            now_ms=_now_ms,
            log_folder=log_folder,
            pace=_pace(options.rate),
            progress=progress,
        )
    gone = taking.forget_old(target, options.keep) if options.keep else 0
    if options.json:
        print(json.dumps({**asdict(taken), "deleted": gone}))
    else:
        seconds = time.monotonic() - begun
        print(f"{target.place(taken.name)} has {taken.data_bytes:,} bytes of {root}")
        print(
            f"{taken.read_bytes:,} bytes read, {taken.new_bytes:,} new, {seconds:,.1f} s"
            + (f"; {gone} older backups deleted" if gone else "")
        )
    return 0


def bring(options: argparse.Namespace) -> int:
    """Restore, list or check."""
    from ...store.backup import manifest, restoring
    from ...store.backup.targets import target_of

    target = target_of(options.target)
    if options.list:
        return _list(target, as_json=options.json)
    if options.check:
        name = manifest.named(manifest.existing(target), options.backup)
        with bytes_bar("checking", counted="files") as progress:
            backup = restoring.check(target, name, progress)
        print(
            f"{target.place(name)} is whole: {len(backup.files):,} files, "
            f"{backup.data_bytes:,} bytes"
        )
        return 0
    if options.folder is None:
        raise CommandError("restore where? write: aerobee restore TARGET DIR")
    until_ms = None
    if options.until is not None:
        start = start_of(options.until, latest=False, option="--until")
        if start.where != TIMESTAMP:
            raise CommandError(f"--until {options.until} is no time; give {TIMES}")
        until_ms = start.ms
    with bytes_bar("restoring", counted="files") as progress:
        restored = restoring.restore(
            target, options.folder, name=options.backup, until_ms=until_ms, progress=progress
        )
    if options.json:
        print(json.dumps(asdict(restored)))
    else:
        cut = f", and cut its log at {restored.cut_at}" if restored.cut_at >= 0 else ""
        print(
            f"restored {restored.files:,} files with {restored.data_bytes:,} bytes from "
            f"{target.place(restored.name)}{cut}; a broker that starts on {options.folder} makes "
            "queues and index fit, as after a crash"
        )
    return 0


def _list(target: "Target", *, as_json: bool) -> int:
    from ...store.backup import manifest

    rows = []
    for name in manifest.existing(target):
        backup = manifest.load(target, name)
        begun, done = (
            datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="seconds")
            for ms in (backup.begun_ms, backup.done_ms)
        )
        rows.append((manifest.label(name), begun, done, len(backup.files), backup.data_bytes))
    return print_rows(("BACKUP", "BEGUN", "DONE", "FILES", "BYTES"), rows, as_json=as_json)


def _source(options: argparse.Namespace) -> tuple[Path, Path | None]:
    """The store's folder, and that of its log if it is elsewhere."""
    folder = Path(options.source)
    if folder.is_dir() or "/" in options.source:
        return folder, options.log_folder
    settings = asyncio.run(_settings(options))
    root = Path(settings.get("storePathRootDir", ""))
    log_folder = options.log_folder or Path(
        settings.get("storePathCommitLog") or root / "commitlog"
    )
    if not (root / "abort").exists() or not log_folder.is_dir():
        raise CommandError(
            f"the broker {options.source} has its store in {root}, and no broker has that folder "
            "open on this machine; run this where the broker runs"
        )
    return root, log_folder


async def _settings(options: argparse.Namespace) -> dict[str, str]:
    """The settings of the broker with this name, a master, or of the one at this address."""
    async with Admin(options.namesrv, security=security(options)) as admin:
        address = options.source
        if ":" not in address:
            table = (await admin.cluster_info()).broker_addr_table
            if address not in table:
                known = ", ".join(sorted(table)) or "none"
                raise CommandError(
                    f"{address} is no folder and no broker; the name server knows {known}"
                )
            address = min(table[address].broker_addrs.items())[1]
        text = await admin.broker_config(address)
    pairs = (line.partition("=") for line in text.splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}


def _pace(rate: str | None) -> "Pace":
    """Sleeps so that no more than the rate is read from its first call on."""
    if rate is None:
        return lambda _: None
    found = re.fullmatch(r"(\d{1,12})(|KiB|MiB|GiB)(/s)?", rate.strip())
    if found is None or not int(found[1]):
        raise CommandError(f"--rate {rate} is no rate; give bytes a second, such as 50MiB")
    limit = int(found[1]) * UNITS[found[2]]
    begun, done = time.monotonic(), 0

    def wait(read: int) -> None:
        nonlocal done
        done += read
        time.sleep(max(0.0, begun + done / limit - time.monotonic()))

    return wait


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
