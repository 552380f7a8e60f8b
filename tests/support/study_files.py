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


def study_text(tables, method="oneshot", name="s"):
    """Return the file of a study over three sites and two variables, with these tables."""
    head = f'name = "{name}"\nlead = "lead@example.org"\nmethod = "{method}"\nvariables = ["u", "v"]\n'
    return f'{head}sites = ["north", "south", "west"]\n{ABOUT_LINE}{tables}'


def as_toml(study):
    """Return a study's text as TOML; what is not set is left out."""
    values = json.loads(study.to_json())
    tables = {name: value for name, value in values.items() if isinstance(value, dict)}
    parts = [_entries({name: value for name, value in values.items() if name not in tables})]
    parts += [
        [f"[{json.dumps(name)}]", *lines] for name, table in tables.items() if (lines := _entries(table))
    ]
    return "\n".join("\n".join(lines) for lines in parts) + "\n"


def _entries(values):
    return [
        f"{json.dumps(name)} = {_value(value)}" for name, value in values.items() if value not in (None, "")
    ]


def _value(value):
    # Strings, numbers, truth values and lists are written as in JSON.
    if isinstance(value, dict):
        return f"{{ {', '.join(_entries(value))} }}"
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    return json.dumps(value)
