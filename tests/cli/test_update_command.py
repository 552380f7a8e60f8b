"""`feddbn update` adds a month to a stored result, and refuses in one sentence what it cannot add."""

import json

import pytest
from typer.testing import CliRunner

import feddbn
from feddbn.cli.main import app

SECOND = ("use_nongaussian=false", "check_residuals=false", "features=linear")


def run(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments])


@pytest.fixture
def months(tmp_path):
    """Directories of two months, and one of both."""
    made = feddbn.simulate(d=3, n_sites=3, n_samples=600, mean_degree=2, random_state=8)
    for name, tables in made.sites.items():
        parts = {"one": tables[0].iloc[:120], "two": tables[0].iloc[120:]}
        for month, table in parts.items():
            for place in (tmp_path / month, tmp_path / "both"):
                (place / name).mkdir(parents=True, exist_ok=True)
                table.to_csv(place / name / f"{month}.csv", index=False)
    return tmp_path


def fit(place, out, *more):
    params = [word for param in SECOND for word in ("--param", param)]
    return run("fit", place, "--out", out, *params, *more)


def test_a_month_more_gives_the_network_of_both(months):
    assert fit(months / "one", months / "r.json", "--keep-sums").exit_code == 0
    done = run("update", months / "r.json", months / "two", "--out", months / "new.json")
    assert done.exit_code == 0, done.output
    assert fit(months / "both", months / "all.json").exit_code == 0
    new, whole = (json.loads((months / name).read_text()) for name in ("new.json", "all.json"))
    for edge, other in zip(new["edges"], whole["edges"], strict=True):
        assert [edge[k] for k in ("source", "target", "lag")] == [
            other[k] for k in ("source", "target", "lag")
        ]
        assert edge["weight"] == pytest.approx(other["weight"], abs=1e-10)
    assert len(new["edges"]) > 0
    assert new["sums"]["n_parts"] == 2
    assert [site["rows"] for site in new["sites"]] == [site["rows"] for site in whole["sites"]]
    # And again, over the file itself.
    assert run("update", months / "new.json", months / "two").exit_code == 0
    assert json.loads((months / "new.json").read_text())["sums"]["n_parts"] == 3


def test_what_cannot_be_updated_is_refused_with_a_sentence(months, refuses):
    result, two = months / "r.json", months / "two"
    fit(months / "one", result)
    assert "--keep-sums" in refuses("update", result, two)
    told = refuses("fit", months / "one", "--method", "pfdbnl", "--keep-sums", "--out", months / "f.json")
    assert "PFDBNL" in told
    fit(months / "one", result, "--keep-sums")
    assert "--variables" in refuses("update", result, two, "--variables", "x0,x1")
    values = json.loads(result.read_text())
    values["sums"]["mean"] = [1.0]
    result.write_text(json.dumps(values))
    assert "r.json" in refuses("update", result, two)
