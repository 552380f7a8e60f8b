"""``feddbn export``: a network for other programs."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from feddbn.cli.options import Json, Network, OfSite
from feddbn.cli.terminal import tell
from feddbn.errors import ParameterError

if TYPE_CHECKING:
    from feddbn.model.dbn import DBN

__all__ = ["export"]


class Form(Enum):
    """What a network can be written as."""

    json = "json"
    npz = "npz"
    csv = "csv"
    graphml = "graphml"
    dot = "dot"
    lingam = "lingam"
    tigramite = "tigramite"
    curves = "curves"
    coefficients = "coefficients"


def export(
    network: Network,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Where to write; .json, .npz, .csv, .graphml, .dot.")
    ],
    form: Annotated[
        Form | None,
        typer.Option(
            "--format",
            help="By default what the name ends in; lingam and tigramite are .npz files, curves a .csv table of every effect "
            "that is no straight line, coefficients one of every effect on variables of other kinds.",
        ),
    ] = None,
    of: OfSite = None,
    as_json: Json = False,
) -> None:
    """Write a network as JSON, numpy archive, edge list, GraphML, DOT, arrays of lingam or tigramite, or its curves."""
    from feddbn.methods.truth import read_network

    dbn = read_network(network, of)
    chosen = form or _form_of(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    _write(dbn, chosen, out)
    tell(as_json, {"file": str(out), "format": chosen.value}, f"Network: {out}")


def _form_of(path: Path) -> Form:
    ending = path.suffix.lower().lstrip(".")
    tables = (Form.lingam, Form.tigramite, Form.curves, Form.coefficients)
    known = [form.value for form in Form if form not in tables]
    if ending not in known:
        endings = ", ".join(f".{name}" for name in known)
        raise ParameterError(
            f"--out {str(path)!r} does not say what to write: end it in {endings}, or give --format."
        )
    return Form(ending)


def _write(dbn: DBN, form: Form, path: Path) -> None:
    import numpy as np

    names = np.array(dbn.variables)
    if form in (Form.lingam, Form.tigramite) and path.suffix != ".npz":
        raise ParameterError(
            f"--out {str(path)!r} must end in .npz, because {form.value} takes several arrays."
        )
    if form is Form.curves:
        if not (dbn.curves or dbn.products):
            raise ParameterError(
                "--format curves needs a network with curves, but all effects of this one are straight."
            )
        dbn.to_curves_csv(path)
    elif form is Form.coefficients:
        dbn.to_coefficients_csv(path)
    elif form is Form.lingam:
        np.savez(path, adjacency_matrices=dbn.to_lingam(), variables=names)
    elif form is Form.tigramite:
        graph, values = dbn.to_tigramite()
        np.savez(path, graph=graph, val_matrix=values, var_names=names)
    else:
        getattr(dbn, f"to_{form.value}")(path)
