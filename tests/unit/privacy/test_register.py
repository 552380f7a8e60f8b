"""Which sums together show too few sites: against brute force over combinations, and what a register does about it."""

import hashlib
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from feddbn.errors import AggregationError, ProtocolError
from feddbn.privacy import register
from feddbn.privacy.register import (
    Entry,
    MemoryShelf,
    Register,
    check_data,
    member,
    must_differ_by,
    read_entries,
    shown_by,
)
from support.combinations import adds_something_small, by_brute_force
from support.saying import refused

pytestmark = pytest.mark.promise


def site(name):
    return hashlib.sha256(name.encode()).hexdigest()[:16]


def of(*names, data="1"):
    return frozenset(f"{site(name)}:{data}" for name in names)


members = st.sets(st.tuples(st.sampled_from("abcdefg"), st.sampled_from("12")), min_size=3).map(
    lambda chosen: frozenset(f"{name}:{data}" for name, data in dict(chosen).items())
)


@given(st.lists(members, min_size=1, max_size=5), st.integers(2, 4))
def test_what_is_shown_is_what_brute_force_finds(sets, min_sites):
    *known, new = sets
    whole = adds_something_small(new, known, min_sites)
    sites = {one.partition(":")[0] for one in new}
    cut = [frozenset(one for one in other if one.partition(":")[0] in sites) for other in known]
    alone = adds_something_small(new, [other for other in cut if other], min_sites)
    assert bool(shown_by(new, known, min_sites)) == (whole or alone)


def test_a_known_set_that_equals_the_new_one_without_its_outsiders_excuses_nothing():
    known = [of("a", "c"), of(*"abcd")]
    assert shown_by(of("a", "b"), known, 2) == {site("b")}


def test_three_sums_that_differ_by_three_sites_each_show_one():
    *known, new = [of(*"abc"), of(*"def"), of(*"abcdefg")]
    assert not any(shown_by(new, [one], 3) for one in known)
    assert shown_by(new, known, 3) == {site("g")}


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_a_chain_of_sums_is_stopped_in_every_order_by_what_its_sites_know(order):
    # The first and the second differ by three sites, and so on; all three together show x.
    sums = [of(*"def"), of(*"abcdef"), of(*"abcx")]
    shelves = {name: MemoryShelf() for name in "abcdefx"}
    opened = 0
    for number in order:
        members = [name for name in shelves if f"{site(name)}:1" in sums[number]]
        registers = {name: Register("1", shelves[name]) for name in members}
        told = [entry for register in registers.values() for entry in register.tell()]
        try:
            for register in registers.values():
                register.admit(Entry(sums[number]), told, 3)
            opened += 1
        except AggregationError:
            continue
    assert opened == 2


def test_a_sum_of_another_run_since_the_keys_were_agreed_on_is_noticed():
    shelf = MemoryShelf()
    slow, quick = register_on(shelf), register_on(shelf)
    quick.admit(Entry(of(*"abc")), (), 3)
    with refused(AggregationError, code="other-run"):
        slow.admit(Entry(of(*"abcdefg")), (), 3)
    slow.tell()
    slow.admit(Entry(of(*"abcdefg")), (), 3)


def test_new_rows_at_one_site_are_shown_and_at_three_sites_are_not():
    first = of(*"abcd")
    one = of("a", data="2") | of(*"bcd")
    three = of(*"abc", data="2") | of("d")
    assert shown_by(one, [first], 3) == {site("a")}
    assert not shown_by(three, [first], 3)


def register_on(shelf):
    """A site that has just told the others what it knows."""
    register = Register("1", shelf)
    register.tell()
    return register


