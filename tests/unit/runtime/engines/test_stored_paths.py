"""Several modules: what deployed kits, settings and apps name stays where they look for it."""

import importlib
import inspect

import pytest

from feddbn.runtime.settings import load_programs
from support.previous_kit import stored_paths


def test_the_stored_kit_names_what_the_previous_version_had():
    assert len(stored_paths()) == 5


@pytest.mark.parametrize("path", stored_paths())
def test_a_class_that_kits_name_can_be_imported(path):
    pytest.importorskip("nvflare")
    module, _, name = path.rpartition(".")
    assert inspect.isclass(getattr(importlib.import_module(module), name))


def test_the_modules_that_settings_name_can_be_imported():
    load_programs(("feddbn.federation.programs", "feddbn.methods.studies"))
