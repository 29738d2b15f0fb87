"""A release: sdist, wheel and list of parts (SBOM) in dist/, each checked.

    scripts/release                             all Pythons that are there, all extras
    scripts/release --python 3.12 --extra tls   one environment

1. sdist and wheel are built and checked: no tests, nothing but the package and its data.
2. `twine check --strict` reads their metadata.
3. The wheel is installed into a fresh environment of each Python and extra; `pip check` finds no
   conflict; a broker, a producer and a consumer work there.
4. In an environment with all extras: each part has a licence that the list here allows, pip-audit
   knows no hole in it, and CycloneDX lists the parts.

Nothing is uploaded. The first thing that is wrong ends it with a sentence and exit code 1.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
TOOLS = ("build", "twine", "pip-audit", "cyclonedx-bom")
NONE, ALL = "none", "all"
OF_DEVELOPERS = {"dev", "docs"}  # extras that no user installs
# What the extra brings is imported, and a kernel is compiled by `fast`.
PROBES = {
    "backup": "import fsspec",
    "compression": "import lz4.frame, zstandard",
    "console": "import aerobee.console.web.app",
    "fast": "import isal, jh2, numba, uvloop",
    "grpc": "import aerobee.proxy.server",
    "kafka": "import aiokafka",
    "lake": "import aerobee.lake.service, sqlalchemy",
    "otel": "import aerobee.scripts.collector, opentelemetry.trace",
    "polars": "import aerobee.store.columns.frames, polars",
    "spark": "import aerobee.spark, pyspark_rocketmq",
    "tls": "import aerobee.protocol.security.self_signed",
}
SMOKE = """
from aerobee.client.blocking import Consumer, Message, Producer
from aerobee.testing import LocalCluster
with LocalCluster() as cluster, Producer(cluster.name_server) as producer:
    producer.send(Message("smoke", b"hello"))
    with Consumer(cluster.name_server, group="g", topics=["smoke"], start="earliest") as consumer:
        found = consumer.receive(60)
        assert found is not None and found.body == b"hello", found
        found.ack()
