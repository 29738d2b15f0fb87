"""What the Dockerfile copies is all that the package is installed from, and it stays small."""

import re
import tomllib
from pathlib import Path

import aerobee
import pytest
import yaml

ROOT = Path(__file__).parents[2]


def stage(name: str) -> str:
    """The lines of a stage of the Dockerfile."""
    text = (ROOT / "Dockerfile").read_text()
    found = re.search(rf"^FROM \S+ AS {name}\n(.*?)(?=^FROM |\Z)", text, re.DOTALL | re.MULTILINE)
    assert found is not None
    return found[1]


def test_every_folder_of_the_package_gets_into_the_image() -> None:
    packages = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"][
        "packages"
    ]
    folders = {name.split(".")[1] for name in packages if name.startswith("aerobee.")}
    let_in = {line[1:] for line in (ROOT / ".dockerignore").read_text().split() if line[0] == "!"}
    assert sorted(folders - let_in) == []
    assert all((ROOT / name).exists() for name in let_in)


def test_the_image_gets_the_installed_environment_and_nothing_of_the_build() -> None:
    copies = re.findall(r"^COPY (.*)$", stage("aerobee"), re.MULTILINE)
    assert copies == ["--from=builder /opt/aerobee /opt/aerobee"]
    assert "pip" not in stage("aerobee")
    builder = stage("builder")
    assert "--without-pip" in builder
    assert "-name tests" in builder  # 30 MB of numpy's and numba's
    for unused in ("numba/cuda", "numpy/f2py", "numpy/distutils", r"pyi\|"):  # 9 MB
        assert unused in builder
    assert "strip --strip-unneeded" in builder  # 48 MB of symbols
    assert "-not -path '*.libs/*'" in builder  # numpy does not load with these stripped


@pytest.mark.finding("A28")
def test_machine_code_can_be_left_out_of_the_image() -> None:
    extras = re.search(r"^ARG EXTRAS=(\S+)$", stage("builder"), re.MULTILINE)
    assert extras is not None
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(extras[1].split(",")) <= known.keys()
    # With EXTRAS=tls there is no numba, and nothing may be compiled then.
    assert "if python3 -c 'import numba' 2>/dev/null; then" in stage("aerobee")


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
