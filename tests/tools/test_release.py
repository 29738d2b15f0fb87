"""What scripts/release looks at, without the building and the installing, which take minutes."""

import sys
from pathlib import Path

import pytest
from aerobee.tools import release
from aerobee.tools.release import ReleaseError

PROJECT = release.ROOT / "pyproject.toml"
WHEEL = [
    "aerobee/py.typed",
    "aerobee/conf/broker.yaml",
    "aerobee/scripts/cli.py",
    "aerobee/console/web/templates/page.html",
    "pyspark_rocketmq/__init__.py",
    "aerobee-0.2.0.dist-info/licenses/LICENSE",
    "aerobee-0.2.0.dist-info/METADATA",
]


def test_each_extra_of_users_is_tried_with_what_it_brings() -> None:
    assert set(release.user_extras(PROJECT)) == release.PROBES.keys()


def test_a_wheel_of_the_package_passes() -> None:
    release.check_names(WHEEL, release.known_packages(PROJECT))


@pytest.mark.parametrize(
    "name",
    [
        "tests/test_x.py",
        "aerobee/tests/test_x.py",
        "examples/orders.py",
        "aerobee/store/tests/x.py",
    ],
)
def test_a_wheel_with_tests_or_something_else_is_refused(name: str) -> None:
    with pytest.raises(ReleaseError, match=f"the wheel has {name}, which is no part"):
        release.check_names([*WHEEL, name], release.known_packages(PROJECT))


def test_tools_of_developers_are_no_part_of_a_wheel() -> None:
    packages = release.known_packages(PROJECT)
    for folder in ("tools", "bench", "bench/loads", "harness"):
        assert f"aerobee/{folder}" not in packages


@pytest.mark.parametrize("name", [each for each in WHEEL[:3]] + [WHEEL[5]])
def test_a_wheel_that_lacks_something_is_refused(name: str) -> None:
    rest = [each for each in WHEEL if each != name]
    with pytest.raises(ReleaseError, match="the wheel lacks"):
        release.check_names(rest, release.known_packages(PROJECT))


def test_an_sdist_that_lacks_something_is_refused() -> None:
    names = ["pyproject.toml", "LICENSE", "README.md", "scripts/cli.py", "conf/broker.yaml"]
    release.check_sdist(names)
    with pytest.raises(ReleaseError, match=r"the sdist lacks README\.md"):
        release.check_sdist(name for name in names if name != "README.md")


@pytest.mark.parametrize(
    ("expression", "text", "classifiers"),
    [
        ("MIT", "", []),
        ("Apache-2.0 OR GPL-3.0-only", "", []),
        ("", "BSD 3-Clause License", []),
        ("", "", ["License :: OSI Approved :: Mozilla Public License 2.0 (MPL 2.0)"]),
        ("", "", ["License :: OSI Approved :: Python Software Foundation License"]),
    ],
)
def test_a_free_licence_passes(expression: str, text: str, classifiers: list[str]) -> None:
    release.check_licences([("part", "1", expression, text, classifiers)])


@pytest.mark.parametrize(
    ("expression", "text", "classifiers"),
    [
        ("GPL-3.0-only", "", []),
        ("MIT AND LGPL-3.0-only", "", []),
        ("", "", ["License :: OSI Approved :: GNU Affero General Public License v3"]),
        ("", "All rights reserved", []),
        ("", "", []),
    ],
)
def test_another_licence_is_refused_with_the_part(
    expression: str, text: str, classifiers: list[str]
) -> None:
    with pytest.raises(ReleaseError, match="part 1 has the licence"):
        release.check_licences([("part", "1", expression, text, classifiers)])


def test_a_python_is_found_by_what_it_says_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = f"{sys.version_info[0]}.{sys.version_info[1]}"
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    (tmp_path / f"python{own}").symlink_to(sys.executable)
    other = tmp_path / "python3.99"
    other.symlink_to(sys.executable)
    assert release.found_pythons([own, "3.99", "3.98"]) == {own: tmp_path / f"python{own}"}


def test_an_extra_that_there_is_not_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert release.main(["--extra", "turbo"]) == 1
    assert "scripts/release: there is no extra turbo; there are backup, " in capsys.readouterr().err


def test_a_program_that_fails_is_named_with_the_last_of_what_it_said() -> None:
    words = "import sys; print('out'); sys.exit('last words')"
    with pytest.raises(ReleaseError, match=r"smoke: python.* failed:\nout\nlast words"):
        release.run("smoke", Path(sys.executable), "-c", words)