"""
PARTS = """
import json
from importlib.metadata import distributions
print(json.dumps([
    [one.metadata["Name"], one.version, one.metadata.get("License-Expression") or "",
     one.metadata.get("License") or "",
     [each for each in one.metadata.get_all("Classifier") or [] if each.startswith("License")]]
    for one in distributions()
]))
"""
# Licences that let the package be used and passed on with a program of any licence.
FREE = re.compile(
    r"apache|\bmit\b|\bbsd|\bisc\b|\bpsf|python software foundation|mpl[- ]2|mozilla public|"
    r"unlicense|public domain|\b0bsd\b|\bzlib\b|zope|\bcnri|hpnd|mit-cmu",
    re.IGNORECASE,
)
STRICT = re.compile(r"\b(?:a|l)?gpl|general public license|proprietary|commercial", re.IGNORECASE)
LICENCE_CHARS_MAX = 200  # of the field License, which some fill with the whole text


class ReleaseError(Exception):
    """The error that prevents a release."""


def main(argv: Sequence[str] | None = None) -> int:
    """Build and check; 0 for a release, 1 for something wrong."""
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    parser = argparse.ArgumentParser(description="Builds and checks a release.")
    parser.add_argument("--python", action="append", choices=PYTHONS, help="only this (all there)")
    parser.add_argument("--extra", action="append", help="only this, none or all (each)")
    parser.add_argument("--no-audit", action="store_true", help="without pip-audit, for no network")
    options = parser.parse_args(argv)
    try:
        with tempfile.TemporaryDirectory(prefix="aerobee-release-") as folder:
            release(Path(folder), options.python, options.extra, audit=not options.no_audit)
    except ReleaseError as wrong:
        print(f"scripts/release: {wrong}", file=sys.stderr)
        return 1
    return 0


def release(
    folder: Path, versions: list[str] | None, extras: list[str] | None, *, audit: bool
) -> None:
    """All steps; environments are made in `folder`."""
    known = user_extras(ROOT / "pyproject.toml")
    wanted = extras or [NONE, *known]
    if strange := set(wanted) - {NONE, ALL, *known}:
        raise ReleaseError(f"there is no extra {min(strange)}; there are {', '.join(known)}")
    pythons = found_pythons(versions or PYTHONS)
    if not pythons:
        raise ReleaseError(f"no Python of {', '.join(versions or PYTHONS)} is here; install one")
    for version in set(versions or PYTHONS) - pythons.keys():
        print(f"Python {version} is not here: not tried")
    tools = environment(folder / "tools", Path(sys.executable))
    run("tools", tools, "-m", "pip", "install", "-q", *TOOLS)
    shutil.rmtree(DIST, ignore_errors=True)
    run("build", tools, "-m", "build", "-q", "--outdir", str(DIST), str(ROOT))
    wheel, sdist = next(DIST.glob("*.whl")), next(DIST.glob("*.tar.gz"))
    check_names(wheel_names(wheel), known_packages(ROOT / "pyproject.toml"))
    check_sdist(sdist_names(sdist))
    run("metadata", tools, "-m", "twine", "check", "--strict", str(wheel), str(sdist))
    for version, python in pythons.items():
        for extra in wanted:
            where = environment(folder / f"{version}-{extra}", python)
            install(where, wheel, extra, known)
            try_out(where, f"Python {version}, extra {extra}", extra, known)
            shutil.rmtree(where.parents[1])
    where = environment(folder / "whole", next(iter(pythons.values())))
    install(where, wheel, ALL, known)
    parts = json.loads(run("parts", where, "-c", PARTS))
    check_licences(parts)
    print(f"the licences of {len(parts)} parts are free")
    run("pip", where, "-m", "pip", "uninstall", "-q", "-y", "pip", "setuptools")
    list_parts(tools, where, wheel)
    if audit:
        site = run("site", where, "-c", "import site; print(site.getsitepackages()[0])").strip()
        run("audit", tools, "-m", "pip_audit", "--path", site, "--skip-editable")
        print("pip-audit knows no hole in them")


def user_extras(project: Path) -> list[str]:
    """The extras that users install."""
    with project.open("rb") as file:
        extras = tomllib.load(file)["project"]["optional-dependencies"]
    return sorted(set(extras) - OF_DEVELOPERS)


def known_packages(project: Path) -> set[str]:
    """The folders, as in a wheel, that may have files."""
    with project.open("rb") as file:
        packages = tomllib.load(file)["tool"]["setuptools"]["packages"]
    return {name.replace(".", "/") for name in packages}


def found_pythons(versions: Iterable[str]) -> dict[str, Path]:
    """The interpreters of these versions on the PATH, and in pyenv's folder."""
    found = {}
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for version in versions:
        places = [Path(path) for path in [shutil.which(f"python{version}")] if path]
        places += sorted(pyenv.glob(f"{version}.*/bin/python3"))
        for place in places:
            if _version_of(place) == version:  # a shim of pyenv may run another one, or none
                found[version] = place
                break
    return found


