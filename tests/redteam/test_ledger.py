"""What a site has told is written down once: new rows, lags, re-reads, pruned runs and damaged files show no few rows."""

import contextlib

import numpy as np
import pytest

pytest.importorskip("cryptography")
from feddbn.core.statistics.residual_checks import ResidualSums, sums_length
from feddbn.errors import FeddbnError
from feddbn.federation.programs.residual_checks import ResidualsQuestion
from feddbn.federation.sums.gram import GramQuestion
from feddbn.privacy.register import Entry, Register, member
from feddbn.runtime.site.registers import FileShelf, data_version
from feddbn.runtime.store import STORE, Store
from support.consortium import Consortium, Liar, Refused, by_rule, raw, spread

pytestmark = pytest.mark.promise

LEAST = 10


def consortium(place, k, d, rows, **more):
    return Consortium(place, spread(k, d, rows, **more), by_rule())


def added_up(sites, run, names=None, variables=None):
    """The sum of moments in a run of its own."""
    variables = variables or sites.variables
    study = sites.study(sites=tuple(names or sites.names), variables=variables)
    return Liar(sites, study, run).sum(GramQuestion(n_lags=1, variables=variables))


def with_rows(sites, name, rows):
    """Write rows more into a site's file."""
    sites.data[name] = [np.vstack([sites.data[name][0], rows])]
    sites.write(name)


def residuals(liar, n_lags):
    """Sums of powers of the variables themselves, as residuals of a network without edges."""
    variables = liar.sites.variables
    d = len(variables)
    coefficients = np.zeros(((n_lags + 1) * d, d))
    coefficients[:d] = np.eye(d) / 5
    about = {"n_lags": n_lags, "variables": variables}
    value = liar.sum(ResidualsQuestion(**about, coefficients=coefficients, offset=np.full(d, 0.4))).value
    return ResidualSums.from_vector(value[1 : 1 + sums_length(d, n_lags + 1)], d, n_lags + 1)


def test_one_new_row_at_three_sites_is_in_no_difference(tmp_path):
    """A nightly import between two runs."""
    sites, found = consortium(tmp_path, 5, 4, 60, seed=2), []
    for run in ("monday", "tuesday", "wednesday"):
        found.append(residuals(Liar(sites, sites.study(), run), 1))
        n_new = 1 if run == "monday" else LEAST
        for name in ("s1", "s2", "s4"):
            with_rows(sites, name, np.random.default_rng(int(name[1])).normal(size=(n_new, 4)) * 2)
        sites.restart()
    monday, tuesday, wednesday = found
    np.testing.assert_allclose(monday.to_vector(), tuesday.to_vector(), atol=1e-6)
    # When there are enough of them they count.
    assert wednesday.counts[0] - monday.counts[0] == pytest.approx(3 * (LEAST + 1))


def test_two_numbers_of_lags_differ_by_many_rows(tmp_path):
    sites, counts = consortium(tmp_path, 3, 4, 120, seed=4), []
    for run, first in (("run", 1), ("third", 2), ("fourth", 3)):
        liar = Liar(sites, sites.study(parameters={"n_lags": first}), run)
        counts += [residuals(liar, first + k).counts[0] for k in (0, 1)]
    assert counts[0] == pytest.approx(3 * 119)
    # Thirty rows, of which there are 28 sums.
    assert counts[0] - counts[1] >= 3 * LEAST
    assert counts[2] == pytest.approx(counts[1])
    gaps = np.abs(np.subtract.outer(counts, counts))
    assert ((gaps < 1e-3) | (gaps > 3 * LEAST - 1e-3)).all()


@pytest.mark.parametrize("is_open", [False, True])
def test_files_are_read_once_for_a_job(tmp_path, is_open):
    """A row comes between the version and the reading, or while the job goes on."""
    sites = consortium(tmp_path, 4, 4, 60, seed=8)
    some = sites.variables[:3]
    first = added_up(sites, "monday", variables=some).value
    if not is_open:
        sites.restart()
    with_rows(sites, "s2", [[7.5, -3.25, 11.0, 0.5]])
    Liar(sites, sites.study(variables=("x0", "x1", "x3")), "between")
    np.testing.assert_allclose(added_up(sites, "tuesday", variables=some).value, first, atol=1e-6)


