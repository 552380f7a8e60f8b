"""The snippets of the page about extending do what the page says."""

import re
from pathlib import Path

import numpy as np

from feddbn.data import read_sites
from feddbn.federation.protocol.site import Site
from feddbn.federation.protocol.task import run_program
from feddbn.runtime.simulated.in_process import InProcessFederation

PAGE = (Path(__file__).parents[2] / "docs" / "extending.md").read_text(encoding="utf-8")


def snippet(section):
    text = PAGE.split(f"## {section}\n")[1]
    return re.search(r"```python\n(.*?)```", text, re.S)[1]


def test_a_site_task_is_asked_and_its_answers_add_up():
    values = {name: np.random.default_rng(k).normal(size=(50, 2)) for k, name in enumerate("ab")}
    federation = InProcessFederation({name: Site(name, data) for name, data in read_sites(values).items()})
    names = {"__name__": "snippet"}
    exec(snippet("A site task"), names)
    found = run_program(names["share_above"]([0.0, 1.0]), federation)
    np.testing.assert_array_equal(found, (np.concatenate(list(values.values())) > [0.0, 1.0]).sum(axis=0))


def test_a_design_takes_a_trend_off_every_recording():
    t = np.arange(60.0)
    rng = np.random.default_rng(0)
    levels = rng.normal(size=(60, 2))
    data = {
        kind: read_sites({"s": [levels + slope * t[:, None]]})["s"]
        for kind, slope in (("flat", 0.0), ("trend", 3.0))
    }
    found = {}
    for kind, site in data.items():
        names = {"site": site}
        exec(snippet("A design"), names)
        found[kind] = names["gram"]
    np.testing.assert_allclose(found["flat"].scatter, found["trend"].scatter, atol=1e-6)
    assert found["flat"].n == 58
    assert found["flat"].n_nuisance == 2
