"""A noise share that was drawn for many sites must not be opened in a sum of few."""

import pytest

pytest.importorskip("cryptography")
pytest.importorskip("dp_accounting")
from feddbn.errors import AggregationError
from feddbn.federation.protocol.task import Task
from feddbn.federation.sums.gram import GramQuestion
from support.hostile import Server, Sites
from support.saying import refused

pytestmark = pytest.mark.usefixtures("light")


def test_a_recorded_noisy_answer_is_not_sent_into_a_smaller_sum(tmp_path):
    sites = Sites(tmp_path, k=9, rows=12, n_recordings=3, policy="max_epsilon = 1.0\n")
    study = sites.study("oneshot", privacy="epsilon = 1.0\ndelta = 1e-5\nclip = 5.0")
    sites.greet(study, "run")
    question = GramQuestion(n_lags=1, variables=sites.variables)
    Server(sites, "run", threshold=9).keys().mask_each(dict.fromkeys(sites.names, Task(question)), 0)
    few = sites.names[:7]
    sites.greet(study, "run", few)
    with refused(AggregationError, 9, 7, code="noise-share"):
        Server(sites, "run", few, threshold=7).keys().sum(question, 0)
