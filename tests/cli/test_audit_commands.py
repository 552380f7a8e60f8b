import json

import pytest
from typer.testing import CliRunner

from feddbn.cli.main import app
from feddbn.privacy.audit import AuditChain

runner = CliRunner()


@pytest.fixture
def log(tmp_path):
    chain, lines = AuditChain(), []
    for i in range(3):
        refused = i == 1
        entry = chain.add(
            time=f"2024-05-0{i + 1}T12:00:00+00:00",
            site="clinic",
            event="refused" if refused else "sent",
            task="moments",
            asked_by="server",
            length=0 if refused else 231,
            norm=1.0,
            protection="masked and noise",
            unit="recording",
            epsilon=None if refused else 0.5 * (i + 1),
            delta=1e-5,
            note="this site does not allow the task 'rows'." if refused else "",
        )
        lines.append(entry.to_line())
    path = tmp_path / "audit.jsonl"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_attack_shows_the_break_and_the_repair():
    result = runner.invoke(app, ["attack", "--variables", "4", "--sites", "3", "--rows", "40", "--json"])
    assert result.exit_code == 0
    report = json.loads(result.output)
    assert report["rounds"][1]["plain_worst"] < 1e-8
    assert all(row["masked_rms"] >= report["mean_guess"] for row in report["rounds"])


def test_attack_on_personal_messages():
    arguments = ["attack", "--method", "pfdbnl", "--variables", "4", "--sites", "3", "--rows", "60", "--json"]
    report = json.loads(runner.invoke(app, arguments).output)
    # Sites solve their step to 1e-5; the messages cannot be inverted more exactly than that.
    assert report["rounds"][-1]["plain_worst"] < 1e-2
    assert report["rounds"][-1]["plain_median"] < 1e-3
    assert all(row["masked_rms"] >= report["mean_guess"] for row in report["rounds"])


def test_show_is_readable(log):
    result = runner.invoke(app, ["site", "log", str(log)], terminal_width=160, env={"COLUMNS": "160"})
    assert result.exit_code == 0
    assert "masked and noise" in result.output
    assert "1.5 per recording" in result.output
    assert "refused  " in result.output
    assert all(part in result.output for part in ("2 answers", "3696 bytes", "1 refused"))
    assert "Do not trust" not in result.output


def test_show_warns_of_an_edited_log_and_counts_a_single_answer(log):
    first = log.read_text().splitlines()[0]
    log.write_text(first.replace("231", "23") + "\n")
    result = runner.invoke(app, ["site", "log", str(log)])
    assert result.exit_code == 0
    assert "1 answer " in result.output
    assert "line 1" in result.output


def test_verify_says_intact_and_prints_the_last_hash(log):
    result = runner.invoke(app, ["site", "verify", str(log)])
    assert result.exit_code == 0
    assert "Intact: 3 entries; not signed" in result.output
    last = result.output.strip().split()[-1].rstrip(".")
    assert runner.invoke(app, ["site", "verify", str(log), "--last", last]).exit_code == 0
    assert runner.invoke(app, ["site", "verify", str(log), "--last", "0" * 64]).exit_code == 1


def test_verify_detects_an_edit(log):
    log.write_text(log.read_text().replace("231", "230", 1))
    result = runner.invoke(app, ["site", "verify", str(log)])
    assert result.exit_code == 1
    assert "NOT intact: line 1" in result.output
    assert json.loads(runner.invoke(app, ["site", "verify", str(log), "--json"]).output)["is_intact"] is False
