"""What can be said of the node for Flower where Flower is not installed; the rest is in tests/integration."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

import feddbn.adapters
from feddbn.adapters.flower import run_node
from feddbn.errors import MissingExtra
from support.saying import refused

WITHOUT = pytest.mark.skipif(importlib.util.find_spec("flwr") is not None, reason="flwr is installed")


@WITHOUT
def test_without_flower_the_extra_is_named(tmp_path):
    with refused(MissingExtra, "flwr", "feddbn[flower]"):
        run_node(tmp_path, "localhost:9093", insecure=True)


@WITHOUT
def test_the_command_ends_with_a_sentence_and_two(tmp_path):
    command = [sys.executable, "-m", "feddbn.adapters.flower", str(tmp_path), "localhost:9093", "--insecure"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert "flwr" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "path", sorted(Path(feddbn.adapters.__file__).parent.glob("*.py")), ids=lambda p: p.stem
)
def test_an_adapter_is_short_enough_to_be_read_by_owners(path):
    assert sum(bool(line.strip()) for line in path.read_text(encoding="utf-8").splitlines()) < 100
