"""The engine of docs/engine.md passes the suite for adapters."""

import importlib
import re
from pathlib import Path

import pytest

from feddbn import engine
from feddbn.engine import conformance
from support.places import quick_folder

pytest.importorskip("cryptography")
PAGE = (Path(__file__).parents[2] / "docs" / "engine.md").read_text(encoding="utf-8")
(CODE,) = [code for code in re.findall(r"```python\n(.*?)```", PAGE, re.S) if "def serve" in code]


# Python tells that a process with threads is copied, and that a file of one that was ended was left open.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_the_engine_of_the_page_passes_the_suite_for_adapters(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "engine_of_the_page.py").write_text(CODE, encoding="utf-8")
    pipes = importlib.import_module("engine_of_the_page").pipes
    with quick_folder() as folder:
        assert conformance.check(pipes, folder / "new", methods=("fdbnl",))


def test_names_of_the_page_are_public():
    promised = PAGE.split("## What stays as it is")[1]
    assert f"VERSION` is {engine.VERSION}." in promised
    for name in engine.__all__:
        assert f"`{name}" in promised or name in ("Endpoint", "VERSION")
