"""Membership inference: can an attacker tell from the released sums whether one recording was in them?

    python benchmarks/privacy_membership.py

The attacker knows everything but the target's membership: the sums of all other recordings, the noise level,
and the target's own vector. It scores the released sum by the likelihood ratio, the best test there is
(Neyman-Pearson). Without noise it is always right. With noise its AUC is at most the bound of (epsilon,
delta)-differential privacy; for the Gaussian mechanism the exact value is Phi(mu / sqrt 2), mu = |clipped
vector| / sigma.
"""

from __future__ import annotations

import numpy as np
from scipy.stats import norm

from feddbn.core.designs.recordings import Block, lagged_rows
from feddbn.core.statistics.moments import Moments
from feddbn.privacy.gaussian import noise_multiplier
from feddbn.privacy.noise_plan import ClipRule, NoisePlan, gram_weights, multiplier_for
from feddbn.sim.simulation import simulate

DELTA, N_TRIALS, N_SITES = 1e-5, 1000, 5


def clip_to(vector: np.ndarray, bound: float, weights: np.ndarray) -> np.ndarray:
    return vector * min(1.0, bound / float(np.linalg.norm(weights * vector)))


def auc(inside: np.ndarray, outside: np.ndarray) -> float:
    ranks = np.argsort(np.argsort(np.concatenate([inside, outside]))) + 1
    n = len(inside)
    return float((ranks[:n].sum() - n * (n + 1) / 2) / (n * len(outside)))


def dp_auc_bound(epsilon: float, delta: float) -> float:
    """Largest area under any curve that (epsilon, delta) allows: TPR <= min(e^eps FPR + delta, 1 - e^-eps (1
    - delta - FPR)).
    """
    fpr = np.linspace(0, 1, 200_001)
    upper = np.minimum(np.exp(epsilon) * fpr + delta, 1 - np.exp(-epsilon) * (1 - delta - fpr))
    return float(np.trapezoid(np.clip(upper, 0, 1), fpr))


def main(n_trials: int = N_TRIALS) -> None:
    federation = simulate(
        d=5, n_sites=N_SITES, n_samples=19 * 100, n_recordings=20, mean_degree=2, random_state=0
    )
    units = [
        Moments.of_rows(np.concatenate(list(lagged_rows([Block(np.asarray(r, dtype=float))], 1)))).to_sums()
        for recordings in federation.sites.values()
        for r in recordings
    ]
    weights = gram_weights(10)
    norms = [np.linalg.norm(weights * u) for u in units]
    bound = float(np.quantile(norms, 0.2))
    target = units[int(np.argmax(norms))]
    per_site = [units[k * 20 : (k + 1) * 20] for k in range(N_SITES)]
    print(f"target: the recording with the largest norm; bound {bound:.0f}; {n_trials} releases each way")
    print("epsilon  attack AUC  Gaussian mechanism  bound of (epsilon, delta)-DP")
    everyone = sum(units)
    without = everyone - target
    scores_in, scores_out = np.array([(s - without) @ target for s in (everyone, without)])[:, None]
    print(f"   none  {auc(scores_in, scores_out):10.3f}                   -                             -")
    for epsilon in (0.5, 1.0, 2.0, 4.0, 8.0):
        plan = NoisePlan("recording", multiplier_for(epsilon, DELTA), {"moments": ClipRule(bound, "gram")})
        rng = np.random.default_rng(int(10 * epsilon))
        clipped = clip_to(target, bound, weights)
        others = [[u for u in site if u is not target] for site in per_site]
        base = sum(clip_to(u, bound, weights) for site in others for u in site)
        scores: dict[bool, list[float]] = {True: [], False: []}
        for member in (True, False):
            for _ in range(n_trials):
                total = np.zeros_like(target)
                for k, site in enumerate(others):
                    here = [*site, target] if member and k == 0 else site
                    total += plan.protect("moments", here, True, len(target), 1, N_SITES, rng.bytes).value
                # Log likelihood ratio of the two Gaussians, up to constants.
                scores[member].append(float((weights * (total - base)) @ (weights * clipped)))
        measured = auc(np.array(scores[True]), np.array(scores[False]))
        exact = norm.cdf(1 / noise_multiplier(epsilon, DELTA) / np.sqrt(2))
        print(
            f"{epsilon:7g}  {measured:10.3f}  {exact:18.3f}  {dp_auc_bound(epsilon, DELTA):28.3f}", flush=True
        )


if __name__ == "__main__":
    main()
