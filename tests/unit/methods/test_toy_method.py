"""Several modules: a method that another package brings, in one file: Python, command line, study, policy and report."""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import feddbn
from feddbn.cli.main import app
from feddbn.data import read_sites
from feddbn.errors import FederationError, ParameterError, SiteRefused
from feddbn.federation.protocol.endpoint import SiteEndpoint
from feddbn.federation.protocol.site import Site
from feddbn.federation.protocol.study import Study
from feddbn.method_table import METHODS
from feddbn.privacy.policy import SitePolicy
from feddbn.report import write_report
from feddbn.runtime.server.conduct import run_study
from feddbn.runtime.server.coordinator import Coordinator
from feddbn.runtime.settings import SiteSettings
from feddbn.runtime.site.open_site import study_checks
from feddbn.runtime.site.protection import Protection
from support.faults import LocalExchange, MemoryJournal, MemoryStore
from support.registries import restored
from support.study_files import ABOUT, ABOUT_LINE

ONE_FILE = "support.toy_method"
MADE = feddbn.simulate(d=4, n_sites=4, n_samples=600, mean_degree=2, random_state=0)


@pytest.fixture
def toy():
    with restored(ONE_FILE):
        yield import_module(ONE_FILE).Toy


@pytest.fixture
def offered(tmp_path, monkeypatch):
    """An installed package that offers the toy by an entry point; nothing has imported it yet."""
    package = tmp_path / "packages"
    (package / "toy-1.dist-info").mkdir(parents=True)
    (package / "toy-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: toy\nVersion: 1\n")
    (package / "toy-1.dist-info" / "entry_points.txt").write_text(f"[feddbn.methods]\ntoy = {ONE_FILE}\n")
    monkeypatch.syspath_prepend(str(package))
    with restored(ONE_FILE):
        yield


def feddbn_command(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments], prog_name="feddbn")


def write_data(directory: Path) -> Path:
    directory.mkdir()
    for name, frames in MADE.sites.items():
        frames[0].to_csv(directory / f"{name}.csv", index=False)
    return directory


def test_python_fits_it_like_any_other(toy):
    model = toy().fit(MADE.sites)
    rows = np.concatenate([f.to_numpy() for frames in MADE.sites.values() for f in frames])
    assert model.n_samples_ == len(rows) - 4
    assert model.n_rounds_ == 1
    assert model.A_.any()
    with pytest.raises(ParameterError, match=r"threshold='a'.*0"):
        toy(threshold="a").fit(MADE.sites)


def test_the_command_line_finds_it_by_its_entry_point(offered, tmp_path):
    data = write_data(tmp_path / "data")
    outcome = feddbn_command("fit", data, "--method", "toy", "-p", "threshold=0.2", "-o", tmp_path / "r.json")
    assert outcome.exit_code == 0, outcome.output
    stored = json.loads((tmp_path / "r.json").read_text())
    assert stored["method"] == "Toy"
    assert stored["parameters"] == {"n_lags": 1, "threshold": 0.2}
    refused = feddbn_command("fit", data, "-m", "toy", "-p", "treshold=1", "-o", tmp_path / "r.json")
    assert refused.exit_code == 2
    assert "'threshold'" in refused.stderr
    compared = feddbn_command("compare", data, "-m", "toy", "-m", "oneshot", "--json")
    assert [line["label"] for line in json.loads(compared.stdout)["methods"]] == ["Toy", "OneShotDBN"]


def test_a_study_file_may_name_it(offered, tmp_path):
    from feddbn.cli.study import read_study

    text = 'name = "s"\nmethod = "toy"\nvariables = ["x0"]\nsites = ["a"]\n' + ABOUT_LINE + "\n[parameters]\n"
    path = tmp_path / "study.toml"
    path.write_text(text + "threshold = 0.3")
    assert read_study(path).method == "toy"
    path.write_text(text + 'threshold = "high"')
    with pytest.raises(ParameterError, match="threshold='high'"):
        read_study(path)


def run_over_messages(policy: SitePolicy, directory: Path, **attendance):
    data = read_sites(MADE.sites)

    def endpoint(name):
        settings = SiteSettings(name=name, data=directory, state=directory / name)
        protection = Protection(settings.state, name, policy, data[name])
        site = Site(name, data[name])
        return SiteEndpoint(
            site,
            MemoryStore(name),
            checks=study_checks(settings, policy, site.data),
            guards=protection.guards,
        )

    names = tuple(data)
    study = Study(
        name="s",
        about=ABOUT,
        method="toy",
        variables=("x0", "x1", "x2", "x3"),
        sites=names,
        attendance=attendance,
    )
    exchange = LocalExchange(names, endpoint)
    log = MemoryJournal()
    return run_study(Coordinator(exchange, study, "run-1", log, pause_s=0.0, opening_s=0.0), study)[0]


@pytest.mark.parametrize("name", ["Toy", "toy"])
def test_a_study_runs_it_where_the_sites_policies_name_it(toy, tmp_path, name):
    policy = SitePolicy(methods=(name,), require_masking=False)
    found = run_over_messages(policy, tmp_path)
    expected = toy().fit(MADE.sites)
    np.testing.assert_allclose(found.arrays["A"], expected.A_, atol=1e-12)
    assert found.summary["result"]["method"] == "Toy"


def test_a_site_refuses_it_unless_its_policy_names_it(toy, tmp_path):
    with pytest.raises(FederationError, match=r"'Toy'.*OneShot"):
        run_over_messages(SitePolicy(require_masking=False), tmp_path)
    with pytest.raises(FederationError, match=r"gram\.rows"):
        run_over_messages(SitePolicy(methods=("Toy",), tasks=("summary",), require_masking=False), tmp_path)


def test_a_site_need_not_know_it_to_judge_it():
    assert "toy" not in METHODS
    SitePolicy(methods=("toy",)).check_study("toy", 3, True, None)
    with pytest.raises(SiteRefused, match="'toy'"):
        SitePolicy().check_study("toy", 3, True, None)


def test_no_study_makes_a_site_import_what_is_installed(offered):
    with pytest.raises(SiteRefused, match="'toy'"):
        SitePolicy().check_study("toy", 3, True, None)
    assert ONE_FILE not in sys.modules


def test_the_report_says_what_it_assumes_and_reveals(offered, tmp_path):
    data = write_data(tmp_path / "data")
    with restored(ONE_FILE):
        feddbn_command("fit", data, "-m", "toy", "-o", tmp_path / "r.json")
    assert "toy" not in METHODS
    page = write_report(tmp_path / "r.json", tmp_path / "r.html").read_text(encoding="utf-8")
    assert "linear" in page
    assert "Gauss 1809" in page
    assert "A toy hides nothing" in page
