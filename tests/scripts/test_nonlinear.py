"""What the tables of curved effects count."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

pytestmark = pytest.mark.slow


@pytest.fixture
def nonlinear(script):
    return script("nonlinear")


def test_tables_of_a_page_are_replaced_and_the_rest_stays(nonlinear, tmp_path):
    page, folder = tmp_path / "page.md", tmp_path / "tables"
    folder.mkdir()
    page.write_text("# Curves\n\nWords.\n")
    (folder / "recovery.md").write_text("old table\n")
    nonlinear.put_into(page, folder)
    assert page.read_text().startswith("# Curves\n\nWords.\n\n## Measured\n")
    page.write_text(page.read_text() + "\n## After\n")
    (folder / "recovery.md").write_text("new table\n")
    (folder / "arena.md").write_text("another\n")
    nonlinear.put_into(page, folder)
    text = page.read_text()
    assert "old table" not in text
    assert text.index("Words.") < text.index("new table") < text.index("another") < text.index("## After")
    assert text.count("## Measured") == 1


def test_wrong_edges_count_a_reversal_once_and_entries_of_a(nonlinear):
    truth = SimpleNamespace(W=np.array([[0, 1.0], [0, 0]]), A=np.array([[[0.5, 0], [0, 0]]]))
    model = SimpleNamespace(W_=np.array([[0, 0], [2.0, 0]]), A_=np.array([[[0, 0], [0, 0.1]]]))
    assert nonlinear.wrong(model, truth) == (1, 2)
    assert not nonlinear.same_graph(model, SimpleNamespace(W_=truth.W, A_=model.A_))
    assert nonlinear.same_graph(model, SimpleNamespace(W_=3 * model.W_, A_=-model.A_))


def test_means_come_with_standard_errors(nonlinear):
    assert nonlinear.mean_error([1.0, 3.0]) == "2.00 ± 1.00"
    assert nonlinear.both_parts([(1, 0), (3, 0)]) == "2.00 ± 1.00 / 0.00 ± 0.00"


def test_the_score_of_the_truth_is_that_of_its_noise(nonlinear):
    fed = nonlinear.sparse(4, 80, 0, effects="gp")
    frames = [x for recordings in fed.sites.values() for x in recordings]
    noise = np.vstack(list(nonlinear.residuals_of(fed.truth, frames)))
    assert noise.shape == (80, 4)
    assert noise.std(axis=0) == pytest.approx(np.ones(4), abs=0.35)
