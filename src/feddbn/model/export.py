"""Networks as files and text: JSON, GraphML, CSV edge list, DOT.

A reader never guesses: what is not the stated format, is damaged, or has another version raises
`FileError` with one sentence. docs/schema.md describes the stored forms.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pandas as pd

from feddbn.core.kinds import Kind
from feddbn.errors import FileError, InputError, ParameterError, reading
from feddbn.model.graph import edge_table, network_of_edges, time_series_graph
from feddbn.model.network import Network
from feddbn.model.nodes import Node, Term

if TYPE_CHECKING:
    from feddbn.model.dbn import DBN

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
_ARRAYS = ("W", "A", "intercept", "noise_variances")


def plain_dict(dbn: Network) -> dict[str, Any]:
    """The stored form as lists, numbers and text."""
    plain = {
        "format": FORMAT,
        "version": VERSION,
        "variables": list(dbn.variables),
        "n_lags": dbn.n_lags,
        "W": dbn.W.tolist(),
        "A": dbn.A.tolist(),
        "intercept": None if dbn.intercept is None else dbn.intercept.tolist(),
        "noise_variances": None if dbn.noise_variances is None else dbn.noise_variances.tolist(),
    }
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
        kind, terms = node.kind, []
        for term, b in node.parts:
            stored: dict[str, Any] = {
                "sources": [[names[i], lag] for i, lag in term.sources],
                "basis": term.basis,
            }
            units = {"origins": term.origins, "scales": term.scales, "table": term.table}
            stored |= {key: list(value) for key, value in units.items() if value}
            terms.append({**stored, "coefficients": b.tolist()})
        one: dict[str, Any] = {
            "variable": name,
            "kind": kind.name,
            "levels": list(kind.levels),
            "terms": terms,
        }
        if kind.recorded:
            one["recorded"] = [list(pair) for pair in kind.recorded]
        one["intercept"] = None if node.intercept is None else node.intercept.tolist()
        one["dispersion"] = node.dispersion
        if node.covariance is not None:
            one["covariance"] = [
                [None if np.isnan(x) else x for x in row] for row in node.covariance.tolist()
            ]
        found.append(one)
    return found


def nodes_of_plain(given: Any, variables: Sequence[str], where: str) -> tuple[Node, ...]:
    """Inverse of `plain_nodes` for a network of `variables`, in their order; none if nothing is given."""
    place = {name: k for k, name in enumerate(variables)}
    if not given and given in (None, []):
        return ()
    try:
        by_name = {one["variable"]: one for one in given}
        if by_name.keys() != place.keys() or len(given) != len(place):
            raise ValueError("it has not one entry for each variable of the network")
        return tuple(_node(by_name[name], place) for name in variables)
    except (ParameterError, KeyError, TypeError, ValueError, AttributeError) as error:
        why = f"it lacks, or does not know, {error}" if isinstance(error, KeyError) else error
        raise FileError(f"{where} is damaged: in 'nodes', {why}") from None


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
    intercept, dispersion, covariance = (stored.get(key) for key in ("intercept", "dispersion", "covariance"))
    return Node(
        Kind(stored["kind"], tuple(stored["levels"]), recorded),
        tuple(terms),
        tuple(np.array(one["coefficients"], dtype=np.float64) for one in stored["terms"]),
        None if intercept is None else np.array(intercept, dtype=np.float64),
        None if dispersion is None else float(dispersion),
        None if covariance is None else np.array(covariance, dtype=np.float64),
    )


def network_of_dict(kind: type[DBN], stored: Mapping[str, Any], where: str = "this dict") -> DBN:
    """Inverse of `to_dict`; keys it does not know are ignored."""
    if not isinstance(stored, Mapping) or stored.get("format") != FORMAT:
        raise FileError(f'{where} is not a stored network; it lacks "format": "{FORMAT}".')
    if stored.get("version") != VERSION:
        raise FileError(
            f"{where} has version {stored.get('version')!r}; this package reads version {VERSION}."
        )
    missing = [key for key in ("variables", "n_lags", *_ARRAYS) if key not in stored]
    if missing:
        raise FileError(f"{where} is damaged: it lacks {missing[0]!r}.")
    variables, p, pairs = stored["variables"], stored["n_lags"], stored.get("open_edges") or []
    if not isinstance(variables, list) or not all(isinstance(v, str) for v in variables):
        raise FileError(f"{where} is damaged: 'variables' is not a list of names.")
    if isinstance(p, bool) or not isinstance(p, int) or p < 0:
        raise FileError(f"{where} is damaged: 'n_lags' is {p!r}, not a whole number of at least 0.")
    if not isinstance(pairs, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in pairs):
        raise FileError(f"{where} is damaged: 'open_edges' is not a list of pairs of variables.")
    d, arrays = len(variables), list[Any]()
    for key, shape in zip(_ARRAYS, [(d, d), (p, d, d), (d,), (d,)], strict=True):
        is_unknown = stored[key] is None and len(shape) == 1
        arrays.append(None if is_unknown else _array(stored[key], shape, f"{where} is damaged: {key!r}"))
    W, A, intercept, variances = arrays
    nodes, definitions = nodes_of_plain(stored.get("nodes"), variables, where), stored.get("definitions", {})
    try:
        return kind(W, A, variables, intercept, variances, pairs, nodes=nodes, definitions=definitions)
    except (ParameterError, TypeError) as error:
        raise FileError(f"{where} is damaged: {error}") from None


def json_text(dbn: Network, path: str | Path | None = None) -> str:
    """JSON text of the stored form, also written to `path` if given; numbers read back bit for bit."""
    return write_text(json.dumps(plain_dict(dbn), ensure_ascii=False, allow_nan=False, indent=1), path)


def network_of_json(kind: type[DBN], source: str | Path) -> DBN:
    """Inverse of `to_json`, from a path, or from JSON text (a str that begins with a brace)."""
    text, where = _read(source, is_text=lambda s: s.lstrip().startswith("{"))
    with reading(where, "JSON"):
        stored = json.loads(text)
    return network_of_dict(kind, stored, where)


def csv_text(dbn: Network, path: str | Path | None = None) -> str:
    """Edge list source, target, lag, weight, standardised, oriented as CSV text with a header, also written to `path` if
    given; safe in spreadsheets.
    """
    table = edge_table(dbn).iloc[:, :6]
    table["oriented"] = table["oriented"].map({True: "true", False: "false"})
    return write_text(str(guarded_frame(table).to_csv(index=False, lineterminator="\n")), path)


def network_of_csv(
    kind: type[DBN], source: str | Path, variables: Sequence[str] | None = None, n_lags: int | None = None
) -> DBN:
    """Network of a CSV edge list, a path or text with a line break, without intercept and noise. A list knows no variable
    without edges: name them.
    """
    text, where = _read(source, is_text=lambda s: "\n" in s)
    try:
        rows = [row for row in csv.reader(io.StringIO(text, newline=""), strict=True) if row]
        frame = pd.DataFrame(rows[1:], columns=rows[0], dtype=object)
        readers: dict[str, Any] = {"lag": int, "source": unguarded, "target": unguarded, "weight": float}
        for column, read in readers.items():
            if column != "weight" or column in frame.columns:
                frame[column] = [read(value) for value in frame[column]]
        return network_of_edges(kind, frame, variables, n_lags)
    except InputError as error:
        raise FileError(f"{where} is not a usable edge list: {error}") from None
    except (csv.Error, ValueError, KeyError, IndexError):
        raise FileError(
            f"{where} is not an edge list; it needs the columns source, target, lag, weight."
        ) from None


def graphml_text(dbn: Network, path: str | Path | None = None) -> str:
    """GraphML text of the time-series graph, also written to `path` if given."""
    import networkx as nx

    text = "\n".join(nx.generate_graphml(time_series_graph(dbn))) + "\n"
    # XML writes true and false in small letters, and so strict readers want them; networkx writes Python's words.
    for key in re.findall(r'<key id="(\w+)" for="edge" attr.name="\w+" attr.type="boolean"', text):
        text = re.sub(
            rf'(<data key="{key}">)(True|False)<', lambda found: f"{found[1]}{found[2].lower()}<", text
        )
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
        with _target(path).open("w", encoding="utf-8", newline="") as file:
            file.write(text)
    return text


def _target(path: str | Path) -> Path:
    target = Path(path)
    if not target.parent.is_dir():
        raise FileError(f"{target} cannot be written: the folder {target.parent} does not exist.")
    if target.is_dir():
        raise FileError(f"{target} cannot be written: it is a folder.")
    return target


def _read(source: str | Path, is_text: Any) -> tuple[str, str]:
    if isinstance(source, str) and is_text(source):
        return source, "this text"
    with reading(str(source)), Path(source).open(encoding="utf-8", newline="") as file:
        return file.read(), str(source)


def _array(value: Any, shape: tuple[int, ...], what: str) -> np.ndarray:
    try:
        array = np.asarray(value)
        if array.size == 0:
            array = array.astype(np.float64).reshape(shape)
        if array.dtype.kind not in "iuf":
            raise ValueError
        array = array.astype(np.float64)
    except (ValueError, TypeError):
        raise FileError(f"{what} is not an array of numbers of shape {shape}.") from None
    if array.shape != shape:
        raise FileError(f"{what} has shape {array.shape}, expected {shape}.")
    if not np.all(np.isfinite(array)):
        raise FileError(f"{what} contains NaN or infinity.")
    return array


def _quoted(name: str) -> str:
    escaped = name.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
