"""What the numbers of an answer are, by the question alone."""

import numpy as np
import pytest

import feddbn
from feddbn.core.statistics.moments import symmetric
from feddbn.data import read_sites
from feddbn.errors import ProtocolError
from feddbn.federation.protocol.site import Site, answer_of_one, site_task
from feddbn.federation.protocol.task import part_length, parts_of
from feddbn.federation.sums.gram import GramQuestion
from feddbn.federation.sums.survey import SurveyQuestion

NAMES = ("x0", "x1", "x2")
TRIED = {"try_degrees": (0, 1), "try_cycles": (0, 1), "try_periods": (7.0,)}
RESAMPLED = {"resampling": "bootstrap", "first": -1, "stop": 3, "block_rule": "given", "block_length": 5}
FORMS = {
    "rows": {},
    "about an origin": {"origin": np.arange(6.0)},
    "off means": {"center": "recording"},
    "tried": TRIED,
    "gains": {"log_scales": np.zeros(3)},
    "shape and known": {"shape": True, "known": True, **TRIED},
    "functions": {"functions": "curve", "function_origin": np.zeros(3), "function_scale": np.ones(3)},
    "kinds": {"kinds": ("continuous",) * 3, "try_degrees": (0,), "try_cycles": (0,)},
    "diagonal": {"diagonal": True},
    "pairs": {"pairs": True, **TRIED},
    "blocks": {"n_blocks": 3, "block_rows": 32},
    "resamples": RESAMPLED,
}


def answered(**more):
    sites = read_sites(feddbn.simulate(d=3, n_lags=1, n_sites=1, n_samples=80, random_state=1).sites)
    question = GramQuestion(n_lags=1, variables=NAMES, **more)
    here = Site("a", next(iter(sites.values()))).here
    return question, answer_of_one(site_task(question.name), here, question)[1]


@pytest.mark.parametrize("form", FORMS)
def test_parts_are_those_of_the_answer(form):
    question, vector = answered(**FORMS[form])
    parts = parts_of(question, len(vector))
    assert sum(map(part_length, parts)) == len(vector)
    start = 0
    for kind, size in parts:
        stop = start + part_length((kind, size))
        if kind != "numbers":
            matrix = symmetric(vector[start:stop], size + (kind == "gram"))
            assert np.linalg.eigvalsh(matrix).min() > -1e-9 * np.trace(matrix)
        start = stop


def test_forms_have_the_parts_they_should():
    assert answered()[0].parts == (("gram", 6),)
    tried = [("gram", 6), *[("numbers", 1), ("scatter", 6)] * 2, ("numbers", 1)]
    assert answered(**TRIED)[0].parts == tuple(tried)
    assert answered(**RESAMPLED)[0].parts == (("gram", 6),) * 4


def test_an_answer_of_another_length_is_refused():
    question, vector = answered()
    with pytest.raises(ProtocolError) as caught:
        parts_of(question, len(vector) + 1)
    assert caught.value.code == "different-lengths"
    assert parts_of(SurveyQuestion(n_lags=1, variables=NAMES), 12) == (("numbers", 12),)
