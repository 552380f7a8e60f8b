"""Sums that differ a little, over versions of the data, lags, limits, re-reads and pruned runs: F5, F6, F7, F11, F12, F14."""

import contextlib

import numpy as np
import pytest

pytest.importorskip("cryptography")
from feddbn.core.statistics.residual_checks import ResidualSums, sums_length
from feddbn.errors import AggregationError, FeddbnError
from feddbn.federation.programs.residual_checks import ResidualsQuestion
from feddbn.federation.sums.gram import GramQuestion
from feddbn.privacy.keys import Identity
from feddbn.privacy.register import Entry, Register, member
from feddbn.runtime.settings import read_site_settings
from feddbn.runtime.site.owner import Owner
from feddbn.runtime.site.registers import FileShelf, data_version
from feddbn.runtime.store import STORE, Store
from support.hostile import Server, Sites
from support.rig import Rig, raw
from support.rig import Server as RigServer
from support.saying import refused
from support.states import changed

pytestmark = pytest.mark.usefixtures("light")

LEAST = 10


def residuals(sites, server, n_lags, seq=0):
    """Sums of powers of the variables themselves, as residuals of a network without edges."""
    d = len(sites.variables)
    coefficients = np.zeros(((n_lags + 1) * d, d))
    coefficients[:d] = np.eye(d) / 5
    question = ResidualsQuestion(
        n_lags=n_lags, variables=sites.variables, coefficients=coefficients, offset=np.full(d, 0.4)
    )
    value = server.sum(question, seq, seq - 1).value
    return ResidualSums.from_vector(value[1 : 1 + sums_length(d, n_lags + 1)], d, n_lags + 1)


def test_one_new_row_at_three_sites_is_in_no_difference(tmp_path):
    """F6: a nightly import between two runs; three rows were read to 1.3e-13."""
    sites = Sites(tmp_path, k=5, d=4, rows=60, seed=2)
    found = []
    for run in ("monday", "tuesday", "wednesday"):
        sites.greet(sites.study("oneshot"), run)
        found.append(residuals(sites, Server(sites, run).keys(), 1))
        for name in ("s1", "s2", "s4"):
            n_new = 1 if run == "monday" else LEAST
            rows = np.random.default_rng(int(name[1])).normal(size=(n_new, 4)) * 2
            sites.data[name][0] = np.vstack([sites.data[name][0], rows])
            sites.write(name)
        for name in sites.names:
            sites.restart(name)
    monday, tuesday, wednesday = found
    np.testing.assert_allclose(monday.to_vector(), tuesday.to_vector(), atol=1e-6)
    # When there are enough of them they count.
    assert wednesday.counts[0] - monday.counts[0] == pytest.approx(3 * (LEAST + 1))


def test_two_numbers_of_lags_differ_by_many_rows(tmp_path):
    """F7: the second row of every recording was read to 7.5e-14, and with n_lags = "auto" ten rows of each."""
    sites = Sites(tmp_path, k=3, d=4, rows=120, seed=4)
    sites.greet(sites.study("oneshot"), "run")
    server = Server(sites, "run", n_slots=20).keys()
    counts = [residuals(sites, server, p, p - 1).counts[0] for p in (1, 2)]
    assert counts[0] == pytest.approx(3 * 119)
    # Thirty rows, of which there are 28 sums, where there were three.
    assert counts[0] - counts[1] >= 3 * LEAST
    for run, first in (("third", 2), ("fourth", 3)):
        study = sites.study("oneshot").model_copy(update={"parameters": {"n_lags": first}})
        sites.greet(study, run)
        server = Server(sites, run).keys()
        counts += [residuals(sites, server, first + k, k).counts[0] for k in (0, 1)]
    assert counts[2] == pytest.approx(counts[1])
    gaps = np.abs(np.subtract.outer(counts, counts))
    assert ((gaps < 1e-3) | (gaps > 3 * LEAST - 1e-3)).all()


@pytest.mark.parametrize("is_open", [False, True])
def test_files_are_read_once_for_a_job(tmp_path, is_open):
    """F11: a row came between the version and the reading, or while the job went on; it was read to 6.9e-14."""
    sites = Sites(tmp_path, k=4, d=4, rows=60, seed=8)
    some = sites.variables[:3]

    def run(name, variables=some):
        sites.greet(sites.study("oneshot", variables=variables), name)
        return Server(sites, name).keys().sum(GramQuestion(n_lags=1, variables=variables), 0).value

    first = run("monday")
    if not is_open:
        for name in sites.names:
            sites.restart(name)
    sites.data["s2"][0] = np.vstack([sites.data["s2"][0], [[7.5, -3.25, 11.0, 0.5]]])
    sites.write("s2")
    sites.greet(sites.study("oneshot", variables=("x0", "x1", "x3")), "between")
    np.testing.assert_allclose(run("tuesday"), first, atol=1e-6)


def rig_of(tmp_path, n=300, d=4, seed=1):
    rng = np.random.default_rng(seed)
    return Rig(tmp_path, {f"s{i}": [rng.standard_t(3, size=(n, d)) * (1 + i)] for i in range(3)})


def pairs(rig, robust="site", **more):
    return raw(
        "gram.pairs", {"n_lags": 1, "variables": rig.variables, "robust": robust, "pairs": True, **more}
    )


