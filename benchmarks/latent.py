"""Networks with hidden variables: LatentDBN against LPCMCI on the pooled rows, and against voting of the sites' own graphs.

    python benchmarks/latent.py [n_networks] [first seed]

Prints the table of docs/causal.md. Systems are as in Gerhardus and Runge (2020): every variable remembers itself (.6 to .9),
there are as many further links as variables, 30 % of them contemporaneous, with weights of .2 to .8 and either sign; 30 % of
the variables are hidden. Five to ten variables are seen, 500 rows, two lags. Scores are those of `feddbn.metrics.mark_scores`
over all networks together. tigramite is left out if it is not installed.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import sys
import time
from collections import Counter
from collections.abc import Callable
from importlib.util import find_spec

import numpy as np

from feddbn import LatentDBN
from feddbn.core.ancestral.marks import true_marks
from feddbn.metrics import MarkScores, mark_scores

N_LAGS, ROWS, BURN, N_SITES, ALPHA = 2, 500, 200, 4, 0.01
HIDDEN = 0.3
Found = np.ndarray


def draw(rng: np.random.Generator, n_seen: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """W (n, n) and A (2, n, n), ``[from, to]``, of a stable system, and which variables are seen."""
    n = round(n_seen / (1 - HIDDEN))
    pairs = [(i, j) for i in range(n) for j in range(i)]
    while True:
        W, A = np.zeros((n, n)), np.zeros((N_LAGS, n, n))
        A[0][np.diag_indices(n)] = rng.uniform(0.6, 0.9, n)
        rank = rng.permutation(n)
        for k in rng.choice(len(pairs), min(n, len(pairs)), replace=False):
            later, earlier = rank[list(pairs[k])]
            weight = rng.uniform(0.2, 0.8) * rng.choice([-1, 1])
            if rng.random() < 0.3:
                W[earlier, later] = weight
            else:
                a, b = (earlier, later) if rng.random() < 0.5 else (later, earlier)
                A[rng.integers(N_LAGS), a, b] = weight
        through = np.linalg.inv(np.eye(n) - W)
        companion = np.eye(N_LAGS * n, k=-n)
        companion[:n] = np.concatenate([(one @ through).T for one in A], axis=1)
        if np.abs(np.linalg.eigvals(companion)).max() < 0.97:
            return W, A, np.sort(rng.choice(n, n_seen, replace=False))


def series(rng: np.random.Generator, W: np.ndarray, A: np.ndarray) -> np.ndarray:
    """(500, n) rows with Gaussian noise of standard deviation .5 to 2."""
    n = len(W)
    noise = rng.standard_normal((ROWS + BURN, n)) * rng.uniform(0.5, 2.0, n)
    through, x = np.linalg.inv(np.eye(n) - W), np.zeros((ROWS + BURN, n))
    for t in range(N_LAGS, ROWS + BURN):
        x[t] = (sum(x[t - 1 - lag] @ A[lag] for lag in range(N_LAGS)) + noise[t]) @ through
    return x[BURN:]


def parts(x: np.ndarray) -> dict[str, np.ndarray]:
    return {f"site-{k}": part for k, part in enumerate(np.array_split(x, N_SITES))}


def lpcmci(x: np.ndarray) -> Found:
    from tigramite.data_processing import DataFrame
    from tigramite.independence_tests.parcorr import ParCorr
    from tigramite.lpcmci import LPCMCI

    test = ParCorr(significance="analytic")
    found = LPCMCI(dataframe=DataFrame(x), cond_ind_test=test, verbosity=0).run_lpcmci(
        tau_max=N_LAGS, pc_alpha=ALPHA
    )
    return np.asarray(found["graph"])


def one_site(x: np.ndarray) -> Found:
    return LatentDBN(N_LAGS, ALPHA).fit({"a": x}).graph_


def four_sites(x: np.ndarray) -> Found:
    return LatentDBN(N_LAGS, ALPHA).fit(parts(x)).graph_


def vote(x: np.ndarray) -> Found:
    """Edges that more than half of the sites find alone, each with the mark that most of them give it."""
    graphs = [one_site(part) for part in parts(x).values()]
    words = np.full(graphs[0].shape, "", dtype="<U3")
    for place in np.ndindex(*words.shape):
        named = Counter(str(graph[place]) for graph in graphs if graph[place])
        if sum(named.values()) > len(graphs) / 2:
            words[place] = named.most_common(1)[0][0]
    return words


METHODS: dict[str, Callable[[np.ndarray], Found]] = {
    "LPCMCI (tigramite), pooled rows": lpcmci,
    "LatentDBN, pooled rows": one_site,
    "LatentDBN, four sites": four_sites,
    "vote of four sites' own graphs": vote,
}


def together(scores: list[MarkScores]) -> tuple[float, ...]:
    """Precision, recall, F1 of edges and of marks over all networks."""
    n = {name: sum(one[name] for one in scores) for name in scores[0] if name.startswith("n_")}
    found = []
    for hits, claimed, there in (("n_hits", "n_estimated", "n_true"), ("n_right", "n_claims", "n_ends")):
        found += [n[hits] / n[claimed], n[hits] / n[there], 2 * n[hits] / (n[claimed] + n[there])]
    return tuple(found)


def main(n_networks: int = 20, first: int = 1000) -> None:
    methods = dict(METHODS)
    if find_spec("tigramite") is None:
        del methods["LPCMCI (tigramite), pooled rows"]
    scores: dict[str, list[MarkScores]] = {name: [] for name in methods}
    seconds = dict.fromkeys(methods, 0.0)
    for seed in range(first, first + n_networks):
        rng = np.random.default_rng(seed)
        W, A, seen = draw(rng, 5 + seed % 6)
        x = series(rng, W, A)[:, seen]
        truth = true_marks(W, A, seen, N_LAGS)
        for name, method in methods.items():
            begin = time.process_time()
            marks = method(x)
            seconds[name] += time.process_time() - begin
            scores[name].append(mark_scores(truth, marks))
    print(f"{n_networks} networks, seeds {first} to {first + n_networks - 1}")
    print("| method | edges: precision | recall | F1 | marks: precision | recall | F1 | seconds |")
    print("|---|---|---|---|---|---|---|---|")
    for name, found in scores.items():
        cells = " | ".join(f"{value:.3f}" for value in together(found))
        print(f"| {name} | {cells} | {seconds[name] / n_networks:.2f} |")


if __name__ == "__main__":
    main(*(int(word) for word in sys.argv[1:]))
