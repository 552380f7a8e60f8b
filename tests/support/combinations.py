"""What sums together show, by exact arithmetic over every small group of sites."""

import itertools
from fractions import Fraction


def rank(rows):
    """Exact rank by elimination."""
    rows = [[Fraction(int(x)) for x in row] for row in rows]
    found = 0
    for column in range(len(rows[0]) if rows else 0):
        pivot = next((r for r in range(found, len(rows)) if rows[r][column]), None)
        if pivot is None:
            continue
        rows[found], rows[pivot] = rows[pivot], rows[found]
        for r in range(found + 1, len(rows)):
            factor = rows[r][column] / rows[found][column]
            rows[r] = [a - factor * b for a, b in zip(rows[r], rows[found], strict=True)]
        found += 1
    return found


def by_brute_force(sets, min_sites):
    """Whether a combination is zero outside fewer than `min_sites` sites and not zero: every group of sites is tried."""
    columns = sorted(frozenset().union(*sets))
    sites = sorted({one.partition(":")[0] for one in columns})
    table = [[one in members for one in columns] for members in sets]
    for few in itertools.chain.from_iterable(itertools.combinations(sites, n) for n in range(1, min_sites)):
        outside = [k for k, one in enumerate(columns) if one.partition(":")[0] not in few]
        if rank([[row[k] for k in outside] for row in table]) < rank(table):
            return True
    return False


def adds_something_small(new, known, min_sites):
    """Whether a combination that `new` is part of is zero outside fewer than `min_sites` sites, and not zero."""
    others = [members for members in dict.fromkeys(known) if members != new]
    columns = sorted(new.union(*others))
    sites = sorted({one.partition(":")[0] for one in columns})
    table = [[one in members for one in columns] for members in (*others, new)]

    def adds_nothing(rows):
        return rank(rows) == rank(rows[:-1])

    if adds_nothing(table):
        return False
    for few in itertools.chain.from_iterable(itertools.combinations(sites, n) for n in range(1, min_sites)):
        outside = [k for k, one in enumerate(columns) if one.partition(":")[0] not in few]
        if adds_nothing([[row[k] for k in outside] for row in table]):
            return True
    return False
