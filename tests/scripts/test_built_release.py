"""A release as its users get it: the sdist, the wheel that is built from it, and the command that the wheel installs."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email.parser import HeaderParser
from pathlib import Path

import pytest

import feddbn

pytest.importorskip("build")
pytest.importorskip("hatchling")

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
NAME = f"feddbn-{feddbn.__version__}"


def run(*command, **options):
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, check=False, timeout=300, **options
    )
    assert done.returncode == 0, f"{command}: {done.stdout[-2000:]} {done.stderr[-2000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The wheel is built from the sdist, so that what the sdist lacks is missed."""
    out = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", out, ROOT)
    assert {path.name for path in out.iterdir()} == {f"{NAME}.tar.gz", f"{NAME}-py3-none-any.whl"}
    return out


@pytest.fixture(scope="module")
def installed(built, tmp_path_factory):
    """A folder with nothing but the wheel, and the environment in which its command finds what it needs here."""
    site = tmp_path_factory.mktemp("site")
    wheel = built / f"{NAME}-py3-none-any.whl"
    pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
    run(*pip, "install", "--no-deps", "--no-index", "--no-compile", "--target", site, wheel)
    path = f"{site / 'bin'}{os.pathsep}{os.environ['PATH']}"
    return site, {**os.environ, "PYTHONPATH": str(site), "PATH": path}


def test_the_wheel_holds_the_package_and_nothing_else(built):
    package = ROOT / "src"
    wanted = {
        str(path.relative_to(package))
        for path in (package / "feddbn").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    with zipfile.ZipFile(built / f"{NAME}-py3-none-any.whl") as wheel:
        held = set(wheel.namelist())
        about = HeaderParser().parsestr(wheel.read(f"{NAME}.dist-info/METADATA").decode())
        entries = wheel.read(f"{NAME}.dist-info/entry_points.txt").decode()
    assert {name for name in held if not name.startswith(f"{NAME}.dist-info/")} == wanted
    assert "feddbn/py.typed" in held
    assert "feddbn/report/templates/report.html" in held
    assert f"{NAME}.dist-info/licenses/LICENSE" in held
    assert (about["Name"], about["Version"]) == ("feddbn", feddbn.__version__)
    assert about["Requires-Python"] == PROJECT["project"]["requires-python"]
    assert set(about.get_all("Provides-Extra")) == set(PROJECT["project"]["optional-dependencies"])
    # `pipx run feddbn` runs the command that has the name of the package.
    assert "[console_scripts]\nfeddbn = feddbn.cli.main:main" in entries


def test_the_sdist_holds_what_a_release_is_checked_with(built):
    with tarfile.open(built / f"{NAME}.tar.gz") as sdist:
        held = {name.removeprefix(f"{NAME}/") for name in sdist.getnames()}
    for name in (
        "CITATION.cff", "LICENSE", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "Makefile", "pyproject.toml",
        "requirements.lock", "tests/scripts/test_built_release.py",
        "deploy/nvflare/project.yml", "deploy/vantage6/Dockerfile", "r/DESCRIPTION", "r/R/feddbn.R",
    ):  # fmt: skip
        assert name in held, name
    assert not any("__pycache__" in name or name.startswith((".venv", "dist")) for name in held)


def test_the_installed_command_says_its_version(installed):
    site, environment = installed
    assert run(site / "bin" / "feddbn", "--version", env=environment) == f"feddbn {feddbn.__version__}\n"


def test_the_installed_package_is_what_runs(installed, tmp_path):
    site, environment = installed
    lines = ["simulate -o data -d 3 --n-sites 2 --n-samples 20", "export data/truth.json -o truth.graphml"]
    code = (
        "import sys, feddbn\n"
        "from feddbn.cli.main import app\n"
        "print(feddbn.__file__)\n"
        "for line in sys.argv[1:]:\n"
        "    app(line.split(), standalone_mode=False)\n"
    )
    said = run(sys.executable, "-c", code, *lines, env=environment, cwd=tmp_path)
    assert said.startswith(str(site))
    assert (tmp_path / "truth.graphml").exists()


COMPLETED = {
    "feddbn fi": {"fit"},
    "feddbn study s": {"status", "step"},
    "feddbn fit --met": {"--method"},
    "feddbn fit --method pf": {"pfdbnl"},
}


def test_a_shell_completes_what_was_typed(installed):
    _, environment = installed
    script = ['eval "$(feddbn --show-completion bash)"']
    for typed in COMPLETED:
        script += [
            f"COMP_WORDS=({typed}); COMP_CWORD={len(typed.split()) - 1}",
            "_feddbn_completion feddbn",
            'echo "${COMPREPLY[*]}"',
        ]
    offered = run("bash", "-c", "\n".join(script), env=environment).splitlines()
    assert [set(line.split()) for line in offered] == list(COMPLETED.values())