def test_a_register_refuses_the_fourth_site_being_left_out_and_takes_the_same_sum_again():
    shelf = MemoryShelf()
    register = register_on(shelf)
    register.admit(Entry(of(*"abcd")), (), 3)
    register.admit(Entry(of(*"abcd")), (), 3)
    with refused(AggregationError, 3, code="shows-few-sites"):
        register.admit(Entry(of(*"abc")), (), 3)
    assert shelf.entries() == (Entry(of(*"abcd")),)
    # A later run of the same site reads what was kept, and what is refused is not.
    for names in ("abcde", "abcdefg"):
        with refused(AggregationError, code="shows-few-sites"):
            register_on(shelf).admit(Entry(of(*names)), (), 3)
    register_on(shelf).admit(Entry(of(*"abcdefgh")), (), 3)


def test_sums_that_others_report_count_and_are_kept():
    told = [Entry(of(*"abc")), Entry(of(*"def"))]
    with refused(AggregationError, code="shows-few-sites"):
        register_on(MemoryShelf()).admit(Entry(of(*"abcdefg")), told, 3)
    shelf = MemoryShelf()
    register_on(shelf).admit(Entry(of(*"abcdef")), told, 3)
    assert {entry.members for entry in shelf.entries()} == {of(*"abc"), of(*"def"), of(*"abcdef")}


def permitted_families(k, depth, min_sites):
    """Every sequence of sums, up to renaming sites, that registers permit whose sites tell each other what they know."""
    names = "abcdefgh"[:k]
    subsets = [
        frozenset(chosen) for n in range(min_sites, k + 1) for chosen in itertools.combinations(names, n)
    ]

    def go(sums, shelves):
        seen = set()
        for new in subsets if len(sums) < depth else ():
            shape = tuple(sorted(tuple(name in one for one in (*sums, new)) for name in names))
            if new in sums or shape in seen:
                continue
            seen.add(shape)
            after = {name: MemoryShelf() for name in names}
            for name in names:
                after[name].add(shelves[name].entries())
            registers = {name: Register("1", after[name]) for name in new}
            told = [entry for one in registers.values() for entry in one.tell()]
            try:
                for name, one in registers.items():
                    one.admit(signed(sorted(new), name), told, min_sites)
            except AggregationError:
                continue
            yield (*sums, new)
            yield from go((*sums, new), after)

    return go((), {name: MemoryShelf() for name in names})


@pytest.mark.parametrize(("k", "depth", "min_sites", "n"), [(5, 5, 2, 15), (6, 4, 3, 12), (7, 3, 3, 24)])
def test_no_sequence_of_permitted_sums_shows_fewer_sites_than_any_of_them_asks_for(k, depth, min_sites, n):
    """By exact elimination over every small group of sites; (7, 3, 3) has {a..g}, {a, b, c}, {d, e, f} among those tried."""
    families = list(permitted_families(k, depth, min_sites))
    assert len(families) == n
    for sums in families:
        assert not by_brute_force([of(*one) for one in sums], min_sites), sums


def test_two_sums_that_never_hear_of_each_other_do_not_show_the_site_in_neither():
    """{a..g} - {a, b, c} - {d, e, f} is g, and no site is in both of the smaller sums."""
    for names in ("abc", "def"):
        register = register_on(MemoryShelf())
        register.admit(Entry(of(*"abcdefg")), (), 3)
        with refused(AggregationError, code="shows-few-sites"):
            register.admit(Entry(of(*names)), (), 3)


def test_a_consortium_grows_by_three_and_never_by_one():
    """One joins, one joins, one joins: each step is refused, and so is all of them against the pilot until three are new."""
    pilot = [frozenset(f"{name}:" for name in "abc")]
    steps = ["abcd", "abcde", "abcdef", "abcdefg"]
    found = [must_differ_by(frozenset(f"{name}:" for name in one), pilot, 3) for one in steps]
    assert found == [3, 3, 0, 0]
    # Once three have joined, one more is one more; of eleven, three may work with the server, so five must differ.
    grown = [*pilot, frozenset(f"{name}:" for name in "abcdef")]
    found = [
        must_differ_by(frozenset(f"{name}:" for name in "abcdefghijk"[:n]), grown, 3) for n in (7, 9, 10, 11)
    ]
    assert found == [4, 4, 5, 0]


