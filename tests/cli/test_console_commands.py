"""What is typed for the console, and what a machine without its packages says."""

import builtins
import json
from importlib import import_module

import pytest

import feddbn

pytest.importorskip("cryptography")
from support.consortium import Consortium, as_kits, make_study


@pytest.fixture
def sites(tmp_path):
    made = Consortium(tmp_path)
    as_kits(tmp_path)
    return made


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.0.7", "hospital.example.org"])
def test_another_host_than_loopback_is_refused(refuses, sites, host):
    pytest.importorskip("starlette")
    assert f"--host {host}" in refuses("console", "--kit", sites.place / "north", "--host", host)


@pytest.mark.parametrize("package", ["starlette"])
def test_a_missing_package_is_named_with_its_extra(refuses, sites, monkeypatch, package):
    import sys

    found = builtins.__import__

    def without(name, *more, **named):
        if name.split(".")[0] == package:
            raise ModuleNotFoundError(f"No module named {package!r}", name=package)
        return found(name, *more, **named)

    # A package that is imported meanwhile takes the place of the one before, and gives it back.
    monkeypatch.setattr(feddbn, "console", import_module("feddbn.console"), raising=False)
    for name in [
        one for one in sys.modules if one.split(".")[0] == package or one.startswith("feddbn.console")
    ]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(builtins, "__import__", without)
    sentence = refuses("console", "--kit", sites.place / "north", "--port", "0")
    assert all(part in sentence for part in (repr(package), "pip install 'feddbn[console]'"))


def test_studies_that_wait_are_listed_and_refused(run, refuses, sites):
    kit = sites.place / "north"
    assert json.loads(run("site", "studies", "--only", "waiting", "--kit", kit, "--json").stdout) == []
    sites.owner().offered.keep(make_study(name="sepsis", lead="lead\u200b@example.org"))
    listed = run("site", "studies", "--only", "waiting", "--kit", kit)
    assert "sepsis" in listed.stdout
    assert "\u200b" not in listed.stdout
    assert make_study().name in run("site", "studies", "--only", "waiting", "--kit", kit, "--json").stdout
    done = run("site", "refuse", "sepsis", "--kit", kit)
    assert done.exit_code == 0, done.output
    assert json.loads(run("site", "studies", "--only", "waiting", "--kit", kit, "--json").stdout) == []
    assert "other" in refuses("site", "refuse", "other", "--kit", kit)
    log = run("site", "log", "--kit", kit)
    assert "declined" in log.stdout
