"""A tester that looks for a violation of differential privacy in what a mechanism gives out, as DP-Auditorium does.

Outcomes on two neighbouring data sets are numbers (a projection of what left; NaN is a refusal). A third of them
chooses the event that tells the data sets apart best; the others judge it, with exact (Clopper-Pearson) bounds on both
probabilities. The answer is a lower bound on P(event) - e^epsilon P'(event) - delta: above zero the claim is broken (and it
is above zero by chance once in 1000 times at most).
"""

import math

import numpy as np
from scipy import stats

from feddbn.privacy.gaussian import gaussian_delta

DOUBT = 1e-3


def events(outcomes):
    """Indicator functions to choose from: beyond a threshold, on either side, and refused."""
    answered = outcomes[~np.isnan(outcomes)]
    found = [np.isnan]
    for cut in np.unique(np.quantile(answered, np.linspace(0.005, 0.995, 67))) if len(answered) else ():
        found.append(lambda x, cut=cut: x > cut)
        found.append(lambda x, cut=cut: x < cut)
    return found


def lower(hits, n):
    return stats.beta.ppf(DOUBT / 2, hits, n - hits + 1) if hits else 0.0


def upper(hits, n):
    return stats.beta.ppf(1 - DOUBT / 2, hits + 1, n - hits) if hits < n else 1.0


def violation(one, other, epsilon, delta):
    """Return by how much (epsilon, delta) is violated at least; 0 or less if nothing was found."""
    one, other = (np.random.default_rng(0).permutation(np.asarray(x, dtype=float)) for x in (one, other))
    best = -math.inf
    for first, second in ((one, other), (other, one)):
        (learn, judge), (learn2, judge2) = (np.split(x, [len(x) // 3]) for x in (first, second))
        gains = [
            (event(learn).mean() - math.exp(epsilon) * event(learn2).mean(), event)
            for event in events(np.concatenate([learn, learn2]))
        ]
        event = max(gains, key=lambda item: item[0])[1]
        low = lower(int(event(judge).sum()), len(judge))
        high = upper(int(event(judge2).sum()), len(judge2))
        best = max(best, low - math.exp(epsilon) * high - delta)
    return best


def curve_violation(one, other, multiplier):
    """The same for the whole curve of (epsilon, delta) that books ascribe to a noise multiplier."""
    pairs = [(epsilon, gaussian_delta(epsilon, multiplier)) for epsilon in (0.0, 0.5, 1.0)]
    return max(violation(one, other, epsilon, delta) for epsilon, delta in pairs)
