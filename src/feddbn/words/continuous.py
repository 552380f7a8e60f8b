"""What fits in continuous time say."""

from __future__ import annotations

from feddbn.words import Said, counted, says

_MOST = 5


@says("rows-one-step-apart")
def _one_step_apart(it: Said) -> str:
    step = "one step" if it.get("step") is None else str(it["step"])
    return (
        f"rows have no times, so each is taken {step} after the one before; name the column of times with "
        f"{it.option('time')} if there is one."
    )


@says("rates-do-not-fit")
def _do_not_fit(it: Said) -> str:
    where = "; `fit_` and report.plot_fit show all" if it.in_python else "; the report shows all"
    return (
        f"the rates do not describe the readings. Worst are those of {' and '.join(it.finding.about)}: {it['steps']:.2g} "
        f"steps apart they correlate by {it['observed']:.2f} and not by {it['expected']:.2f}, and at all delays they are "
        f"{it['errors']:.1f} standard errors off in the mean{where}. Effects may be curved, change over time, or go through "
        "something that is not measured; errors and probabilities allow for the misfit, edges may be wrong."
    )


@says("too-fast-for-readings")
def _too_fast(it: Said) -> str:
    one = len(it.finding.about) == 1
    them, are = ("it", "forgets faster than it is") if one else ("them", "forget faster than they are")
    return (
        f"{it.names} {are} read: half of a deviation is gone after {it['half_life']}, and readings are usually "
        f"{it['apart']} apart or more. Rates from and to {them} rest on little; read {them} more often, or leave {them} out "
        f"with {it.option('variables')}."
    )


@says("slower-than-delays")
def _slower(it: Said) -> str:
    return (
        f"the slowest change lasts {it['slowest']}, and readings were compared up to {it['longest']} apart only; {it.cure} "
        "looks further."
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
        f"recordings have levels of their own, which were told apart from what goes on within them (share of the variance: "
        f"{shown}{more})."
    )


@says("correlated-noise")
def _correlated(it: Said) -> str:
    pairs = it["pairs"]
    shown = ", ".join(f"{one} and {other} ({r:.2f})" for one, other, r in pairs[:_MOST])
    more = f" and {len(pairs) - _MOST} more" if len(pairs) > _MOST else ""
    return (
        f"{counted(len(pairs), 'pair')} of variables {'is' if len(pairs) == 1 else 'are'} moved by common noise: "
        f"{shown}{more}. Something that acts on both is not measured, or one acts on the other faster than they are read."
    )
