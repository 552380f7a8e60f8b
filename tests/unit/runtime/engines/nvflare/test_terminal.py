"""Several modules: a site's terminal shows studies and warnings, and one line about a lost connection."""

import logging

import pytest

from feddbn.runtime.nvflare_terminal import StudiesOnly

CELL, CONNECTIONS = "nvflare.fuel.f3.cellnet.core_cell", "nvflare.fuel.f3.sfm.conn_manager"


@pytest.fixture
def terminal():
    """(log, lines, clock): what is logged through it, what it shows, and a clock to set."""
    lines, now = [], [0.0]

    class Shown(logging.Handler):
        def emit(self, record):
            lines.append(record.getMessage())

    handler = Shown()
    handler.addFilter(StudiesOnly(every_s=300.0, clock=lambda: now[0]))
    loggers = [logging.getLogger(name) for name in ("feddbn.site", "nvflare", "other")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
    yield lambda name, level, text: logging.getLogger(name).log(level, text), lines, now
    for logger, level in zip(loggers, levels, strict=True):
        logger.removeHandler(handler)
        logger.setLevel(level)


def test_studies_and_warnings_are_shown_and_the_engines_steps_are_not(terminal):
    log, lines, _ = terminal
    log("feddbn.site", logging.INFO, "began")
    log(CONNECTIONS, logging.INFO, "Connection [CN00002 a => b] is created: PID: 1")
    log("nvflare.private", logging.INFO, "registered aux handler")
    log("nvflare.private", logging.ERROR, "disk full")
    # A site that is back is called before its part of a run has started again.
    log(CELL, logging.WARNING, "[ME=b O=server.:3 D=b.:3 CH=sm__STREAM] no connection to child b.a6110e5f")
    log(CELL, logging.ERROR, "[ME=b O=server.:3 D=b.:3 CH=sm__STREAM] cannot forward req: no path")
    log("other", logging.WARNING, "something")
    assert lines == ["began", "disk full", "something"]


def test_a_server_that_is_gone_is_told_once_in_a_while_and_so_is_its_return(terminal):
    log, lines, now = terminal
    for seconds in (0.0, 10.0, 20.0, 310.0, 320.0):
        now[0] = seconds
        log(CELL, logging.WARNING, "[ME=north] no connection to server")
        log(CELL, logging.ERROR, "[ME=north] cannot send to 'server': target_unreachable")
        log(CONNECTIONS, logging.ERROR, "Connector [CH00001 ACTIVE tcp://x:1] failed with exception X")
    assert [line.endswith("(X)") for line in lines] == [False, True, True]
    log(CONNECTIONS, logging.INFO, "Connection [CN00003 127.0.0.1:1 => 127.0.0.1:2 SSL x] is created: PID: 9")
    log(CONNECTIONS, logging.INFO, "Connection [CN00004 127.0.0.1:1 => 127.0.0.1:2 SSL x] is created: PID: 9")
    assert len(lines) == 4


def test_why_a_server_is_refused_is_told_at_once(terminal):
    log, lines, _ = terminal
    log(CELL, logging.ERROR, "[ME=north] cannot send to 'server': target_unreachable")
    text = "Connector [CH00001 ACTIVE tcp://x:1] failed with exception SSLError: CERTIFICATE_VERIFY_FAILED"
    log(CONNECTIONS, logging.ERROR, text)
    log(CONNECTIONS, logging.ERROR, text)
    assert len(lines) == 2
    assert lines[1].endswith("(SSLError: CERTIFICATE_VERIFY_FAILED)")