def _version_of(python: Path) -> str:
    words = [str(python), "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)  # noqa: S603
    return done.stdout.strip()


def environment(folder: Path, python: Path) -> Path:
    """A fresh environment; returns its interpreter."""
    run("environment", python, "-m", "venv", str(folder))
    return folder / "bin" / "python"


def install(python: Path, wheel: Path, extra: str, known: Sequence[str]) -> None:
    """Install the wheel with one extra, with all, or with none."""
    extras = {NONE: "", ALL: f"[{','.join(known)}]"}.get(extra, f"[{extra}]")
    run("install", python, "-m", "pip", "install", "-q", f"aerobee{extras} @ {wheel.as_uri()}")
    run("conflicts", python, "-m", "pip", "check")


def try_out(python: Path, what: str, extra: str, known: Sequence[str]) -> None:
    """A message from a producer to a consumer, and what the extra brings."""
    elsewhere = str(python.parents[1])  # not the checkout
    run(what, python.with_name("aerobee"), "--version", cwd=elsewhere)
    run(what, python, "-c", SMOKE, cwd=elsewhere)
    for name in known if extra == ALL else [extra]:
        if name in PROBES:
            run(what, python, "-c", PROBES[name], cwd=elsewhere)
    print(f"{what}: works")


def wheel_names(wheel: Path) -> list[str]:
    """The names of the files in a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def sdist_names(sdist: Path) -> list[str]:
    """The names of the files in an sdist, below its folder."""
    with tarfile.open(sdist) as archive:
        return [name.partition("/")[2] for name in archive.getnames()]


def check_names(names: Iterable[str], packages: set[str]) -> None:
    """ReleaseError if a wheel has files outside of its packages, or lacks what it needs."""
    there = set(names)
    info = re.compile(r"aerobee-[^/]+\.dist-info/")
    for name in sorted(there):
        folder = name.rpartition("/")[0]
        if "tests" in name.split("/") or (
            not info.match(name)
            and not any(folder == one or folder.startswith(f"{one}/") for one in packages)
        ):
            raise ReleaseError(f"the wheel has {name}, which is no part of the package")
    for wanted in ("aerobee/py.typed", "aerobee/conf/broker.yaml", "aerobee/scripts/cli.py"):
        if wanted not in there:
            raise ReleaseError(f"the wheel lacks {wanted}")
    if not any(info.match(name) and name.endswith("LICENSE") for name in there):
        raise ReleaseError("the wheel lacks the LICENSE")


def check_sdist(names: Iterable[str]) -> None:
    """ReleaseError if an sdist lacks what the package is built from."""
    there = set(names)
    for wanted in ("pyproject.toml", "LICENSE", "README.md", "scripts/cli.py", "conf/broker.yaml"):
        if wanted not in there:
            raise ReleaseError(f"the sdist lacks {wanted}")


def check_licences(parts: Iterable[tuple[str, str, str, str, list[str]]]) -> None:
    """ReleaseError naming a part whose licence is not free, or unknown."""
    for name, version, expression, text, classifiers in parts:
        short = text if len(text) <= LICENCE_CHARS_MAX else text[:LICENCE_CHARS_MAX]
        said = expression or " ".join(classifiers) or short
        # A choice of licences is free if one of them is.
        if not FREE.search(said) or (STRICT.search(said) and " OR " not in said):
            raise ReleaseError(
                f"{name} {version} has the licence {said or '(none said)'!r}; look at it, then "
                "replace the part, or widen the list in tools/release.py"
            )


def list_parts(tools: Path, python: Path, wheel: Path) -> None:
    """Write the list of parts beside the wheel, and check that it has some."""
    path = DIST / f"{wheel.name.split('-py3')[0]}.cdx.json"
    words = ("environment", str(python), "--of", "JSON", "-o", str(path))
    run("SBOM", tools.with_name("cyclonedx-py"), *words)
    names = {one["name"] for one in json.loads(path.read_text())["components"]}
    if not {"aerobee", "aiohttp", "msgspec"} <= {name.lower() for name in names}:
        raise ReleaseError(f"{path} lacks parts: it has {', '.join(sorted(names)) or 'none'}")
    print(f"{path.relative_to(ROOT)} lists {len(names)} parts")


def run(what: str, program: Path, *words: str, cwd: str | None = None) -> str:
    """Run a program and return its output; ReleaseError with the last of it when it fails."""
    # Neither the checkout nor what a user has set may stand in for what was installed.
    clean: Mapping[str, str] = {
        name: text
        for name, text in os.environ.items()
        if name != "PYTHONPATH" and not name.startswith("AEROBEE_")
    }
    done = subprocess.run(  # noqa: S603
        [str(program), *words], capture_output=True, text=True, check=False, cwd=cwd, env=clean
    )
    if done.returncode:
        last = "\n".join((done.stdout + done.stderr).strip().splitlines()[-15:])
        raise ReleaseError(f"{what}: {program.name} {' '.join(words)[:120]} failed:\n{last}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
