"""Fields of questions take what they say and nothing like it."""

from dataclasses import MISSING

import pytest

from feddbn.errors import ProtocolError
from feddbn.federation.protocol.task import Question, _specs
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
