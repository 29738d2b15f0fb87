"""What the Dockerfile copies is all that the package is installed from."""

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_folder_of_the_package_gets_into_the_image() -> None:
    packages = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"][
        "packages"
    ]
    folders = {name.split(".")[1] for name in packages if name.startswith("aerobee.")}
    let_in = {line[1:] for line in (ROOT / ".dockerignore").read_text().split() if line[0] == "!"}
    assert sorted(folders - let_in) == []
    assert all((ROOT / name).exists() for name in let_in)