def test_differences_show_two_honest_sites_if_less_than_a_third_are_not():
    """F15: two of seven may work with the server. More than half stay, or three leave, of whom no smaller sum is made."""
    for n, least in ((3, 3), (6, 3), (7, 4), (10, 5), (13, 6)):
        names = [f"s{k}" for k in range(n)]
        for left in range(3, n - 2):
            register = register_on(MemoryShelf())
            register.admit(Entry(of(*names)), (), 3)
            may = n - left >= least and (2 * left > n or n - left == 3)
            try:
                register.admit(Entry(of(*names[:left])), (), 3)
                assert may
            except AggregationError:
                assert not may


def signed(names, by):
    return Entry(of(*names), site(by), "00")


def test_a_sum_that_one_other_site_tells_of_counts_where_that_site_is():
    """F10: one participant made up sums and kept all others from adding up their data."""
    new = signed("abcdef", "a")
    lie = signed("abcdg", "g")
    register_on(shelf := MemoryShelf()).admit(new, [lie], 3)
    assert set(shelf.entries()) == {new, lie}
    # A second of its members says so, or the one that does takes part.
    with refused(AggregationError, code="shows-few-sites"):
        register_on(MemoryShelf()).admit(new, [lie, signed("abcdg", "b")], 3)
    with refused(AggregationError, code="shows-few-sites"):
        register_on(MemoryShelf()).admit(new, [signed("abcdg", "b")], 3)
    # What one has told stays one's own word, however often.
    register_on(shelf).admit(new, [lie], 3)
    assert len(shelf.entries()) == 2


def test_nobody_fills_the_shelf_of_others_and_unrelated_sums_do_not_count(monkeypatch):
    monkeypatch.setattr(register, "MOST_SETS", 5)
    shelf = MemoryShelf()
    for night in range(20):
        new = Entry(of(*"abc", data=str(night)), site("a"), "00")
        lies = [Entry(of(*"gxyz", data=f"{night}{k}"), site("g"), "00") for k in range(3)]
        own = register_on(shelf)
        own.admit(new, lies, 3)
    assert len([entry for entry in shelf.entries() if entry.signer == site("g")]) == 5
    assert len(Register("1", shelf).tell()) == 5


def test_noise_covers_every_set_and_tells_nobody():
    shelf = MemoryShelf()
    register_on(shelf).admit(Entry(of(*"abcd")), (), 3)
    noisy = Register("1", shelf, noisy=True)
    assert noisy.tell() == ()
    noisy.admit(Entry(of(*"abc")), [Entry(of(*"abcd"))], 3)
    assert shelf.entries() == (Entry(of(*"abcd")),)


def test_a_register_in_a_message_is_checked_before_anything_is_kept():
    good = Entry(of(*"abc"), site("a"), "00")
    assert read_entries([good.listed()]) == (good,)
    many = [f"{k:016x}:" for k in range(256)]
    for value in (
        "x",
        [["abc"]],
        [[["abc"], "", ""]],
        [[many, "", ""]],
        [[[], "", ""]],
        [good.listed()] * 201,
    ):
        with pytest.raises(ProtocolError):
            read_entries(value)
    for value in (None, "x" * 5, "a" * 17):
        with pytest.raises(ProtocolError, match="at most 16 hexadecimal digits"):
            check_data(value)


def test_too_many_different_sums_are_refused():
    rng = np.random.default_rng(0)
    sites = [f"s{i}" for i in range(60)]
    sets = [of(*rng.choice(sites, 30, replace=False)) for _ in range(12)]
    with refused(AggregationError, code="too-many-sums"):
        shown_by(sets[0], sets[1:], 6)


def test_members_hide_names_and_tell_data_apart():
    assert member(b"k" * 32, "1") != member(b"k" * 32, "2")
    assert member(b"k" * 32, "1").partition(":")[0] == member(b"k" * 32, "2").partition(":")[0]
    assert member(b"k" * 32, "1") != member(b"j" * 32, "1")
