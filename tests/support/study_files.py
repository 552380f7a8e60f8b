"""Studies as the files that people write."""

import json

ABOUT = {
    "purpose": "to try this program",
    "contact": "A. Lead, lead@example.org",
    "retention": "until the test has ended",
}
"""What a study says of itself, so that sites read on."""
ABOUT_LINE = f"about = {{ {', '.join(f'{name} = {json.dumps(text)}' for name, text in ABOUT.items())} }}\n"
"""The same as a line of a study file, above its tables."""


def as_toml(study):
    """Return a study's text as TOML; what is not set is left out."""
    lines, tables = [], []
    for name, value in json.loads(study.to_json()).items():
        if isinstance(value, dict):
            tables += [f"[{name}]", *_lines(value)]
        else:
            lines += _lines({name: value})
    return "\n".join([*lines, *tables, ""])


def _lines(values):
    return [f"{json.dumps(name)} = {_value(value)}" for name, value in values.items() if value is not None]


def _value(value):
    # JSON's strings, numbers, truth values and lists are TOML's.
    return f"{{ {', '.join(_lines(value))} }}" if isinstance(value, dict) else json.dumps(value)
