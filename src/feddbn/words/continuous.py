"""What fits in continuous time say."""

from __future__ import annotations

from feddbn.words import Said, counted, says

_MOST = 5


@says("rows-one-step-apart")
def _one_step_apart(it: Said) -> str:
    step = "one step" if it.get("step") is None else str(it["step"])
    return (
        f"rows have no times, so each is assumed to come {step} after the one before. If there is a column of times, name it "
        f"with {it.option('time')}."
    )


@says("rates-do-not-fit")
def _do_not_fit(it: Said) -> str:
    where = "; `fit_` and report.plot_fit show all" if it.in_python else "; the report shows all"
    return (
        f"the model does not fit the readings. The fit is worst for {' and '.join(it.finding.about)}: at a distance of "
        f"{it['steps']:.2g} steps their correlation is {it['observed']:.2f}, but the model says {it['expected']:.2f}. Over "
        f"all distances it is off by {it['errors']:.1f} standard errors on average{where}. Effects may be curved, change "
        "over time, or go through something unmeasured. Errors and probabilities allow for it, but edges may be wrong."
    )


@says("too-fast-for-readings")
def _too_fast(it: Said) -> str:
    one = len(it.finding.about) == 1
    them, are = ("it", "forgets faster than it is") if one else ("them", "forget faster than they are")
    return (
        f"{it.names} {are} read: half of a deviation is gone after {it['half_life']}, and readings are usually "
        f"{it['apart']} apart or more. Rates from and to {them} are uncertain. Measure {them} more often, or leave {them} "
        f"out with {it.option('variables')}."
    )


@says("slower-than-delays")
def _slower(it: Said) -> str:
    return (
        f"the slowest change lasts {it['slowest']}, but readings were compared only up to {it['longest']} apart. {it.cure} "
        "compares more distant ones."
    )


@says("few-pairs")
def _few_pairs(it: Said) -> str:
    hidden = f", {it['n_hidden']:,} of them seen at too few sites" if it.get("n_hidden") else ""
    return (
        f"{it['n']:,} of {it['n_moments']:,} covariances of readings by the time between them rest on too few pairs{hidden}, "
        "and were left out."
    )


@says("own-levels")
def _own_levels(it: Said) -> str:
    shares = it["shares"]
    shown = ", ".join(f"{name} {share:.0%}" for name, share in list(shares.items())[:_MOST])
    more = f" and {len(shares) - _MOST} more" if len(shares) > _MOST else ""
    return (
        f"recordings have different levels. These were separated from changes within recordings (share of the variance: "
        f"{shown}{more})."
    )


@says("correlated-noise")
def _correlated(it: Said) -> str:
    pairs = it["pairs"]
    shown = ", ".join(f"{one} and {other} ({r:.2f})" for one, other, r in pairs[:_MOST])
    more = f" and {len(pairs) - _MOST} more" if len(pairs) > _MOST else ""
    return (
        f"{counted(len(pairs), 'pair')} of variables {'shares' if len(pairs) == 1 else 'share'} noise: "
        f"{shown}{more}. An unmeasured cause acts on both, or one acts on the other faster than they are measured."
    )
