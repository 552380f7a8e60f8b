"""The attack on plain messages works; on sums it is no better than guessing the mean."""

import numpy as np
import pytest
from scipy.linalg import expm

from feddbn.errors import ParameterError
from feddbn.federation.protocol.site import Site
from feddbn.federation.protocol.task import Task, array
from feddbn.runtime.simulated.secure import secure_federation
from reproduction.attack import (
    ConsensusAttack,
    PersonalAttack,
    PersonalRound,
    mean_guess_error,
    relative_error,
    rms_error,
    rotation_distance,
    rows_from_gram,
)
from support.questions import make_question


class PlainSite:
    """One site of consensus ADMM, written straight from the formulas of the protocol."""

    def __init__(self, Z, d):
        self.Z, self.n, self.q = Z, len(Z), Z.shape[1]
        self.G = Z.T @ Z / self.n
        self.E = np.eye(self.q, d)
        self.U = np.zeros((self.q, d))
        self.C = None

    def answer(self, Cbar, rho2, D):
        if self.C is not None:
            self.U = self.U + rho2 * D * (self.C - Cbar)
        left = self.G + rho2 * np.diag(D[:, 0])
        self.C = np.linalg.solve(left, self.G @ self.E - self.U + rho2 * D * Cbar)
        return self.C + self.U / (rho2 * D)


def _sites(rng, n_sites, n, d, p):
    return [PlainSite(_correlated(rng, n, (p + 1) * d), d) for _ in range(n_sites)]


def _correlated(rng, n, q):
    return rng.normal(size=(n, q)) @ (np.eye(q) + 0.3 * rng.normal(size=(q, q)))


def _consensus(sites, n_rounds, d, rho2=1.0, D=None):
    """Yield (Cbar, messages) of each round; the server soft-thresholds the mean."""
    q = sites[0].q
    D = np.ones((q, 1)) if D is None else D
    Cbar = np.zeros((q, d))
    for _ in range(n_rounds):
        messages = [site.answer(Cbar, rho2, D) for site in sites]
        yield Cbar, messages
        mean = np.mean(messages, axis=0)
        Cbar = np.sign(mean) * np.maximum(np.abs(mean) - 0.02, 0)
        Cbar[:d][np.diag_indices(d)] = 0


@pytest.mark.parametrize(("d", "p"), [(5, 0), (6, 1), (20, 1), (6, 2)])
@pytest.mark.parametrize("scaled", [False, True])
def test_plain_consensus_messages_give_every_gram_matrix_after_p_plus_one_rounds(d, p, scaled):
    rng = np.random.default_rng(0)
    q = (p + 1) * d
    D = rng.uniform(0.5, 2.0, (q, 1)) if scaled else np.ones((q, 1))
    sites = _sites(rng, 3, 200, d, p)
    attacks = [ConsensusAttack(q, d, D[:, 0]) for _ in sites]
    for Cbar, messages in _consensus(sites, p + 1, d, D=D):
        for attack, message in zip(attacks, messages, strict=True):
            attack.observe(Cbar, np.concatenate([message.ravel(), [0.0, 1.0]]), 1.0)
    for attack, site in zip(attacks, sites, strict=True):
        assert attack.n_rounds == p + 1
        assert relative_error(attack.estimate(), site.G) < 1e-8


def test_one_round_too_few_is_not_enough():
    rng = np.random.default_rng(1)
    (site,) = _sites(rng, 1, 200, 6, 1)
    attack = ConsensusAttack(12, 6)
    for Cbar, (message,) in _consensus([site], 1, 6):
        attack.observe(Cbar, message, 1.0)
    assert relative_error(attack.estimate(), site.G) > 0.1


def test_attack_follows_a_changing_rho():
    rng = np.random.default_rng(2)
    (site,) = _sites(rng, 1, 200, 5, 1)
    attack, D, Cbar, before = ConsensusAttack(10, 5), np.ones((10, 1)), np.zeros((10, 5)), 1.0
    for rho2 in (1.0, 1.5, 3.0):
        if site.C is not None:
            site.U = site.U + before * (site.C - Cbar)
            site.C = None
        message = site.answer(Cbar, rho2, D)
        attack.observe(Cbar, message, rho2, before)
        Cbar, before = 0.5 * message, rho2
    assert relative_error(attack.estimate(), site.G) < 1e-8


def test_relaxed_steps_leak_as_much_as_steps():
    rng = np.random.default_rng(12)
    (site,) = _sites(rng, 1, 200, 5, 1)
    E = np.eye(10, 5)
    attack = ConsensusAttack(10, 5)
    second = rng.normal(size=(10, 5))
    own = np.linalg.solve(site.G + 2.0 * np.eye(10), site.G @ E + 2.0 * second)
    attack.observe(second, own, 2.0, ask="zero")
    third = second + 0.1 * rng.normal(size=(10, 5))
    dual = 2.0 * (own - third)
    solution = np.linalg.solve(site.G + 2.0 * np.eye(10), site.G @ E - dual + 2.0 * third)
    reported = 1.6 * solution - 0.6 * third
    attack.observe(third, reported + dual / 2.0, 2.0, 2.0, 1.6)
    assert relative_error(attack.estimate(), site.G) < 1e-8


