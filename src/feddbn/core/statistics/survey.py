"""What a site can say about its rows before anybody learns from them: cycles, kinds, and how it compares.

All of it adds up over recordings, and none of it is a total or a product of the data: what a site tells here cannot be
taken off what it tells later, or the other way round.

    spectrum     periodograms of recordings without their slow parts, each over its own variance
    profile      log standard deviations and Fisher's z of lagged correlations of a site: what sites are compared by

Kinds: a site objects to a kind of a variable by 1 if one of its cells cannot be of it; no objection of anybody is the
sign. That tells what a column is, and of no row more than that it is like the others.

Agreement: does a site look like the others? Each finds out by itself. With s the profile of a site (`lagged_profile`) and
the sums of s and s^2 over K sites, a site takes its own part off and knows mean and variance of the others. It needs no
one else's numbers, and only the number of sites that do not fit is ever added up. A profile is of cells without their slow
part and cycles: sizes and phases of these are a site's own, and correlations that they make differ from site to site.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import combinations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from scipy.fft import rfft

from feddbn.core.arrays import BoolArray, FloatArray, may_lack_cells
from feddbn.core.designs.recordings import stack_lags
from feddbn.core.statistics.missing import own_coefficients
from feddbn.findings import Finding

N_FREQUENCIES = 1025
"""0 to half a turn per row."""
_PIECE = 2 * (N_FREQUENCIES - 1)
_PULLED_IN = 6.0
_LINKS_PULLED_IN = 3.0
_SLOW_ROWS = 50
"""Shorter recordings only lose their mean: a cubic would take a good part of the rest."""
_SPECTRUM_ROWS = 48
_MANY = 8
_GAUSSIAN_MEDIAN = 0.6744897501960817
_KEPT_ROWS = 1 << 16


def _slow_columns(n: int, periods: tuple[float, ...]) -> FloatArray:
    place = np.linspace(-1.0, 1.0, n) if n > 1 else np.zeros(n)
    columns = np.polynomial.legendre.legvander(place, 3 if n >= _SLOW_ROWS else 0)
    turns = [2 * np.pi * np.arange(n) / period for period in periods if n >= max(_SLOW_ROWS, 2 * period)]
    return np.asarray(np.column_stack([columns, *map(np.cos, turns), *map(np.sin, turns)]), dtype=np.float64)


@lru_cache(maxsize=4)
def _slow_basis(n: int, periods: tuple[float, ...]) -> FloatArray:
    """Orthonormal; many recordings have as many rows as the one before."""
    return np.linalg.qr(_slow_columns(n, periods))[0]


def without_slow_part(values: FloatArray, periods: tuple[float, ...] = ()) -> FloatArray:
    """The rows of a recording without a cubic in time and cycles, or if they are few without their mean; NaN stays NaN."""
    n = len(values)
    absent = np.isnan(values) if may_lack_cells(values) else None
    if absent is None or not absent.any():
        Q = _slow_basis(n, periods) if n <= _KEPT_ROWS else np.linalg.qr(_slow_columns(n, periods))[0]
        slow = Q @ (Q.T @ values)
        return np.subtract(values, slow, out=slow)
    Q = _slow_basis(n, periods)
    present = ~absent & (np.sum(~absent, axis=0) > Q.shape[1])
    slow = Q @ own_coefficients(np.where(present, values, 0.0), present, Q)
    return np.where(present, values - slow, np.nan)


def periodogram(rest: FloatArray) -> tuple[FloatArray, float]:
    """(N_FREQUENCIES,) periodograms of the columns of one recording, each over its variance, summed, and how many.

    Longer recordings are cut; white noise gives 1 at every frequency and column.
    """
    total, number = np.zeros(N_FREQUENCIES), 0.0
    for start in range(0, len(rest), _PIECE):
        piece = rest[start : start + _PIECE]
        n = len(piece)
        if n < _SPECTRUM_ROWS:
            continue
        # Columns become rows: sums along them are quicker, and so are transforms.
        columns = np.ascontiguousarray((np.nan_to_num(piece) if may_lack_cells(piece) else piece).T)
        variance = columns.var(axis=1)
        varies = variance > 0
        if not varies.any():
            continue
        waves = rfft(columns if varies.all() else columns[varies], n=_PIECE, axis=1)
        parts = waves.view(np.float64)
        power = (1.0 / (n * variance[varies])) @ np.square(parts, out=parts)
        total += power[0::2] + power[1::2]
        number += float(varies.sum())
    return total, number


def profile_length(d: int, n_lags: int) -> int:
    """Return the length of `lagged_profile`."""
    q = (n_lags + 1) * d
    return d + q * (q - 1) // 2


def lagged_profile(parts: Iterable[FloatArray], d: int, n_lags: int) -> tuple[FloatArray, float] | None:
    """Log standard deviations (d,) and Fisher's z of the correlations of lagged rows, and how many rows these are worth.

    `parts` are contiguous rows without their slow parts. Extreme cells are pulled in, to six robust standard deviations, and
    for correlations, which they hide, to three. None if a variable has too few cells.
    """
    pieces = list(parts)
    q = (n_lags + 1) * d
    every = np.concatenate(pieces) if pieces else np.empty((0, d))
    known = (~np.isnan(every)).sum(axis=0)
    if known.min(initial=len(every)) < q + 8 or not len(every):
        return None
    robust = np.nanmedian(np.abs(every), axis=0) / _GAUSSIAN_MEDIAN
    robust[robust == 0] = np.inf
    spread = np.nanmean(np.clip(every, -_PULLED_IN * robust, _PULLED_IN * robust) ** 2, axis=0)
    bound = _LINKS_PULLED_IN * robust
    N, S = np.zeros((2, q, q)), np.zeros((2, q, q))
    for k, piece in enumerate(pieces):
        m = len(piece) - n_lags
        if m <= 0:
            continue
        rows = np.empty((m, q))
        stack_lags(np.clip(piece, -bound, bound), range(n_lags + 1), rows)
        here = ~np.isnan(rows)
        filled, mask = np.where(here, rows, 0.0), here.astype(float)
        # Many recordings may differ among themselves: then halves are of recordings, else of time.
        halves = {k % 2: slice(m)} if len(pieces) >= _MANY else {0: slice(m // 2), 1: slice(m // 2, m)}
        for half, part in halves.items():
            S[half] += filled[part].T @ filled[part]
            N[half] += mask[part].T @ mask[part]
    whole = _links(S.sum(axis=0), N.sum(axis=0))
    if whole is None:
        return None
    n, links = float(np.median(N.sum(axis=0))), [_links(*sums) for sums in zip(S, N, strict=True)]
    if links[0] is not None and links[1] is not None:
        # Fisher's z of n/2 rows each differ by 4/n; more where neighbours in time tell the same, or relations change.
        n = min(n, 4.0 / max(float(np.mean((links[0] - links[1]) ** 2)), 1e-300))
    return np.concatenate([np.log(spread) / 2, whole]), n


def _links(S: FloatArray, N: FloatArray) -> FloatArray | None:
    """Fisher's z of the correlations of products (q, q) and their numbers; None if some are few or nothing varies."""
    if N.min() < 8 or np.any(np.diag(S) <= 0):
        return None
    C = S / N
    root = np.sqrt(np.diag(C))
    return fisher_z((C / np.outer(root, root))[np.triu_indices(len(S), 1)])


