"""Which sums together show too few sites: against brute force over combinations, and what a register does about it."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feddbn.errors import AggregationError
from feddbn.privacy.register import MemoryShelf, Register, member, shown_by
from support.combinations import by_brute_force


def of(*names, data="1"):
    return frozenset(f"{name}:{data}" for name in names)


members = st.sets(st.tuples(st.sampled_from("abcdefg"), st.sampled_from("12")), min_size=3).map(
    lambda chosen: frozenset(f"{name}:{data}" for name, data in dict(chosen).items())
)


@given(st.lists(members, min_size=1, max_size=5), st.integers(2, 4))
@settings(deadline=None, max_examples=150)
def test_what_is_shown_is_what_brute_force_finds(sets, min_sites):
    assert bool(shown_by(list(dict.fromkeys(sets)), min_sites)) == by_brute_force(sets, min_sites)


def test_three_sums_that_differ_by_three_sites_each_show_one():
    sets = [of(*"abc"), of(*"def"), of(*"abcdefg")]
    assert not any(shown_by(pair, 3) for pair in itertools.combinations(sets, 2))
    assert shown_by(sets, 3) == {"g"}


def test_new_rows_at_one_site_are_shown_and_at_three_sites_are_not():
    first = of(*"abcd")
    one = of("a", data="2") | of(*"bcd")
    three = of(*"abc", data="2") | of("d")
    assert shown_by([first, one], 3) == {"a"}
    assert not shown_by([first, three], 3)


def test_a_register_refuses_the_fourth_site_being_left_out_and_takes_the_same_sum_again():
    shelf = MemoryShelf()
    register = Register("1", shelf)
    register.admit(of(*"abcd"), (), 3)
    register.admit(of(*"abcd"), (), 3)
    with pytest.raises(AggregationError, match="together they would show fewer than 3 sites"):
        register.admit(of(*"abc"), (), 3)
    assert shelf.sets() == (of(*"abcd"),)
    # A later run of the same site reads what was kept, and what is refused is not.
    with pytest.raises(AggregationError, match="fewer than 3 sites"):
        Register("1", shelf).admit(of(*"abcde"), (), 3)
    Register("1", shelf).admit(of(*"abcdefg"), (), 3)


def test_sums_that_others_report_count():
    with pytest.raises(AggregationError, match="fewer than 3 sites"):
        Register("1").admit(of(*"abcdefg"), [of(*"abc"), of(*"def")], 3)


def test_noise_covers_every_set_and_tells_nobody():
    shelf = MemoryShelf()
    Register("1", shelf).admit(of(*"abcd"), (), 3)
    noisy = Register("1", shelf, noisy=True)
    noisy.admit(of(*"abc"), [of(*"abcd")], 3)
    assert shelf.sets() == (of(*"abcd"),)
    assert noisy.told() == ()


def test_too_many_different_sums_are_refused():
    rng = np.random.default_rng(0)
    sites = [f"s{i}" for i in range(60)]
    sets = [of(*rng.choice(sites, 30, replace=False)) for _ in range(12)]
    with pytest.raises(AggregationError, match="too many different sums to tell"):
        shown_by(sets, 6)


def test_members_hide_names_and_tell_data_apart():
    assert member(b"k" * 32, "1") != member(b"k" * 32, "2")
    assert member(b"k" * 32, "1").partition(":")[0] == member(b"k" * 32, "2").partition(":")[0]
    assert member(b"k" * 32, "1") != member(b"j" * 32, "1")