def test_few_rows_follow_from_the_gram_matrix_up_to_a_rotation():
    rng = np.random.default_rng(3)
    d, p, n = 6, 1, 9
    (site,) = _sites(rng, 1, n, d, p)
    attack = ConsensusAttack(12, d)
    for Cbar, (message,) in _consensus([site], p + 1, d):
        attack.observe(Cbar, message, 1.0)
    rows = rows_from_gram(n * attack.estimate(), n)
    assert rotation_distance(rows, site.Z) < 1e-6
    assert rotation_distance(rng.normal(size=rows.shape), site.Z) > 0.3


def test_rows_of_many_rows_are_not_claimed():
    with pytest.raises(ParameterError, match="only for 1 <= n <= 4, got n=5"):
        rows_from_gram(np.eye(4), 5)


class Attacked:
    """Data of a site that answers by its own arithmetic."""

    variables = ("x",)

    def __init__(self, site):
        self.site = site


def _attacked(here, question):
    site = here.data.site
    return here.state, site.answer(question.C, 1.0, np.ones((site.q, 1))).ravel()


AttackedStep = make_question("attacked-step", _attacked, C=array("q", "d"))


def test_secure_aggregation_leaves_nothing_better_than_the_mean():
    rng = np.random.default_rng(4)
    d, p, n_sites = 6, 1, 5
    q = (p + 1) * d
    sites = _sites(rng, n_sites, 150, d, p)
    federation = secure_federation({f"s{k}": Site(f"s{k}", Attacked(site)) for k, site in enumerate(sites)})
    seen = []
    collect = federation._server.collect

    def spy(replies):
        seen.append({name: arrays["y"].copy() for name, (_, arrays) in replies.items()})
        return collect(replies)

    federation._server.collect = spy
    on_mean = ConsensusAttack(q, d)
    on_masked = {name: ConsensusAttack(q, d) for name in federation.sites}
    Cbar = np.zeros((q, d))
    for _ in range(p + 1):
        total = federation.sum(Task(AttackedStep(C=Cbar)))
        mean = total.value.reshape(q, d) / n_sites
        on_mean.observe(Cbar, mean, 1.0)
        for name, y in seen[-1].items():
            on_masked[name].observe(Cbar, y[1].astype(np.int64) / 2.0**40, 1.0)
        Cbar = np.sign(mean) * np.maximum(np.abs(mean) - 0.02, 0)
    truths = [site.G for site in sites]
    guess = mean_guess_error(truths)
    assert rms_error([on_mean.estimate()] * n_sites, truths) >= guess
    # The masked inputs themselves look like noise: reading them as messages is far worse than the mean.
    assert rms_error([on_masked[name].estimate() for name in federation.sites], truths) >= guess
    # The same sites in the clear fall at once, so the bound above is not an accident of the problem.
    assert guess > 0.1


def test_no_single_guess_beats_the_mean():
    rng = np.random.default_rng(5)
    truths = [np.cov(rng.normal(size=(4, 30))) for _ in range(6)]
    best = mean_guess_error(truths)
    for _ in range(50):
        other = np.mean(truths, axis=0) + 0.1 * rng.normal(size=(4, 4))
        assert rms_error([other] * 6, truths) > best


def _personal_site(G, d, known, T, U, mask):
    """Solve the site's PFDBNL problem to high precision by L-BFGS on positive and negative parts, then
    Newton polish.
    """
    q = len(G)
    E, mu = np.eye(q, d), known.mu

    def smooth(C):
        growth = expm(C[:d] * C[:d])
        h = np.trace(growth) - d
        R = C - E
        value = (
            0.5 * np.sum(R * (G @ R)) + mu * np.sum((C - T) ** 2) + known.alpha * h + known.rho1 / 2 * h * h
        )
        gradient = G @ R + 2 * mu * (C - T)
        gradient[:d] += (known.alpha + known.rho1 * h) * 2 * C[:d] * growth.T
        return value, gradient

    C = np.zeros((q, d))
    step = 1.0 / (np.linalg.eigvalsh(G)[-1] + 2 * mu + 10)
    for _ in range(20000):
        new = C - step * smooth(C)[1]
        new = np.sign(new) * np.maximum(np.abs(new) - step * known.penalty, 0) * mask
        if np.max(np.abs(new - C)) < 1e-16:
            break
        C = new
    T_new = (2 * mu * C + known.rho2 * known.Cbar - U) / (2 * mu + known.rho2)
    return T_new


def test_plain_personal_messages_give_the_gram_matrix():
    rng = np.random.default_rng(6)
    d, p = 4, 1
    q = (p + 1) * d
    G = np.cov(_correlated(rng, 300, q).T)
    mask = np.ones((q, d))
    mask[:d][np.diag_indices(d)] = 0
    penalty = np.full((q, d), 0.01)
    attack = PersonalAttack(q, d)
    T, U, Cbar = np.zeros((q, d)), np.zeros((q, d)), np.zeros((q, d))
    errors = []
    for r in range(4):
        known = PersonalRound(Cbar, 1.0, 0.5, penalty, 0.1 * r, 1.0)
        T = _personal_site(G, d, known, T, U, mask)
        message = T + U / known.rho2
        attack.observe(known, message.ravel())
        errors.append(relative_error(attack.estimate(), G))
        Cbar = 0.7 * message + 0.05 * rng.normal(size=(q, d))
        U = U + known.rho2 * (T - Cbar)
    assert attack.n_equations > q * (q + 1) // 2
    assert errors[p] < 1e-6
    assert errors[-1] < 1e-8


def test_errors_are_relative():
    assert relative_error(np.eye(3) * 2, np.eye(3)) == pytest.approx(1.0)