def of_pairs(place):
    rng = np.random.default_rng(1)
    data = {f"s{i}": [rng.standard_t(3, size=(300, 4)) * (1 + i)] for i in range(3)}
    return Consortium(place, data, by_rule())


def pairs(sites, robust="site", **more):
    about = {"n_lags": 1, "variables": sites.variables, "robust": robust, "pairs": True}
    return raw("gram.pairs", {**about, **more})


def test_a_server_chooses_no_cells_that_are_bounded(tmp_path):
    """There are no limits to choose that leave few cells, or differ by a hair."""
    sites = of_pairs(tmp_path)
    Liar(sites, sites.study(), "own").refused(pairs(sites, "recording"), "not-in-study")
    Liar(sites, sites.study(), "inputs").refused(pairs(sites, inputs=[0]), "not-in-study")
    off = sites.study(parameters={"prepare.robust": "off"})
    Liar(sites, off, "off").refused(pairs(sites), "not-in-study")


def test_what_a_run_takes_for_granted_outlives_its_files(tmp_path):
    """A run that was pruned does not begin anew under the same approval, with other cells."""
    sites = of_pairs(tmp_path)
    sites.set_policy("approve_by_rule = true\n", "")
    study = sites.study()
    sites.approve(study)
    Liar(sites, study).sum(pairs(sites))
    for name in sites.names:
        Store(sites.state(name)).forget("run")
    sites.restart()
    Liar(sites, study).refused(pairs(sites, "none"), "changed-in-run")


def test_a_ledger_that_was_lost_or_put_back_stops_the_site(tmp_path):
    sites = consortium(tmp_path, 3, 2, 60)
    path = sites.state("s1") / STORE

    def run(name):
        sites.restart("s1")
        return added_up(sites, name)

    run("one")
    earlier = path.read_bytes()
    run("two")
    latest = path.read_bytes()
    for content in (None, earlier, b"", latest[:-5000]):
        path.unlink() if content is None else path.write_bytes(content)
        with pytest.raises((FeddbnError, Refused)):
            run("three")
    path.write_bytes(latest)
    run("four")
    assert sites.damage("s1", "DELETE FROM lines WHERE place = '_ledger' AND number = 3") == 1
    with pytest.raises((FeddbnError, Refused)):
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


def test_one_participant_keeps_nobody_from_adding_up(tmp_path, monkeypatch):
    """Made-up sums under one signature do not block later sums of everybody who has heard them."""
    sites = consortium(tmp_path, 9, 2, 40)
    rng = np.random.default_rng(0)
    real = {name: sites.key(name) for name in sites.names}
    identity = real["s8"]
    signer = member(identity.public, "")[:-1]
    versions = {name: data_version(sites.endpoints[name].whole, key) for name, key in real.items()}
    made = []
    for k in range(120):
        # Half of them name sites and versions that there are, as a run has told.
        others = rng.choice(sorted(versions), 3, replace=False) if k % 2 else ()
        named = {member(real[name].public, versions[name]) for name in others}
        members = frozenset(
            {f"{signer}:{rng.bytes(8).hex()}", *named, f"{rng.bytes(8).hex()}:{rng.bytes(8).hex()}"}
        )
        made.append(Entry(members, signer, identity.sign(Entry(members).statement).hex()))
    FileShelf(sites.state("s8"), "x", "x").add(made)
    admit = Register.admit

    def lenient(self, new, *more):
        # The bad site runs code of its own.
        return None if new.signer == signer else admit(self, new, *more)

    monkeypatch.setattr(Register, "admit", lenient)
    with contextlib.suppress(FeddbnError, Refused):
        added_up(sites, "run-1", [*sites.names[:4], "s8"])
    sites.restart()
    assert len(added_up(sites, "run-2", sites.names[:8]).contributors) == 8
