"""Every number that leaves rests on enough rows and enough sites, and a question means the same at every site."""

import numpy as np
import pytest

pytest.importorskip("cryptography")
from feddbn.errors import FeddbnError
from feddbn.federation.programs.pfdbnl.questions import StepQuestion
from feddbn.federation.protocol.task import Task, task_digest
from feddbn.privacy.secagg import Order
from support.hostile import Server, Sites
from support.saying import refused


def step(sites, round_number, C, **changed):
    """A round of PFDBNL as an honest server asks it."""
    q = 2 * len(sites.variables)
    given = {
        "n_lags": 1, "variables": sites.variables, "n_sites": len(sites.names), "run": 0, "weighting": "samples",
        "mu": 0.5, "lambda_w": 0.05, "lambda_a": 0.05, "w_threshold": 0.2, "a_threshold": 0.2, "n_slots": 1,
        "acyclicity": "expm", "average": "running", "mean_rows": 199.0, "origin": np.zeros(q), "scale": np.ones(q),
        "metric": np.ones(q), "stage": "warm", "serial": 0, "rho": 2.0, "rho1": 1.0, "rho2": 2.0, "alpha": None,
        "rho2_before": 2.0, "acyclic_steps": 0, "is_exact": False, "is_ordered": False, "in_series": True,
        "tol": 1e-3, "optimum": "order", "is_proven": False, "round": round_number, "C": C,
    }  # fmt: skip
    return StepQuestion(**(given | changed))


@pytest.fixture
def sites(tmp_path):
    """Four sites of other scales and means in a study of PFDBNL."""
    made = Sites(tmp_path, k=4, rows=200, seed=5)
    made.greet(made.study("pfdbnl"), "run")
    return made


def test_no_round_tells_one_site_to_go_on_and_the_others_to_begin_anew(sites):
    """F1: a list with an entry for each site did, and the others' parts cancelled (2.9e-15)."""
    C = np.random.default_rng(0).normal(size=(1, 6, 3))
    server = Server(sites, "run").keys()
    for extra in ({"counted": [-1, -1, 0, -1]}, {"sites": sites.names, "lags": [1] * 4}):
        task = Task(step(sites, 0, C))
        with refused(FeddbnError):
            server.sum(task.question, 0, params=task.fields()["params"] | extra)


def test_answers_of_sites_that_were_asked_otherwise_do_not_add_up(sites):
    """F1 by another way: the envelope may tell each site which of its answers counted; then masks do not cancel."""
    C = np.random.default_rng(0).normal(size=(1, 6, 3))
    server = Server(sites, "run").keys()
    server.sum(step(sites, 0, C), 0)
    task = Task(step(sites, 1, C))
    digest = task_digest(task.fields(), task.arrays)
    order = server.masks.open_slot(digest)
    meta = {**server.masks.masked_request(Order(order.epoch, order.slot, digest)), "task": task.fields()}
    replies = {}
    with refused(FeddbnError, code="asked-otherwise"):
        for name in sites.names:
            after = 0 if name == "s2" else -1
            replies |= server.ask({name: (meta, dict(task.arrays))}, 1, after)
        server.masks.collect(replies)
        server.masks.open(server.ask(server.masks.unmask_requests(None), 1, 0))
