"""A network as graphs, arrays of other packages and files, and back: `feddbn.model.dbn.DBN` offers all of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from feddbn.core.arrays import FloatArray
from feddbn.errors import ParameterError
from feddbn.model import arrays, export, graph
from feddbn.model.kind_questions import KindQuestions

if TYPE_CHECKING:
    import networkx as nx

__all__ = ["Interchange"]


class Interchange(KindQuestions):
    """A network, and the forms in which others read and write it."""

    @classmethod
    def from_edges(
        cls, edges: pd.DataFrame, variables: Sequence[str] | None = None, n_lags: int | None = None
    ) -> Self:
        """Network of an edge list; name the `variables` if some have no edge."""
        return cls(**graph.parts_of_edges(edges, variables, n_lags))

    def to_networkx(self, kind: Literal["time-series", "summary"] = "time-series") -> nx.DiGraph:
        """Graph with nodes ``{variable}_lag{l}``, or (``"summary"``) over the variables."""
        if kind not in ("time-series", "summary"):
            raise ParameterError(f"kind must be 'time-series' or 'summary', got {kind!r}.")
        return graph.time_series_graph(self) if kind == "time-series" else graph.summary_graph(self)

    @classmethod
    def from_networkx(cls, time_series_graph: nx.DiGraph) -> Self:
        """Inverse of `to_networkx` (``"time-series"``)."""
        return cls(**graph.parts_of_graph(time_series_graph))

    def to_lingam(self) -> FloatArray:
        """(n_lags+1, d, d) in lingam's orientation [to, from]; it has no mark for an open direction."""
        return arrays.lingam_arrays(self)

    @classmethod
    def from_lingam(cls, adjacency_matrices: ArrayLike, variables: Sequence[str] | None = None) -> Self:
        """Network of ``VARLiNGAM.adjacency_matrices_``."""
        stack = arrays.stack_of_lingam(adjacency_matrices)
        return cls(stack[0], stack[1:], variables)

    def to_tigramite(self) -> tuple[NDArray[np.str_], FloatArray]:
        """(graph, val_matrix), both (d, d, n_lags+1), as tigramite's plotting wants them; open edges are 'o-o'."""
        return arrays.tigramite_arrays(self)

    @classmethod
    def from_tigramite(
        cls, graph: Any, val_matrix: ArrayLike, variables: Sequence[str] | None = None
    ) -> Self:
        """Network of a fully directed tigramite graph with its values as weights."""
        stack = arrays.stack_of_tigramite(graph, val_matrix)
        return cls(stack[0], stack[1:], variables)

    def to_dict(self) -> dict[str, Any]:
        """The stored form (docs/schema.md) as plain lists and text."""
        return export.plain_dict(self)

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Self:
        """Inverse of `to_dict`."""
        return cls(**export.parts_of_dict(stored))

    def to_json(self, path: str | Path | None = None) -> str:
        """JSON text of the stored form, also written to `path` if given."""
        return export.write_text(export.json_text(self), path)

    @classmethod
    def from_json(cls, source: str | Path) -> Self:
        """Inverse of `to_json`, from a path or from the text itself."""
        return cls(**export.parts_of_json(source))

    def to_npz(self, path: str | Path) -> None:
        """Write the stored form as a numpy archive."""
        export.write_npz(self, path)

    @classmethod
    def from_npz(cls, path: str | Path) -> Self:
        """Inverse of `to_npz`."""
        return cls(**export.parts_of_npz(path))

    def to_csv(self, path: str | Path | None = None) -> str:
        """Edge list as CSV text, also written to `path` if given; carries weights and open directions only."""
        return export.write_text(export.csv_text(self), path)

    @classmethod
    def from_csv(
        cls, source: str | Path, variables: Sequence[str] | None = None, n_lags: int | None = None
    ) -> Self:
        """Network of a CSV edge list (path or text)."""
        return cls(**export.parts_of_csv(source, variables, n_lags))

    def to_graphml(self, path: str | Path | None = None) -> str:
        """GraphML text of the time-series graph, also written to `path` if given."""
        return export.write_text(export.graphml_text(self), path)

    @classmethod
    def from_graphml(cls, source: str | Path) -> Self:
        """Inverse of `to_graphml`, from a path or from the text itself."""
        return cls(**export.parts_of_graphml(source))

    def to_dot(self, path: str | Path | None = None) -> str:
        """Graphviz DOT text of the time-series graph, also written to `path` if given."""
        return export.write_text(export.dot_text(self), path)
