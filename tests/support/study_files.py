"""Studies as the files that people write."""

import json

from feddbn.console.study_form import toml_text

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
    return toml_text(json.loads(study.to_json()))
