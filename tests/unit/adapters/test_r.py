"""R opens sites, calls DataSHIELD (a stand-in for its interface, tests/support/dsi) and conducts studies."""

import io
import json
import os
import shutil
import subprocess
import sys
from base64 import urlsafe_b64decode, urlsafe_b64encode
from contextlib import contextmanager
from pathlib import Path

import pytest

from feddbn import engine
from feddbn.adapters import r
from feddbn.engine import conformance
from feddbn.errors import FederationError
from feddbn.federation.protocol.messages import read_reply
from feddbn.federation.protocol.study import StudyResult, parse_study
from support.study_files import ABOUT_LINE

pytest.importorskip("cryptography")
ROOT = Path(__file__).parents[3]
STUDY = f"""
name = "wards"
method = "oneshot"
variables = ["x0", "x1", "x2", "x3", "x4"]
sites = ["east", "north", "south", "west"]
{ABOUT_LINE}parameters = {{n_lags = 1, noise_variance = "free"}}
privacy = {{secure_aggregation = true, protection = "exact", min_sites = 3}}
"""


def environment(library):
    places = {"RETICULATE_PYTHON": sys.executable, "FEDDBN_PYTHON": sys.executable, "R_LIBS": str(library)}
    return os.environ | places | {"PYTHONPATH": os.pathsep.join(sys.path), "LC_ALL": "C.UTF-8"}


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """A folder in which the R package and the stand-in for DSI are installed."""
    if shutil.which("Rscript") is None:
        pytest.skip("no R: install r-base-core, r-cran-jsonlite and r-cran-reticulate")
    folder = tmp_path_factory.mktemp("r")
    quickly = ["--no-docs", "--no-test-load", "--no-byte-compile", "-l", str(folder)]
    for package in (ROOT / "tests" / "support" / "dsi", ROOT / "r"):
        copy = shutil.copytree(package, folder / "sources" / package.name)
        done = subprocess.run(["R", "CMD", "INSTALL", *quickly, str(copy)], capture_output=True, text=True)
        if "jsonlite" in done.stderr and done.returncode:
            pytest.skip("R lacks jsonlite (Debian: r-cran-jsonlite)")
        assert done.returncode == 0, done.stderr
    return folder


