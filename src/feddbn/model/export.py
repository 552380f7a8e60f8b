"""Networks as files and text: JSON, GraphML, CSV edge list, DOT.

A reader never guesses: what is not the stated format, is damaged, or has another version raises
`FileError` with one sentence. docs/schema.md describes the stored forms.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from feddbn.core.kinds import Kind
from feddbn.errors import FileError, reading
from feddbn.model.graph import edge_table, time_series_graph
from feddbn.model.network import Network
from feddbn.model.nodes import Node, Term

Cell = TypeVar("Cell")
# The wide forms of the signs count, too: some spreadsheets read them as the narrow ones.
_FORMULA = re.compile("'*[=+\\-@\t\r\n\0＝＋－＠]")


def guarded(value: Cell) -> Cell | str:
    """Return a cell as it is written: text that a spreadsheet would run as a formula gets a ' in front.

    Names come from other people, and a cell that begins with =, +, -, @, a tab or a line break may be run when the file is
    opened. It gets a ', as OWASP advises. So does one that begins with ' before such a character: the way back is then
    certain. Numbers are left alone.
    """
    return f"'{value}" if isinstance(value, str) and _FORMULA.match(value) else value


def unguarded(text: str) -> str:
    """Inverse of `guarded` for text."""
    return text[1:] if text.startswith("'") and _FORMULA.match(text) else text


def guarded_frame(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a table as it is written, names of columns included."""
    return frame.map(guarded).rename(columns=guarded)


_DOT_SHAPES = {"count": "box", "binary": "diamond", "ordinal": "hexagon", "categorical": "octagon"}
FORMAT = "feddbn-dbn"
VERSION = 1


def plain_dict(dbn: Network) -> dict[str, Any]:
    """The stored form as lists, numbers and text."""
    plain: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "variables": list(dbn.variables),
        "n_lags": dbn.n_lags,
    }
    for name in ("W", "A", "intercept", "noise_variances"):
        value = getattr(dbn, name)
        plain[name] = None if value is None else value.tolist()
    if dbn.open_edges:
        plain["open_edges"] = [list(pair) for pair in dbn.open_edges]
    if dbn.definitions:
        plain["definitions"] = dict(dbn.definitions)
    if dbn.nodes:
        plain["nodes"] = plain_nodes(dbn)
    return plain


def plain_nodes(dbn: Network) -> list[dict[str, Any]]:
    """One object for each variable of a network that has nodes; unknown numbers are null."""
    names, found = dbn.variables, []
    for name, node in zip(names, dbn.nodes, strict=bool(dbn.nodes)):
        terms = []
        for term, b in node.parts:
            units = {"origins": term.origins, "scales": term.scales, "table": term.table}
            terms.append(
                {
                    "sources": [[names[i], lag] for i, lag in term.sources],
                    "basis": term.basis,
                    **{key: list(value) for key, value in units.items() if value},
                    "coefficients": b.tolist(),
                }
            )
        levels = list(node.kind.levels)
        one: dict[str, Any] = {"variable": name, "kind": node.kind.name, "levels": levels, "terms": terms}
        if node.kind.recorded:
            one["recorded"] = [list(pair) for pair in node.kind.recorded]
        one["intercept"] = None if node.intercept is None else node.intercept.tolist()
        one["dispersion"] = node.dispersion
        if node.covariance is not None:
            rows = node.covariance.tolist()
            one["covariance"] = [[None if np.isnan(x) else x for x in row] for row in rows]
        found.append(one)
    return found


def nodes_of_plain(given: Any, variables: Sequence[str]) -> list[Node]:
    """Inverse of `plain_nodes`, in the order of the variables; none if nothing is given."""
    place = {name: k for k, name in enumerate(variables)}
    by_name = {one["variable"]: one for one in given} if isinstance(given, list) else {}
    if given and (by_name.keys() != place.keys() or len(given) != len(place)):
        raise ValueError("'nodes' has not one entry for each variable of the network")
    return [_node(by_name[name], place) for name in variables] if given else []


