"""What a built wheel holds: exactly the declared packages, with the files that they read at run time."""

from __future__ import annotations

import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
WHEEL_CONFIG = PYPROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]
NOT_SHIPPED = ("__pycache__",)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that `pip install .` would make."""
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(REPOSITORY)],
        check=True, capture_output=True, timeout=300,
    )  # fmt: skip
    (built,) = folder.glob("headrace-*.whl")
    return built


@pytest.fixture(scope="module")
def names(wheel: Path) -> list[str]:
    """Names of all files in the wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def test_the_wheels_top_level_names_are_the_declared_packages(names):
    declared = {Path(package).name for package in WHEEL_CONFIG["packages"]}
    found = {name.split("/")[0] for name in names if ".dist-info" not in name}
    assert found == declared


def test_every_file_of_every_package_is_in_the_wheel(names):
    missing = []
    for package in WHEEL_CONFIG["packages"]:
        source = REPOSITORY / package
        for path in source.rglob("*"):
            if path.is_file() and not any(part in NOT_SHIPPED for part in path.parts):
                name = f"{source.name}/{path.relative_to(source).as_posix()}"
                if name not in names:
                    missing.append(name)
    assert missing == []


def test_each_component_folder_holds_exactly_its_package():
    for folder in PYPROJECT["tool"]["hatch"]["build"]["dev-mode-dirs"]:
        packages = [p.name for p in (REPOSITORY / folder).iterdir() if (p / "__init__.py").exists()]
        expected = "headrace" if folder == "shared" else f"headrace_{Path(folder).name}"
        assert packages == [expected]
        assert list((REPOSITORY / folder).glob("*.py")) == []