def fisher_z(r: FloatArray) -> FloatArray:
    """Fisher's z of correlations; those beyond .995 count as .995."""
    return np.asarray(np.arctanh(np.clip(r, -0.995, 0.995)))


MOST_CYCLES = 4
_FEWEST_TURNS = 4.0
"""A recording must see a cycle so many times: slower ones cannot be told from trends."""
_FASTEST = 3.0
_CYCLE_ERRORS = 6.0
_NEIGHBOURS = 8
_SLOW_TURNS, _SLOW_RATIO = 8.0, 8.0
"""What turns less often in a recording must exceed its neighbours so many times: weather of some days has humps, too."""


def cycles_in(
    spectrum: FloatArray, n_spectra: float, length: float, *, clear: bool = False
) -> tuple[float, ...]:
    """Return periods in rows, the strongest first, at most four.

    Parameters
    ----------
    spectrum
        Mean of periodograms at evenly spaced frequencies from 0 to half a turn per row.
    n_spectra, length
        How many were averaged, and the mean length of a recording: peaks are as wide as one over it.
    clear
        Whether only clear cycles count, which will be said and subtracted: slow ones and rough spectra need more.

    A peak must exceed the medians of its neighbours, a few widths to either side, by six standard errors: those of
    independent spectra or, if larger, those that the neighbours show. Noise with a memory or with resonances has slopes and
    broad hills, where the neighbours of one side are as high.
    """
    n = len(spectrum)
    width = max(1.0, 2.0 * (n - 1) / max(length, 2.0))
    lowest = int(np.ceil(_FEWEST_TURNS * width))
    highest = int(2 * (n - 1) / _FASTEST)
    found: list[tuple[float, float]] = []
    # First by a window that lies within the one below, however the ends of that are rounded.
    reach = int(1.5 * width - 0.5)
    nearby = sliding_window_view(np.pad(spectrum, reach, mode="edge"), 2 * reach + 1).max(axis=1)
    peaks = spectrum[lowest : highest + 1] >= nearby[lowest : highest + 1]
    for k in (lowest + np.flatnonzero(peaks)).tolist():
        low, high = round(max(k - 1.5 * width, 0)), round(k + 1.5 * width)
        if spectrum[k] < spectrum[max(low, 0) : high + 1].max():
            continue
        far = round(_NEIGHBOURS * width)
        sides = spectrum[max(low - far, round(width)) : low], spectrum[high + 1 : high + 1 + far]
        ordered = [np.sort(side) for side in sides if len(side)]
        base = max(float(side[(len(side) - 1) // 2] + side[len(side) // 2]) / 2 for side in ordered)
        ratio = spectrum[k] / base
        # Where sites or variables see the same noise the mean of their spectra is as rough as few of them.
        rough = max(_roughness(side, width) for side in sides if len(side)) if clear else 0.0
        errors = _CYCLE_ERRORS * max(1.0 / np.sqrt(n_spectra), rough)
        # Slow ones have neighbours on one side only, and noise with a memory falls off there.
        if ratio > max(1.0 + errors, _SLOW_RATIO if clear and k < _SLOW_TURNS * width else 0.0):
            found.append((float(ratio), _period(spectrum, k, width)))
    found.sort(reverse=True)
    return tuple(period for _, period in found[:MOST_CYCLES])


def _roughness(side: FloatArray, width: float) -> float:
    """Standard deviation of a stretch of a spectrum over its level, from steps of a width: slopes do not count."""
    step = max(round(width), 1)
    if len(side) < 4 * step:
        return 0.0
    steps = np.abs(np.diff(np.log(np.maximum(side[::step], 1e-300))))
    return float(np.median(steps) / (np.sqrt(2.0) * _GAUSSIAN_MEDIAN))


def _period(spectrum: FloatArray, k: int, width: float) -> float:
    """The period of a peak, between the frequencies of the grid; a whole number of rows if that is as likely.

    A cycle seen in a recording has the power ``sinc(distance / width)^2`` around its frequency. Where this fits the peak and
    the frequencies half a width to either side best, there it is. A parabola would end too near to the grid.
    """
    step = max(1, round(width / 2))
    seen = spectrum[[k - step, k, k + step]]
    seen = np.maximum(seen - min(seen), 0.0) if step > 1 else seen
    places = np.linspace(-0.75, 0.75, 301) * step
    power = np.sinc((places[:, None] - np.array([-step, 0.0, step])) / width) ** 2
    fits = (power @ seen) / np.sqrt((power**2).sum(axis=1))
    place = k + float(places[fits.argmax()])
    turn = 2.0 * (len(spectrum) - 1)
    period, whole = turn / place, round(turn / place)
    # Frequencies closer than a small part of a peak's width cannot be told apart, and clocks have whole numbers of rows.
    return float(whole) if whole >= 2 and abs(turn / whole - place) < 0.25 * width else float(period)


SMALL_MEAN = 10.0
"""Counts of a larger mean are close to a line with Gaussian noise: Poisson(10) has a skewness of 0.3."""
SPREAD = 0.75
"""Whole numbers whose variance is a smaller share of their mean are rather codes or rounded measurements than counts."""
_FIRST_ROWS = 16
_SAME = 1e-9


def objections(values: FloatArray) -> BoolArray:
    """(2, d) whether some cell of rows (n, d) is no whole number from 0 on, and whether some is neither 0 nor 1."""
    found = _objects(values[:_FIRST_ROWS])
    # Most columns are numbers on a line, which shows at once.
    open_ = np.flatnonzero(~found[0])
    if len(open_) and len(values) > _FIRST_ROWS:
        found[:, open_] |= _objects(values[_FIRST_ROWS:, open_])
    return found


def _objects(values: FloatArray) -> BoolArray:
    known = ~np.isnan(values)
    with np.errstate(invalid="ignore"):
        other = (values < 0) | (values != np.floor(values))
        many = other | (values > 1)
    return np.asarray([(other & known).any(axis=0), (many & known).any(axis=0)])


def looks_binary(mean: FloatArray, variance: FloatArray) -> BoolArray:
    """(d,) whether values of these means and variances are 0 and 1: x = x^2 in every row, so variance = mean (1 - mean)."""
    expected = mean * (1.0 - mean)
    return np.asarray((expected > 0) & (np.abs(variance - expected) <= _SAME * expected))


SLOWER = "slower-rows"
"""Code of the finding that a site's rows are farther apart in time than those of the others."""
FEWEST_SITES = 4
"""With fewer sites nobody can say who is the odd one."""
_UNITS_FACTOR = 3.0
_UNITS_Z = 6.0
_CORRELATIONS_Z2 = 3.0
_CORRELATIONS_SIZE, _FEW_ROWS = 0.15, 25.0
_LEAST_SHARE = 0.3
"""Of what the others have in common. A site that shares nothing with them differs by twice that, honest ones by less than
this, whatever else is wrong with them."""
_COLUMNS_Z2 = 5.0
_IS_EXCHANGED = 0.4
_SLOWER_ERRORS, _SLOWER_SHARE = 4.5, 0.45
"""A site's rows are farther apart than those of others if what they remember has faded by so many standard errors, and by so
much of what leaving out every second row takes."""
_MIXED = 0.9
"""Variance of Fisher's z over sites that two rates never make."""
_NEARLY = 1 - 1e-9


def compared(
    own: FloatArray,
    n: float,
    total: FloatArray,
    squares: FloatArray,
    n_sites: float,
    variables: Sequence[str],
) -> tuple[Finding, ...]:
    """What of a site's profile from `n` rows does not fit the sums over `n_sites` sites, itself among them; for its owner.

    Nothing if there are few sites; a site with findings had better stay out of the sums.
    """
    if n_sites < FEWEST_SITES:
        return ()
    d, others = len(variables), n_sites - 1
    mean = (total - own) / others
    spread = np.maximum((squares - own**2) / others - mean**2, 0.0) * others / (others - 1)
    scales, links = slice(0, d), slice(d, len(own))
    variance = np.empty(len(own))
    for part, sampling in ((scales, 0.5 / n), (links, 1.0 / n)):
        # Few sites tell little about one number's spread, so that of its kind is looked at, too.
        common = max(float(spread[part].mean()), sampling)
        variance[part] = (np.maximum(spread[part], sampling) + common) / 2 * (1 + 1 / others)
    z2 = (own - mean) ** 2 / variance
    factors = np.exp(own[scales] - mean[scales])
    # A site where everything varies more has more noise, or one gain for all: that is not one column in other units.
    usual = float(np.median(factors)) if d > 2 else 1.0
    findings = [
        Finding("other-units", "warning", {"factor": float(factors[i])}, (variables[int(i)],))
        for i in np.flatnonzero(z2[scales] > _UNITS_Z**2)
        if max(factors[i] / usual, usual / factors[i]) > _UNITS_FACTOR
    ]
    if len(own) > d:
        distance = float(z2[links].mean())
        size = float(np.sqrt(np.mean((own[links] - mean[links]) ** 2)))
        # What sampling alone makes is taken off both: 1 of the distance, and of their mean one part in `others`.
        common = float((mean[links] ** 2 / variance[links]).mean()) - 1 / others
        # Of few rows the distance varies more.
        is_far = distance > _CORRELATIONS_Z2 * (1 + _FEW_ROWS / n) and distance - 1 > _LEAST_SHARE * common
        is_other = is_far and size > _CORRELATIONS_SIZE
        here, there = _matrix(own[links]), _matrix(mean[links])
        moved = _exchanged(here, there, _matrix(variance[links]), d)
        if moved:
            pairs = [[variables[a], variables[b]] for a, b in moved]
            findings.append(Finding("mixed-columns", "warning", {"behaves_like": pairs}))
        elif (share := _faded(here, there, _matrix(spread[links]), n, others, d)) > 0:
            findings.append(Finding(SLOWER, "warning", {"share": share}))
        elif is_other:
            findings.append(Finding("other-relations", "warning", {"distance": distance}))
    return tuple(findings)


def _faded(here: FloatArray, there: FloatArray, spread: FloatArray, n: float, others: float, d: int) -> float:
    """How far a site's correlations with the row before have faded, as those of every second row have; 0 if not clearly.

    `here` and `there` are Fisher's z (q, q) of the site and in the mean of the others, whose variances are `spread`. With C0
    within a row and C1 with the row before, every second row has C2 = P P C0 in place of C1, P = C1 inv(C0), and the same C0.
    The site is looked at along C1 - C2 of the others: 0 is where they are, 1 where every second of their rows is. Where some
    of them are slow, too, it is less far than 1 from them. Across this direction, and within a row, it must be as they are,
    and they like each other.
    """
    if len(here) < 2 * d:
        return 0.0
    now, before, pairs = slice(d), slice(d, 2 * d), np.triu_indices(d, 1)
    usual = max(float(spread[now, now][pairs].mean()) if d > 1 else 0.0, 1.0 / n)
    error, most = usual * (1 + 1 / others), _CORRELATIONS_Z2 * (1 + _FEW_ROWS / n)
    is_other = d > 1 and np.mean((here - there)[now, now][pairs] ** 2) > most * error
    # One of the others may be constant: its rounding errors remember everything.
    is_mixed = usual > most / n or np.diagonal(spread[now, before]).max() > _MIXED
    if is_other or is_mixed:
        return 0.0
    C0, C1 = np.tanh(there[now, now]) + np.eye(d), np.tanh(there[now, before])
    P = C1 @ np.linalg.pinv(C0)
    way = C1 - np.clip(P @ P @ C0, -1.0, 1.0)
    length, step = float(np.sqrt((way**2).sum())), C1 - np.tanh(here[now, before])
    if not length:
        return 0.0
    # The errors of the others' mean are part of both the way and the step.
    along = (float((way * step).sum()) - d * d * usual / others) / length
    across = float((step**2).sum()) - along**2
    is_clear = along > _SLOWER_ERRORS * np.sqrt(error) and along > _SLOWER_SHARE * length
    return along / length if is_clear and across < along**2 + most * error * d * d else 0.0


def _exchanged(here: FloatArray, there: FloatArray, variance: FloatArray, d: int) -> list[tuple[int, int]]:
    """The columns whose exchange explains a site's correlations, each with the one that it behaves like; none if none do."""
    lags = d * np.arange(len(here) // d)[:, None]
    weight = 1.0 / np.where(variance > 0, variance, np.inf)

    def misfit(order: list[int], looked_at: Sequence[int]) -> float:
        """Mean square of differences of the correlations of some columns, if columns were in this order."""
        index, rows = (np.array(order) + lags).ravel(), (np.array(looked_at) + lags).ravel()
        difference = here[np.ix_(index[rows], index)] - there[rows]
        return float((difference**2 * weight[rows]).mean())

    order = list(range(d))
    for _ in range(d):
        best, found = _IS_EXCHANGED, None
        # Two columns do not fit only if one of them does not: all but a few pairs need no look of their own.
        alone = [misfit(order, (i,)) for i in range(d)]
        for i, j in combinations(range(d), 2):
            if alone[i] + alone[j] < _NEARLY * 2 * _COLUMNS_Z2:
                continue
            before = misfit(order, (i, j))
            if before < _COLUMNS_Z2:
                continue
            other = order.copy()
            other[i], other[j] = other[j], other[i]
            ratio = misfit(other, (i, j)) / before
            if ratio < best:
                best, found = ratio, other
        if found is None:
            break
        order = found
    return [(order[i], i) for i in range(d) if order[i] != i]


def _matrix(upper: FloatArray) -> FloatArray:
    q = round((1 + np.sqrt(1 + 8 * len(upper))) / 2)
    whole = np.zeros((q, q))
    whole[np.triu_indices(q, 1)] = upper
    return np.asarray(whole + whole.T)
