"""Fields of questions take what they say and nothing like it."""

from dataclasses import MISSING

import pytest

from feddbn.errors import NotEnoughSites, ProtocolError, StillCollecting
from feddbn.federation.protocol.task import Question, Task, _specs, run_program
from feddbn.federation.sums.gram import GramQuestion
from support.saying import refused


def test_the_defaults_of_questions_pass_their_own_checks():
    # A field at its default is not checked again.
    kinds: list[type[Question]] = [Question]
    for kind in kinds:
        kinds += kind.__subclasses__()
    specs = [spec for kind in kinds for spec in _specs(kind) if spec.default not in (MISSING, None)]
    assert len(specs) > 50
    for spec in specs:
        read = spec.read(spec.name, spec.default)
        assert type(read) is type(spec.default)
        assert read == spec.default


@pytest.mark.parametrize(
    "value", [True, 1.0, "1", 10**400, -(10**400), float("nan"), float("inf"), None, [1]]
)
def test_a_whole_number_is_never_made_of_something_else(value):
    with refused(ProtocolError, "n_lags", code="bad-question"):
        GramQuestion(n_lags=value, variables=("a",))


@pytest.mark.parametrize("value", ["ab", ("a", "a"), ("a", 1), {"a": 1}, None])
def test_names_are_a_list_of_different_texts(value):
    with refused(ProtocolError, "variables", code="bad-question"):
        GramQuestion(n_lags=1, variables=value)


def test_a_program_goes_on_without_who_refuses_and_not_without_who_may_still_come():
    def program():
        try:
            yield Task(GramQuestion(variables=("x",), n_lags=1))
        except NotEnoughSites:
            return "without"

    class Sites:
        def __init__(self, error):
            self._error = error

        def sum(self, task):
            raise self._error

    assert run_program(program(), Sites(NotEnoughSites("one refuses."))) == "without"
    with pytest.raises(StillCollecting):
        run_program(program(), Sites(StillCollecting("one has not come.", ("north",), 1.0)))