@contextmanager
def r_process(library, code):
    """An R that answers lines of JSON with lines of JSON."""
    process = subprocess.Popen(
        ["Rscript", "--vanilla", "-e", code],
        env=environment(library),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.stdin.close()
        process.wait(60)
        process.stdout.close()


SERVE = """
library(feddbn)
lines <- file("stdin", "r")
text <- function(bytes) gsub("\\n", "", jsonlite::base64url_enc(bytes))
connections <- jsonlite::fromJSON(readLines(lines, 1), simplifyVector = FALSE)
exchange <- datashield_exchange(connections)
while (length(line <- readLines(lines, 1))) {
  asked <- lapply(jsonlite::fromJSON(line, simplifyVector = FALSE), jsonlite::base64url_dec)
  told <- lapply(exchange(asked), text)
  cat(jsonlite::toJSON(if (length(told)) told else NULL, auto_unbox = TRUE, null = "null"), "\\n", sep = "")
}
"""


def to_text(message):
    return urlsafe_b64encode(message).decode().rstrip("=")


def to_bytes(text):
    return urlsafe_b64decode(text + "==")


@pytest.mark.slow
def test_datashield_carries_studies_rightly(library, tmp_path):
    @contextmanager
    def servers(places):
        with r_process(library, SERVE) as process:

            def say(values):
                process.stdin.write(json.dumps(values) + "\n")
                process.stdin.flush()

            def exchange(messages):
                if not messages:
                    return {}
                say({name: to_text(message) for name, message in messages.items()})
                replies = json.loads(process.stdout.readline()) or {}
                return {name: to_bytes(text) for name, text in replies.items()}

            say({name: str(place) for name, place in places.items()})
            yield exchange

    assert len(conformance.check(servers, tmp_path / "trial", methods=("oneshot",))) >= 7


def run_r(library, folder, code):
    done = subprocess.run(
        ["Rscript", "--vanilla", "-e", code],
        cwd=folder,
        env=environment(library),
        capture_output=True,
        encoding="utf-8",
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


@pytest.mark.slow
def test_a_study_from_r_has_the_bits_of_one_process(library, trial, places, tmp_path):
    (tmp_path / "study.toml").write_text(STUDY)
    folders = ", ".join(f'{name} = "{place}"' for name, place in places.items())
    code = f"""
    library(feddbn)
    if (!nzchar(system.file(package = "reticulate"))) {{ writeLines("no reticulate"); quit() }}
    result <- conduct("study.toml", datashield_exchange(list({folders})), "runs", run = "one")
    writeLines(c(result, nrow(as.data.frame(read_network(result)))))
    """
    told = run_r(library, tmp_path, code)
    if told == ["no reticulate"]:
        pytest.skip("R lacks reticulate (Debian: r-cran-reticulate)")
    stored = (tmp_path / told[0]).with_suffix(".feddbn").read_bytes()
    found = StudyResult.from_bytes(stored)
    trial.compare(found, parse_study(STUDY))
    assert int(told[1]) == len(found.summary["result"]["edges"]) > 0


@pytest.mark.slow
def test_the_owner_reads_what_is_wrong_and_a_client_does_not(library, places, tmp_path):
    (places["south"] / "feddbn_site.toml").write_text(
        'name = "south"\ndata = "data"\nstate = "state"\nsecret = 1\n'
    )
    code = f"""
    library(feddbn)
    said <- function(expression) tryCatch({{expression; "nothing"}}, error = conditionMessage)
    site <- open_site("{places["north"]}")
    reply <- handle(site, charToRaw("no message"))
    cat(class(reply), length(reply) > 10, "\\n")
    writeLines(said(handle(site, "text")))
    close(site)
    writeLines(said(open_site("nowhere")))
    writeLines(said(handle(open_site("{places["south"]}"), raw(1))))
    writeLines(said(handle(open_site("{places["north"]}", python = "true"), raw(1), seconds = 1)))
    Sys.setenv(FEDDBN_SITE = "{places["south"]}")
    writeLines(said(feddbnDS(".AA")))
    Sys.setenv(FEDDBN_SITE = "secret")
    writeLines(said(feddbnDS(".AA")))
    """
    told = run_r(library, tmp_path, code)
    assert told[0].strip() == "raw TRUE"
    parts = (
        "raw vector",
        "nowhere",
        "secret",
        "the site",
        "cannot answer",
        "cannot answer",
    )
    assert all(part in sentence for part, sentence in zip(parts, told[1:], strict=True)), told
    assert not any("secret" in sentence for sentence in told[-2:])


def test_a_site_answers_lines_with_files_until_there_are_no_more(places, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{to_text(b'no message')}\n\n"))
    (tmp_path / "mailbox").mkdir()
    r.main(str(places["north"]), str(tmp_path / "mailbox"))
    assert sorted(path.name for path in (tmp_path / "mailbox").iterdir()) == ["1", "2"]
    for name in ("1", "2"):
        with pytest.raises(FederationError):
            read_reply((tmp_path / "mailbox" / name).read_bytes())
    r.main(str(tmp_path / "none"), str(tmp_path / "mailbox"))
    assert "none" in (tmp_path / "mailbox" / "failed").read_text(encoding="utf-8")


@pytest.mark.promise
@pytest.mark.filterwarnings("ignore::feddbn.errors.ResultWarning")
def test_a_study_over_text_has_the_bits_of_one_process(trial, places, tmp_path):
    ends = {name: engine.open_site(place) for name, place in places.items()}
    (tmp_path / "study.toml").write_text(STUDY)

    def exchange(messages):
        # reticulate makes a list of a list without names.
        answered = {name: to_text(ends[name].handle(to_bytes(text))) for name, text in messages.items()}
        return answered or []

    path = Path(r.conduct(str(tmp_path / "study.toml"), exchange, str(tmp_path / "runs")))
    assert path.name == "result.json"
    trial.compare(StudyResult.from_bytes(path.with_suffix(".feddbn").read_bytes()), parse_study(STUDY))
    assert json.loads(path.read_text(encoding="utf-8"))["edges"]
