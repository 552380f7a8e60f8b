import numpy as np

from feddbn.experiments.cells import expand, hashed_seed, in_order
from feddbn.experiments.config import load_experiment
from feddbn.experiments.fits import draw


def test_a_grid_is_the_product_of_its_axes(tiny):
    cells = expand(tiny)
    assert len(cells) == 2 * 2 * 3 * 2
    assert len({cell.id for cell in cells}) == len(cells)
    assert len(expand(tiny, seeds=1)) == 2 * 2 * 1 * 2
    assert len(expand(tiny, quick=True)) == 2


def test_all_methods_see_the_same_data_and_different_axes_see_different_data(tiny):
    by_axes: dict[str, set[float]] = {}
    for cell in expand(tiny):
        first = next(iter(draw(cell).sites.values()))[0]
        by_axes.setdefault(str(cell.data_axes()), set()).add(float(np.asarray(first)[0, 0]))
    assert all(len(values) == 1 for values in by_axes.values())
    assert len(set.union(*by_axes.values())) == len(by_axes)


def test_a_seed_is_a_hash_of_named_axes_whatever_their_order():
    assert hashed_seed({"d": 5, "seed": 0}) == hashed_seed({"seed": 0, "d": 5})
    assert hashed_seed({"d": 5, "seed": 0}) != hashed_seed({"d": 0, "seed": 5})
    # Fixed for all times: recorded rows rest on it.
    assert hashed_seed({"d": 5, "seed": 0}) == 634371294515837468


def test_the_number_of_participants_does_not_change_the_data():
    cells = expand(load_experiment("partial-participation"), seeds=1)
    assert len({hashed_seed(cell.data_axes()) for cell in cells}) == 2  # one per protocol
    assert len({cell.id for cell in cells}) == len(cells)


def test_identity_depends_on_settings_not_on_titles(tiny):
    retold = tiny.model_copy(update={"title": "Other", "commentary": "Other"})
    assert [a.id for a in expand(tiny)] == [b.id for b in expand(retold)]
    other = tiny.model_copy(update={"protocols": ("strong",)})
    assert {c.id for c in expand(other)} < {c.id for c in expand(tiny)}


def test_cheap_cells_and_low_seeds_come_first_and_doubles_once(tiny):
    cells = expand(tiny)
    ordered = in_order([*cells, *cells])
    assert len(ordered) == len(cells)
    keys = [cell.cost * (1 + cell.seed) for cell in ordered]
    assert keys == sorted(keys)


def test_real_data_have_one_seed_and_joint_methods_one_cell():
    cells = expand(load_experiment("dream4"), seeds=10)
    assert {cell.seed for cell in cells} == {0}
    assert sum(cell.method == "fdbnl-d" for cell in cells) == 1
    assert sum(cell.method == "fdbnl-paper" for cell in cells) == 5
