"""What a kit of the version before the engines had rooms held in `local`: the files beside this one, as it wrote them.

``@KIT@`` and ``@SITE@`` stand for the kit's directory and the site's name. Keys, certificates and what NVFlare itself
writes differ from federation to federation and are made anew.
"""

import json
from pathlib import Path

HERE = Path(__file__).parent


def lay_out(kit, role, site=""):
    """Replace the files of a kit's `local` by those of the previous version; `role` is "server" or "site"."""
    for path in sorted((HERE / role).iterdir()):
        text = path.read_text(encoding="utf-8").replace("@KIT@", str(kit)).replace("@SITE@", site)
        (kit / "local" / path.name).write_text(text, encoding="utf-8")


def stored_paths():
    """Dotted paths of this package that deployed kits name."""
    found = set()
    for path in HERE.glob("*/resources.json"):
        values = json.loads(path.read_text(encoding="utf-8"))
        found |= {*values["class_allow_list"], *(component["path"] for component in values["components"])}
    return sorted(name for name in found if name.startswith("feddbn."))
