from __future__ import annotations

import io

import pytest

import feddbn


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def data():
    return feddbn.simulate(d=3, n_sites=2, n_samples=200, random_state=0)


def test_it_counts_sums_and_writes_one_line_to_a_terminal(data):
    stream = Terminal()
    with feddbn.Progress("OneShotDBN", stream=stream) as watch:
        model = feddbn.OneShotDBN(noise_variance="free").fit(data.sites, observer=watch)
    assert watch.n_sums == model.n_rounds_
    assert stream.getvalue().count("\n") == 1
    assert f"OneShotDBN: {model.n_rounds_} sums" in stream.getvalue().rsplit("\r", 1)[1]


def test_nothing_is_printed_where_nobody_watches(data):
    stream = io.StringIO()
    with feddbn.Progress(stream=stream) as watch:
        feddbn.OneShotDBN(noise_variance="free").fit(data.sites, observer=watch)
    assert stream.getvalue() == ""


def test_parts_that_are_known_make_a_bar(data):
    watch = feddbn.Progress("refits", 4, stream=io.StringIO())
    feddbn.confidence(feddbn.OneShotDBN(), data.sites, n_replicates=4, progress=watch)
    assert watch.n_done == 4
    assert watch.share == 1.0
    assert watch.line.startswith("refits: 4 of 4")
    assert watch._html().startswith('<div><progress max="1" value="1.000"></progress> refits: 4 of 4')


def test_an_error_is_said_and_passes_through():
    stream = Terminal()
    with pytest.raises(KeyError), feddbn.Progress("<b>", stream=stream) as watch:
        raise KeyError
    assert "stopped" in stream.getvalue()
    assert "&lt;b&gt;" in watch._html()
