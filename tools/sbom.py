"""Write the bill of materials of a release: feddbn and all that it needs, as installed here, in CycloneDX 1.6.

    python tools/sbom.py --out dist/feddbn.cdx.json [--extra nvflare --extra privacy]

What feddbn needs is read from pyproject.toml, everything else from the metadata of the installed packages. The same packages
give the same bytes.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tomllib
import uuid
from collections.abc import Iterable, Mapping
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
SPEC = "1.6"


def canonical(name: str) -> str:
    """Return the name by which package indexes know a package."""
    return re.sub(r"[-_.]+", "-", name).lower()


def applying(requirements: Iterable[str], extras: frozenset[str]) -> list[Requirement]:
    """Return the requirements that hold here with these extras."""
    found = []
    for text in requirements:
        one = Requirement(text)
        if one.marker is None or any(one.marker.evaluate({"extra": extra}) for extra in extras | {""}):
            found.append(one)
    return found


def own_requirements(project: Mapping[str, Any]) -> list[str]:
    """Return what feddbn needs, in the form in which installed packages say it."""
    listed = list(project["dependencies"])
    for extra, needed in project["optional-dependencies"].items():
        listed += [f"{one}{' and' if ';' in one else ' ;'} extra == '{extra}'" for one in needed]
    return listed


def licences(of: Distribution) -> list[dict[str, Any]]:
    """Return the licence as the package states it."""
    expression = of.metadata.get("License-Expression")
    if expression:
        return [{"expression": expression}]
    classified = [
        line.split(" :: ")[-1]
        for line in of.metadata.get_all("Classifier") or ()
        if line.startswith("License :: ") and not line.endswith("OSI Approved")
    ]
    stated = (of.metadata.get("License") or "").strip().splitlines()
    names = sorted(set(classified)) or [line for line in stated[:1] if len(line) < 100]
    return [{"license": {"name": name}} for name in names]


def component(name: str, version: str, licensed: list[dict[str, Any]]) -> dict[str, Any]:
    """Return one entry."""
    purl = f"pkg:pypi/{canonical(name)}@{version}"
    entry = {"type": "library", "bom-ref": purl, "name": canonical(name), "version": version, "purl": purl}
    return {**entry, "licenses": licensed} if licensed else entry


def bill(extras: Iterable[str]) -> dict[str, Any]:
    """Return the bill of feddbn with these extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    unknown = sorted(set(extras) - project["optional-dependencies"].keys())
    if unknown:
        known = ", ".join(sorted(project["optional-dependencies"]))
        raise SystemExit(f"--extra {unknown[0]} is not an extra of feddbn; choose among {known}.")
    version = re.search(r'"(.+)"', (ROOT / "src/feddbn/_version.py").read_text().split("__version__")[1])
    assert version is not None
    own = component("feddbn", version[1], [{"expression": project["license"]}])
    asked: dict[str, set[str]] = {"feddbn": set(extras)}
    waiting, components, needs = ["feddbn"], {"feddbn": own}, dict[str, set[str]]()
    while waiting:
        name = waiting.pop()
        listed = own_requirements(project) if name == "feddbn" else distribution(name).requires or ()
        for one in applying(listed, frozenset(asked[name])):
            other = canonical(one.name)
            if other != name:
                needs.setdefault(name, set()).add(other)
            if other not in components:
                try:
                    installed = distribution(other)
                except PackageNotFoundError:
                    raise SystemExit(
                        f"{other} is not installed; install feddbn with the extras of the bill."
                    ) from None
                components[other] = component(other, installed.version, licences(installed))
            elif one.extras <= asked[other]:
                continue
            asked.setdefault(other, set()).update(one.extras)
            waiting.append(other)
    references = {name: entry["bom-ref"] for name, entry in components.items()}
    made = {
        "bomFormat": "CycloneDX",
        "specVersion": SPEC,
        "version": 1,
        "metadata": {"component": own},
        "components": [components[name] for name in sorted(components) if name != "feddbn"],
        "dependencies": [
            {"ref": references[name], "dependsOn": sorted(references[one] for one in needs.get(name, ()))}
            for name in sorted(components)
        ],
    }
    number = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(made, sort_keys=True))
    return {**made, "serialNumber": f"urn:uuid:{number}"}


def main(arguments: list[str]) -> None:
    """Write the bill."""
    parser = argparse.ArgumentParser(description="Write the bill of materials of a release.")
    parser.add_argument(
        "--extra", action="append", help="an extra of feddbn; repeat for each; all by default"
    )
    parser.add_argument("--out", type=Path, required=True, help="the file to write")
    given = parser.parse_args(arguments)
    made = bill(given.extra or ["all"])
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
    print(f"{given.out}: {len(made['components'])} packages")


if __name__ == "__main__":
    main(sys.argv[1:])
