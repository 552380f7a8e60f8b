"""Plain NVFlare of the installed and of an earlier version: the job of the manual, and the suite that adapters pass."""

import shutil
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("nvflare")
pytest.importorskip("cryptography")
from feddbn.engine import conformance
from feddbn.federation.protocol.study import StudyResult
from support.nvflare_simulator import simulated, start
from support.study_files import as_toml

pytestmark = [pytest.mark.slow]

JOB = Path(__file__).parents[2] / "deploy" / "nvflare" / "job"
EARLIER = "2.8.3"


def beside(sites):
    """What owners set as FEDDBN_SITE: one folder for each."""
    return str(next(iter(sites.values())).parent / "{site}")


def test_the_job_of_the_manual_gives_the_bits_of_one_process(tmp_path):
    """The folder as it is; only the names in the study are those of the trial."""

    @contextmanager
    def no_exchange(sites):
        yield lambda messages: {}

    with conformance.trial(no_exchange, tmp_path / "trial") as trial:
        study = trial.study(masked=True, sites=conformance.NAMES[:3])
        shutil.copytree(JOB, tmp_path / "job")
        config = tmp_path / "job" / "app" / "config"
        (config / "study.toml").write_text(as_toml(study))
        (tmp_path / "job" / "meta.json").write_text(
            '{"name": "s", "resource_spec": {}, "min_clients": 3, "deploy_map": {"app": ["@ALL"]}}'
        )
        runs = tmp_path / "runs"
        process = start(tmp_path / "job", study.sites, beside(trial.sites), FEDDBN_RUNS=str(runs))
        try:
            assert process.wait(120) == 0
        finally:
            process.kill()
        kept = (runs / "sepsis-1" / "result.feddbn").read_bytes()
        trial.compare(StudyResult.from_bytes(kept), study)
        copies = [path.read_bytes() for path in (tmp_path / "simulated").rglob("result.feddbn")]
        assert copies == [kept]


def test_an_earlier_version_passes_the_suite_of_adapters(tmp_path):
    """What depends on the platform most; the whole suite takes a minute and a half here."""

    @contextmanager
    def make_exchange(sites):
        with simulated(tmp_path / "platform", tuple(sites), beside(sites), EARLIER, 20.0) as exchange:
            yield exchange

    with conformance.trial(make_exchange, tmp_path / "trial") as trial:
        conformance.studies(trial, ("oneshot",))
        conformance.silent_site(trial)
        conformance.damaged_messages(trial)
