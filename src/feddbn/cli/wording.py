"""Sentences of the library, with its arguments written as options of the command line."""

from __future__ import annotations

import re
from ast import literal_eval

from feddbn.cli.options import kinds_as_options

__all__ = ["as_options", "as_parameters"]

# An argument with its value, or bare as in "choose columns with variables=".
_VALUE = r"('[^']*'|\[[^\]]*\]|(?:[^\s,;.)\]]|\.(?=\d))*)"
_OPTION = re.compile(rf"(?<![\w-])(site|series|time|variables|freq|jitter)={_VALUE}")
_SWITCH = re.compile(r"(?<![\w-])(sort=True|day_first=True|day_first=False)\b")
# At the start of a sentence it is what was given, in whatever way; later on it is advice.
_PARAMETER = re.compile(
    rf"(?<!^)(?<![\w-])(?<!-p )(center|detrend|period|gains|spikes|missing|on_disagreement|exogenous)={_VALUE}"
)
# Kinds of variables, at most one level of lists and braces inside.
_KINDS = re.compile(r"(MixedDBN\()?(?<![\w-])kinds=(\{(?:[^{}]|\{[^{}]*\})*\}|(?=[\s.,;)]|$))(?(1)\))")
_SWITCHES = {"sort=True": "--sort", "day_first=True": "--day-first", "day_first=False": "--month-first"}


def as_options(sentence: str) -> str:
    """Return the sentence with ``variables=`` as ``--variables``, ``center='x'`` as ``-p center=x``, and so on."""
    if sentence.startswith("mess="):
        # Names of what a simulation does to data; some are also names of what a fit does about it.
        return sentence
    sentence = _KINDS.sub(_kinds, sentence)
    sentence = _SWITCH.sub(lambda found: _SWITCHES[found[1]], sentence)
    sentence = _PARAMETER.sub(lambda found: f"-p {found[1]}={found[2].strip(chr(39))}", sentence)
    return _OPTION.sub(lambda found: f"--{found[1]} {_plain(found[2])}".rstrip(), sentence)


def as_parameters(sentence: str) -> str:
    """Return the sentence with arguments as lines of a study's file: ``center='x'`` as ``center = "x"``."""
    sentence = _PARAMETER.sub(
        lambda found: f"{found[1]} = {found[2].replace(chr(39), chr(34))}", f" {sentence}"
    )
    return sentence[1:].replace("with variables=", "of `variables`")


def _kinds(found: re.Match[str]) -> str:
    options = kinds_as_options(literal_eval(found[2])) if found[2] else "--kinds"
    return f"--method mixed {options}" if found[1] else options


def _plain(value: str) -> str:
    """A list as the option takes it: names with commas between them."""
    if value.startswith("["):
        return repr(",".join(part.strip().strip("'\"") for part in value[1:-1].split(",")))
    return value