def test_a_server_chooses_no_cells_that_are_bounded(tmp_path):
    """F5: limits that leave few cells, or differ by a hair; now there are none to choose."""
    rig = rig_of(tmp_path)
    study = rig.study("oneshot", {})
    RigServer(rig, study, "own").refused(pairs(rig, "recording"), "not-in-study")
    RigServer(rig, study, "inputs").refused(pairs(rig, inputs=[0]), "not-in-study")
    off = rig.study("oneshot", {"prepare.robust": "off"})
    RigServer(rig, off, "off").refused(pairs(rig), "not-in-study")


def test_what_a_run_takes_for_granted_outlives_its_files(tmp_path):
    """F12: a run that was pruned began anew under the same approval and was told to use other cells."""
    rig = rig_of(tmp_path)
    study = rig.study("oneshot", {})
    for name in rig.names:
        path = rig.place / name / "policy.toml"
        path.write_text(path.read_text().replace("approve_by_rule = true\n", ""))
        Owner(read_site_settings(rig.place / name / "feddbn_site.toml")).approve(study, 90, 1, None)
        rig.restart(name)
    RigServer(rig, study).sum(pairs(rig))
    for name in rig.names:
        Store(rig.place / name / "state").forget("run")
        rig.restart(name)
    RigServer(rig, study).refused(pairs(rig, "none"), "changed-in-run")


def test_a_ledger_that_was_lost_or_put_back_stops_the_site(tmp_path):
    """F14: registers had no checksums: up to 241 of 300 flipped bits were read as something else."""
    sites = Sites(tmp_path, k=3, d=2, rows=60)
    question = GramQuestion(n_lags=1, variables=sites.variables)

    def run(name):
        sites.restart("s1")
        sites.greet(sites.study("oneshot"), name)
        return Server(sites, name).keys().sum(question, 0)

    run("one")
    path = sites.places["s1"] / "state" / STORE
    earlier = path.read_bytes()
    run("two")
    latest = path.read_bytes()
    for content in (None, earlier, b"", latest[:-5000]):
        path.unlink() if content is None else path.write_bytes(content)
        with pytest.raises(FeddbnError):
            run("three")
    path.write_bytes(latest)
    run("four")
    assert changed(path.parent, "DELETE FROM lines WHERE place = '_ledger' AND number = 3") == 1
    with pytest.raises(FeddbnError):
        run("five")


def test_a_flipped_bit_of_a_ledger_is_never_read_as_something_else(tmp_path):
    shelf = FileShelf(tmp_path / "s", "run", "study")
    names = [f"{k:016x}:{k:016x}" for k in range(6)]
    shelf.add([Entry(frozenset(names[:k]), "0" * 16, "ab") for k in range(2, 6)])
    known, path = shelf.entries(), tmp_path / "s" / STORE
    whole, rng, noticed = path.read_bytes(), np.random.default_rng(0), 0
    for _ in range(300):
        flipped = bytearray(whole)
        flipped[rng.integers(len(whole))] ^= 1 << rng.integers(8)
        path.write_bytes(flipped)
        try:
            # A bit of a page that holds nothing changes nothing.
            assert FileShelf(tmp_path / "s", "run", "study").entries() == known
        except FeddbnError:
            noticed += 1
    assert noticed


def total(sites, names, run):
    for name in sites.names:
        sites.restart(name)
    sites.greet(sites.study("oneshot", names), run)
    return Server(sites, run, names).keys().sum(GramQuestion(n_lags=1, variables=sites.variables), 0)


def test_one_participant_keeps_nobody_from_adding_up(tmp_path, monkeypatch):
    """F10: made-up sums under one signature blocked all later masked sums of everybody who had heard them."""
    sites = Sites(tmp_path, k=9, d=2, rows=40)
    place = sites.places["s8"]
    identity = Identity.from_seed((place / "identity.key").read_bytes())
    rng = np.random.default_rng(0)
    signer = member(identity.public, "")[:-1]
    real = {name: Identity.from_seed((p / "identity.key").read_bytes()) for name, p in sites.places.items()}
    versions = {name: data_version(sites.ends[name].whole, one) for name, one in real.items()}
    made = []
    for k in range(120):
        # Half of them name sites and versions that there are, as a run has told.
        others = rng.choice(sorted(versions), 3, replace=False) if k % 2 else ()
        named = {member(real[name].public, versions[name]) for name in others}
        members = frozenset(
            {f"{signer}:{rng.bytes(8).hex()}", *named, f"{rng.bytes(8).hex()}:{rng.bytes(8).hex()}"}
        )
        made.append(Entry(members, signer, identity.sign(Entry(members).statement).hex()))
    FileShelf(place / "state", "x", "x").add(made)
    admit = Register.admit

    def lenient(self, new, *more):
        # The bad site runs code of its own.
        return None if new.signer == signer else admit(self, new, *more)

    monkeypatch.setattr(Register, "admit", lenient)
    first = [*sites.names[:4], "s8"]
    sites.greet(sites.study("oneshot", first), "run-1")
    with contextlib.suppress(FeddbnError):
        total(sites, first, "run-1")
    assert len(total(sites, sites.names[:8], "run-2").contributors) == 8


def test_two_of_seven_do_not_make_a_difference_of_one(tmp_path):
    """F15: sums over seven and over four of them showed the seventh, 8.9e-16, to two that worked with the server."""
    sites = Sites(tmp_path, k=7, d=3, rows=60, seed=1)
    assert len(total(sites, sites.names, "all").contributors) == 7
    for kept, run in ((sites.names[3:], "later"), (sites.names[4:], "fewer")):
        # Of three that stay of seven, another sum over the four that left would complete the picture.
        with refused(AggregationError, code="shows-few-sites"):
            total(sites, kept, run)
