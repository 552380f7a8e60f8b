"""Attack 28, continued: sums of parts of a site's rows, of an update and of the whole, over chosen sites."""

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("cryptography")
from feddbn.core.statistics.moments import Moments
from feddbn.errors import FederationError, PrivacyError, SiteRefused
from feddbn.federation.protocol.task import Task
from feddbn.federation.sums.gram import GramQuestion
from feddbn.runtime.site.registers import RecordingBook
from support.rig import Refused, Rig, Server

pytestmark = pytest.mark.usefixtures("light")

NAMES = ("a", "b", "c", "d")


@pytest.fixture
def rig(tmp_path):
    rng = np.random.default_rng(281)
    old = {name: [rng.normal(size=(60, 2))] for name in NAMES}
    return Rig(tmp_path / "rig", old)


def offer(rig, tables):
    """Replace the files of every site, and start it again."""
    for name in NAMES:
        folder = rig.place / name / "data"
        for path in folder.iterdir():
            path.unlink()
        for k, values in enumerate(tables[name]):
            frame = pd.DataFrame(values, columns=list(rig.variables))
            frame.to_csv(folder / f"r{k}.csv", index=False, float_format="%.17g")
        rig.restart(name)


def moments(rig, n_lags=1):
    return Task(GramQuestion(n_lags=n_lags, variables=rig.variables))


def in_parts(rig, update_of="one"):
    """The sums of the first rows and of the new ones, each over all sites; return them and the new rows."""
    rng = np.random.default_rng(282)
    new = {name: [rng.normal(size=(60, 2))] for name in NAMES}
    first = Server(rig, rig.study(), run="one").sum(moments(rig)).value
    offer(rig, new)
    second = Server(rig, rig.study(update_of=update_of), run="two").sum(moments(rig)).value
    return first + second, new


@pytest.mark.parametrize("update_of", ["one", ""])
def test_the_whole_over_other_sites_is_not_added_up_beside_its_parts(rig, update_of, monkeypatch):
    parts, new = in_parts(rig, update_of)
    if update_of:
        # A recording that has grown holds both parts, too.
        offer(rig, {name: [np.vstack([rig.data[name][0], new[name][0]])] for name in NAMES})
        with pytest.raises(SiteRefused):
            Server(rig, rig.study(sites=NAMES[:3]), run="three")
    offer(rig, {name: [*rig.data[name], *new[name]] for name in NAMES})
    with pytest.raises(SiteRefused):
        Server(rig, rig.study(sites=NAMES[:3]), run="four")
    if not update_of:
        # Over the same sites it tells nothing new.
        whole = Server(rig, rig.study(), run="five").sum(moments(rig)).value
        np.testing.assert_allclose(whole, parts, atol=1e-6)
        return
    # Without the rule the difference would be one site.
    monkeypatch.setattr(RecordingBook, "_require_same_sites", lambda self, study, known, now: None)
    three = Server(rig, rig.study(sites=NAMES[:3]), run="five").sum(moments(rig)).value
    lagged = [np.hstack([x[1:], x[:-1]]) for x in (rig.data["d"][0], new["d"][0])]
    np.testing.assert_allclose(parts - three, Moments.of_rows(np.vstack(lagged)).to_sums(), atol=1e-6)


def test_an_update_asks_for_the_moments_of_its_lags_only(rig):
    """Rows that are given again as the past of new ones would be counted with fewer lags."""
    Server(rig, rig.study(), run="one").sum(moments(rig))
    rng = np.random.default_rng(283)
    offer(rig, {name: [np.vstack([rig.data[name][0][-1:], rng.normal(size=(60, 2))])] for name in NAMES})
    server = Server(rig, rig.study(update_of="one"), run="two")
    diagonal = Task(GramQuestion(diagonal=True, n_lags=1, variables=rig.variables))
    for task in (moments(rig, 0), moments(rig, 2), diagonal):
        with pytest.raises((Refused, FederationError, PrivacyError)):
            server.sum(task)
    told = [entry.code for entry in rig.refusals("a", "two")]
    assert told == ["other-lags", "other-lags", "task-not-in-study"]
    server.sum(moments(rig))
