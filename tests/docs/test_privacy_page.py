"""The page on privacy names a test for what it claims; these tests exist."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
NAMED = re.findall(r"`(test_\w+)::(\w+)`", (ROOT / "docs" / "privacy.md").read_text(encoding="utf-8"))


def test_every_test_that_the_page_names_exists():
    assert len(NAMED) > 15
    for file, part in NAMED:
        source = (ROOT / "tests" / "redteam" / f"{file}.py").read_text(encoding="utf-8")
        assert re.search(rf"def test_\w*{part}", source), f"{file} has no test with {part} in its name"


def test_every_file_of_attacks_is_named_on_the_page():
    files = {path.stem for path in (ROOT / "tests" / "redteam").glob("test_*.py")}
    assert files - {file for file, _ in NAMED} <= {"test_07_rows_of_removed"}