def _node(stored: Mapping[str, Any], place: Mapping[str, int]) -> Node:
    terms = [
        Term(
            tuple((place[name], lag) for name, lag in one["sources"]),
            one["basis"],
            *(tuple(one.get(key, ())) for key in ("origins", "scales", "table")),
        )
        for one in stored["terms"]
    ]
    recorded = tuple((name, position) for name, position in stored.get("recorded", ()))
    return Node(
        Kind(stored["kind"], tuple(stored["levels"]), recorded),
        tuple(terms),
        *(
            tuple(np.array(one["coefficients"], dtype=np.float64) for one in stored["terms"]),
            stored.get("intercept"),
            stored.get("dispersion"),
            stored.get("covariance"),
        ),
    )


def array_of_plain(name: str, value: Any, shape: tuple[int, ...]) -> np.ndarray | None:
    """The numbers, or None if they are not known."""
    array = np.zeros(shape) if np.size(value) == 0 else np.asarray(value)
    if value is not None and (array.dtype.kind not in "iuf" or array.shape != shape):
        raise ValueError(f"{name!r} is not an array of numbers of shape {shape}")
    return None if value is None else array


def json_text(dbn: Network, path: str | Path | None = None) -> str:
    """JSON text of the stored form, also written to `path` if given; numbers read back bit for bit."""
    return write_text(json.dumps(plain_dict(dbn), ensure_ascii=False, allow_nan=False, indent=1), path)


def csv_text(dbn: Network, path: str | Path | None = None) -> str:
    """Edge list source, target, lag, weight, standardised, oriented as CSV text with a header, also written to `path` if
    given; safe in spreadsheets.
    """
    table = edge_table(dbn).iloc[:, :6]
    table["oriented"] = table["oriented"].map({True: "true", False: "false"})
    return write_text(str(guarded_frame(table).to_csv(index=False, lineterminator="\n")), path)


def graphml_text(dbn: Network, path: str | Path | None = None) -> str:
    """GraphML text of the time-series graph, also written to `path` if given."""
    import networkx as nx

    text = "\n".join(nx.generate_graphml(time_series_graph(dbn))) + "\n"
    # XML writes true and false in small letters, and networkx Python's words.
    for key in re.findall('<key id="(.*?)" for="edge" attr.name="oriented"', text):
        for word in ("True", "False"):
            text = text.replace(f'<data key="{key}">{word}<', f'<data key="{key}">{word.lower()}<')
    return write_text(text, path)


def dot_text(dbn: Network, path: str | Path | None = None) -> str:
    """Graphviz DOT text of the time-series graph, also written to `path` if given: one column per lag, oldest at the left."""
    lines = ["digraph dbn {", "  rankdir=LR;", "  node [shape=ellipse];"]
    for name, kind in zip(dbn.variables, dbn.kinds, strict=True):
        if kind.name in _DOT_SHAPES:
            nodes = "; ".join(_quoted(f"{name}_lag{lag}") for lag in range(dbn.n_lags + 1))
            lines.append(f"  {{ node [shape={_DOT_SHAPES[kind.name]}]; {nodes}; }}")
    for lag in range(dbn.n_lags, -1, -1):
        nodes = "; ".join(_quoted(f"{name}_lag{lag}") for name in dbn.variables)
        lines.append(f"  {{ rank=same; {nodes}; }}")
    for source, target, lag, weight, _, oriented in edge_table(dbn).iloc[:, :6].itertuples(index=False):
        ends = f"{_quoted(f'{source}_lag{lag}')} -> {_quoted(f'{target}_lag0')}"
        line = "" if oriented else ", dir=none"
        lines.append(f'  {ends} [weight_value="{float(weight)!r}", label="{weight:.3g}"{line}];')
    return write_text("\n".join([*lines, "}"]) + "\n", path)


def write_text(text: str, path: str | Path | None) -> str:
    """`text`, also written to `path` as UTF-8 if one is given."""
    if path is not None:
        target = Path(path)
        if target.is_dir() or not target.parent.is_dir():
            why = "it is a folder" if target.is_dir() else f"the folder {target.parent} does not exist"
            raise FileError(f"{target} cannot be written: {why}.")
        with target.open("w", encoding="utf-8", newline="") as file:
            file.write(text)
    return text


def read_text(source: str | Path, is_text: Any) -> tuple[str, str]:
    """The text and what to call it: of a path, or the text itself."""
    if isinstance(source, str) and is_text(source):
        return source, "this text"
    with reading(str(source)), Path(source).open(encoding="utf-8", newline="") as file:
        return file.read(), str(source)


def _quoted(name: str) -> str:
    escaped = name.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
