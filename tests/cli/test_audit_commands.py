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


def test_show_is_readable(log):
    result = runner.invoke(app, ["site", "log", str(log)], terminal_width=160, env={"COLUMNS": "160"})
    assert result.exit_code == 0
    assert "masked and noise" in result.output
    assert "1.5 per recording" in result.output
    assert "refused  " in result.output
    assert all(part in result.output for part in ("2 answers", "3696 bytes", "1 refused"))
    assert "Do not trust" not in result.output


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
    assert (
        json.loads(runner.invoke(app, ["site", "verify", str(log), "--json"]).output)[0]["is_intact"] is False
    )
