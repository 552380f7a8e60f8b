"""Studies are tried out up to their first question: what cannot be is refused before a site is asked."""

import pytest

from feddbn.errors import ParameterError
from feddbn.federation.protocol.study import Study
from feddbn.methods import studies  # noqa: F401 (registers the methods)
from feddbn.runtime.deployed.conduct import rehearse, run_study
from feddbn.runtime.deployed.coordinator import Coordinator
from support.faults import MemoryJournal

MASKED = {"secure_aggregation": True}


def study(method="oneshot", parameters=None, **more):
    values = {"name": "s", "method": method, "variables": ("u", "v"), "sites": ("a", "b", "c"), **more}
    return Study.model_validate({**values, "parameters": parameters or {}})


@pytest.mark.parametrize(
    "plan",
    [
        *(
            study(method)
            for method in ("oneshot", "changing", "mixed", "fdbnl", "pfdbnl", "latent", "summary")
        ),
        study("pfdbnl", {"mu": "auto"}),
        study(goal="confidence"),
        study(goal="check"),
        study("fdbnl", goal="select"),
        study(goal="compare", compare={"against": ["fdbnl"]}),
        study(privacy={**MASKED, "epsilon": 1.0}),
        study(parameters={"prepare.exogenous": ["v"]}),
    ],
)
def test_a_study_that_can_be_passes(plan):
    rehearse(plan)


WRONG = [
    (study(parameters={"prepare.center": "sideways"}), "center='sideways'"),
    (study(parameters={"prepare.exogenous": ["w"]}), "'w'"),
    (study(goal="check", parameters={"prepare.exogenous": ["w"]}), "'w'"),
    (study(parameters={"forbidden_edges": [["u", "v", 7]]}), "lag 7"),
    (study("fdbnl", {"required_edges": [["u", "v", 0], ["v", "u", 0]]}), "cycle"),
    (study("pfdbnl", {"n_clusters": 9}), "n_clusters=9"),
    (study("pfdbnl", goal="select", select={"grid": {"mu": [0, 1]}}), "mu=0"),
    (study("changing", goal="check"), "'changing'"),
    (study(goal="check", privacy={**MASKED, "epsilon": 1.0}), "noise"),
]


@pytest.mark.parametrize(("plan", "said"), WRONG)
def test_a_study_that_cannot_be_is_refused_before_any_site_is_asked(plan, said):
    with pytest.raises(ParameterError, match=said):
        rehearse(plan)

    def exchange(messages):
        raise AssertionError("a site was asked")

    coordinator = Coordinator(exchange, plan, "run", MemoryJournal(), pause_s=0.0, opening_s=0.0)
    with pytest.raises(ParameterError, match=said):
        run_study(coordinator, plan)
