"""The page about notebooks, run as a notebook: every cell works, shows a card, and progress leaves one line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "notebooks.md"


def cells_of_the_page():
    return re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_page_runs_as_a_notebook():
    nbformat = pytest.importorskip("nbformat")
    client = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    cells = [nbformat.v4.new_code_cell(source) for source in cells_of_the_page()]
    notebook = nbformat.v4.new_notebook(cells=cells)
    client.NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    fit, check, scores, comparison, refits, frame = notebook.cells
    for cell in (fit, check, scores, comparison, refits):
        (shown,) = [one for one in cell.outputs if one.output_type == "execute_result"]
        assert "feddbn-card" in shown.data["text/html"]
        assert "<script" not in shown.data["text/html"]
    assert "OneShotDBN learned" in re.sub(r"<[^>]+>", "", fit.outputs[-1].data["text/html"])
    assert frame.outputs[-1].data["text/plain"].count("response") == 1
    # Progress is one output, written over: its last state is what a stored notebook keeps.
    for cell, words in ((fit, r"OneShotDBN: \d sums"), (refits, r"refits: 10 of 10")):
        (line,) = [one for one in cell.outputs if one.output_type == "display_data"]
        assert re.search(words, line.data["text/html"])
    assert '<progress max="1" value="1.000">' in refits.outputs[0].data["text/html"]
    assert not [one for cell in notebook.cells for one in cell.outputs if one.output_type == "error"]
