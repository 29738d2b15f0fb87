"""The wheel has all packages; user and version of the image are those of its users."""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import aerobee
import yaml

from .tree import ROOT, sources


def stage(name: str) -> str:
    """The lines of a stage of the Dockerfile."""
    text = (ROOT / "Dockerfile").read_text()
    found = re.search(rf"^FROM \S+ AS {name}\n(.*?)(?=^FROM |\Z)", text, re.DOTALL | re.MULTILINE)
    assert found is not None
    return found[1]


def test_the_image_runs_as_the_user_that_kubernetes_is_told() -> None:
    uid = re.search(r"useradd .*--uid (\d+)", stage("aerobee"))
    assert uid is not None
    documents = yaml.safe_load_all((ROOT / "deploy" / "kubernetes" / "aerobee.yaml").read_text())
    sets = [each for each in documents if each["kind"] == "StatefulSet"]
    users = {each["spec"]["template"]["spec"]["securityContext"]["runAsUser"] for each in sets}
    assert users == {int(uid[1])}


def test_the_version_is_that_of_the_package_everywhere() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["dynamic"] == ["version"]
    newest = re.search(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest is not None
    manifests = (ROOT / "deploy" / "kubernetes" / "aerobee.yaml").read_text()
    tags = set(re.findall(r"aerobee:(\d[\w.]*)", manifests))
    assert {newest[1], *tags} == {aerobee.__version__}


def test_changes_of_the_next_version_are_put_before_those_of_this_one(tmp_path: Path) -> None:
    towncrier = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["towncrier"]
    kinds = {each["directory"] for each in towncrier["type"]}
    there = [path.name for path in (ROOT / "changes").iterdir() if path.name != "README.md"]
    assert [name for name in there if name.split(".")[-2] not in kinds] == []

    for name in ("pyproject.toml", "CHANGELOG.md", "__init__.py"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "changes").mkdir()
    (tmp_path / "changes" / "+drain.fixed.md").write_text("A drain waits.\n")
    build = [sys.executable, "-m", "towncrier", "build", "--yes", "--version", "99.0.0"]
    subprocess.run(build, cwd=tmp_path, check=True, capture_output=True, timeout=60)
    whole = (tmp_path / "CHANGELOG.md").read_text()
    before, new = whole.split("## [99.0.0] - ")
    assert "## [" not in before
    new, _ = new.split(f"## [{aerobee.__version__}]")
    assert new.split("\n", 1)[1].split() == ["###", "Fixed", "-", "A", "drain", "waits."]


def test_the_build_lists_exactly_the_packages_that_exist() -> None:
    setuptools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    left_out = re.compile("tools|harness|bench(/loads)?|spark/pyspark_rocketmq")
    there = {
        f"aerobee/{path.parent}".removesuffix("/.").replace("/", ".")
        for path in sources()
        if path.name == "__init__.py" and not left_out.fullmatch(str(path.parent))
    }
    assert set(setuptools["packages"]) == {*there, "pyspark_rocketmq"}


def test_the_image_is_built_from_all_packages() -> None:
    setuptools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    folders = {each.split(".")[1] for each in setuptools["packages"] if "." in each}
    lines = (ROOT / ".dockerignore").read_text().split()
    assert {f"!{each}" for each in folders} <= set(lines)
