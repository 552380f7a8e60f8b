"""How far FDBNL's penalised objective is above pooled DYNOTEARS': 10 seeds, d = 10, n = 512, K = 2, 16, 64.

python benchmarks/fdbnl_objective.py [first_seed last_seed]
"""

import sys

import numpy as np

import feddbn


def main(first: int, last: int, d: int = 10, counts: tuple[int, ...] = (2, 16, 64)) -> None:
    excess, rounds = {}, []
    for n_sites in counts:
        for seed in range(first, last + 1):
            sites = feddbn.simulate(d=d, n_sites=n_sites, n_samples=512, random_state=seed).sites
            pooled = feddbn.Dynotears(refit=False, prepare=feddbn.Prepare(scale="none")).fit(sites)
            model = feddbn.FDBNL(refit=False, prepare=feddbn.Prepare(scale="none")).fit(sites)
            excess.setdefault(n_sites, []).append(100 * (model.objective_ / pooled.objective_ - 1))
            rounds.append(model.n_rounds_)
    print("K   max %    mean %   runs above 0.1 %   runs below -0.1 %")
    for n_sites, values in excess.items():
        v = np.array(values)
        print(
            f"{n_sites:<3} {v.max():7.4f}  {v.mean():7.4f}  {int((v > 0.1).sum()):>8} of {len(v)}  "
            f"{int((v < -0.1).sum()):>8} of {len(v)}"
        )
    print(f"rounds: mean {np.mean(rounds):.0f}, largest {max(rounds)}")


if __name__ == "__main__":
    main(*((int(sys.argv[1]), int(sys.argv[2])) if len(sys.argv) > 2 else (0, 9)))
