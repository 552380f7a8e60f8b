"""How the pages of this folder become a site: `make docs` builds it, offline; docs/index.md says what is in it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))
sys.path.insert(0, str(HERE.parent / "src"))
# The kernels that run the tutorials import this checkout, too.
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [sys.path[0], os.environ.get("PYTHONPATH")]))

from feddbn._version import __version__  # noqa: E402

project = "feddbn"
author = "The feddbn developers"
copyright = "the feddbn developers, Apache-2.0"
release = version = __version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    # Of this project, in docs/_ext.
    "page_groups",
    "own_docstrings",
    "absent_data",
]
templates_path = ["_templates"]
root_doc = "index"
exclude_patterns = ["_ext", "_static", "_templates"]

# Pages are written for a code host too: its anchors of headings hold here.
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]

# Tutorials are run when the site is built; a cell that fails fails the build.
nb_execution_mode = "cache"
nb_execution_cache_path = os.environ.get("FEDDBN_DOCS_CACHE", "")
nb_execution_raise_on_error = True
nb_execution_timeout = 120
nb_merge_streams = True
nb_code_prompt_show = "Code of the figure"
nb_code_prompt_hide = "Hide the code"
# Warnings of fits are printed by the pages themselves; on this stream they would come with the paths of this machine.
nb_output_stderr = "remove"
nb_mime_priority_overrides = [("html", "text/latex", None)]
# Widgets would load scripts from elsewhere.
nb_ipywidgets_js: dict[str, dict[str, str]] = {}

# Names of this package stand in single backticks.
default_role = "py:obj"
autosummary_generate = True
# Two names that differ only in a capital need two files on every disk.
autosummary_filename_map = {"feddbn.Summary": "feddbn.Summary-class"}
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_member_order = "groupwise"
autodoc_preserve_defaults = True
napoleon_google_docstring = False
napoleon_use_rtype = False
python_use_unqualified_type_names = True
add_module_names = False
# A short name may stand for several things (`score`): then it is no link.
suppress_warnings = ["ref.python"]

html_theme = "furo"
html_title = f"feddbn {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = [("site.js", {"defer": "defer"})]
html_copy_source = False
html_show_sphinx = False
pygments_style = "friendly"
pygments_dark_style = "github-dark"
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#b2182b", "color-brand-content": "#2166ac"},
    "dark_css_variables": {"color-brand-primary": "#f4a582", "color-brand-content": "#92c5de"},
}
