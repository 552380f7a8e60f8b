"""`help()` of every public name has an example, and the example runs and says what it prints."""

from __future__ import annotations

import doctest
import os
import warnings
from importlib import import_module
from pathlib import Path
from types import GenericAlias

import pytest

import feddbn
from feddbn.errors import ResultWarning

PUBLIC = (
    "feddbn",
    "feddbn.data",
    "feddbn.engine",
    "feddbn.errors",
    "feddbn.method_table",
    "feddbn.analysis.studies",
    "feddbn.metrics",
    "feddbn.model.dbn",
    "feddbn.report",
    "feddbn.report.notebook",
    "feddbn.sim",
)
# A public name outside of these.
MORE = ("feddbn.results.result.Result",)


def public_names(modules=PUBLIC):
    """Every function and class, once, by the name under which it is used; constants and types of functions have no help."""
    found, seen = {}, set()
    for name in modules:
        module = import_module(name)
        for public in module.__all__:
            value = getattr(module, public)
            is_alias = isinstance(value, GenericAlias)
            if callable(value) and hasattr(value, "__qualname__") and not is_alias and id(value) not in seen:
                seen.add(id(value))
                found[f"{name}.{public}"] = value
    for name in MORE:
        module, _, public = name.rpartition(".")
        found[name] = getattr(import_module(module), public)
    return found


def without_example(names):
    """Those that have none, errors apart: their tree is drawn in one place."""
    return [
        name
        for name, value in names.items()
        if not examples_of(name, value).examples
        and not (isinstance(value, type) and issubclass(value, Exception))
    ]


def examples_of(name, value):
    """The examples of one docstring, to be run with nothing but what they import."""
    parser = doctest.DocTestParser()
    return parser.get_doctest(value.__doc__ or "", {"__name__": "example"}, name, None, None)


def failures(names):
    runner, said = doctest.DocTestRunner(), []
    for name, value in names.items():
        with warnings.catch_warnings():
            # Advice on a result is for people; an example is about something else.
            warnings.simplefilter("ignore", ResultWarning)
            outcome = runner.run(examples_of(name, value), out=said.append)
        if outcome.failed:
            said.append(name)
    return "".join(said)


def test_every_public_name_has_an_example_in_its_help():
    names = public_names()
    assert len(names) > 100
    assert without_example(names) == []


def test_the_list_of_public_modules_is_complete():
    """A package that lists names at its door is public, and so is every adapter."""
    folders = [
        f"feddbn.{path.parent.relative_to(feddbn.__path__[0])}".replace(os.sep, ".") for path in doors()
    ]
    assert [name for name in folders if import_module(name).__all__ and name not in PUBLIC] == []


def doors():
    root = Path(feddbn.__path__[0])
    return [
        path
        for path in root.rglob("__init__.py")
        if path.parent != root and "__all__" in path.read_text("utf-8")
    ]


@pytest.mark.slow
def test_examples_run_and_print_what_they_say():
    assert failures(public_names()) == ""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("adapter", "package"), [("causal_learn", "causallearn"), ("graphs", "pgmpy"), ("tigramite",) * 2]
)
def test_adapters_of_other_packages_have_examples_that_run(adapter, package):
    pytest.importorskip(package)
    names = public_names([f"feddbn.interop.{adapter}"])
    assert without_example(names) == []
    assert failures(names) == ""
