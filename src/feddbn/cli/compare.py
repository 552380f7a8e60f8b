"""``feddbn compare``: several methods on the same data; ``feddbn score``: a result against the truth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from feddbn.cli.options import Data, Json, Params, complete_method, given_parameters, parse_n_lags, reads_data
from feddbn.cli.printed import print_comparison
from feddbn.cli.terminal import number, print_frame, print_json, print_table, progress, say
from feddbn.method_table import get_method

if TYPE_CHECKING:
    from feddbn.methods.comparison import Compared

__all__ = ["compare", "print_scores", "score"]


@reads_data()
def compare(
    data: Data,
    truth: Annotated[Path | None, typer.Option(help="truth.json of simulated data.")] = None,
    method: Annotated[
        list[str] | None,
        typer.Option(
            "--method",
            "-m",
            help="Repeat for each; all that fit by default.",
            autocompletion=complete_method,
        ),
    ] = None,
    personal: Annotated[
        bool, typer.Option("--personal", help="Also methods with one network per site.")
    ] = False,
    held_out: Annotated[
        float | None,
        typer.Option(help="Share of rows at the end of each recording to test on; 0.2 without a truth."),
    ] = None,
    n_lags: Annotated[str | None, typer.Option(help="Number of lags.")] = None,
    param: Params = None,
    as_json: Json = False,
    *,
    read: dict[str, Any],
) -> None:
    """Learn with several methods from the same data and show how good each is.

    With a truth: structural errors (SHD), share of true edges found (TPR), share of found edges that are
    wrong (FDR). Without one: mean log-likelihood of rows that no method has seen; higher is better.
    """
    from feddbn.data import read_sites
    from feddbn.methods.comparison import compare as compare_methods
    from feddbn.methods.comparison import default_methods
    from feddbn.methods.truth import read_truth

    true = None if truth is None else read_truth(truth)
    methods = [get_method(name) for name in method] if method else default_methods(true, personal)
    parameters = given_parameters(methods, read, param, n_lags=parse_n_lags(n_lags))
    sites = read_sites(data, kinds=parameters.get("kinds"), **read)
    share = (0.0 if true is not None else 0.2) if held_out is None else held_out
    with progress("compare", total=len(methods)) as (watch, part):
        lines = list(compare_methods(sites, methods, parameters, true, share, watch, part))
    found = {"held_out_share": share, "methods": [line.to_dict() for line in lines]}
    if as_json:
        print_json(found)
        return
    if true is not None:
        print_scores(lines)
    if share:
        print_comparison(found)


def print_scores(lines: Sequence[Compared]) -> None:
    """Print SHD, TPR and FDR of both parts."""
    rows = []
    for line in lines:
        assert line.scores is not None
        cells = [number(line.scores[part][key]) for part in ("W", "A") for key in ("shd", "tpr", "fdr")]
        known = line.to_dict()
        rows.append([known["label"], *cells, number(known["rounds"]), number(known["seconds"], 1)])
    heads = ["method", "W shd", "tpr", "fdr", "A shd", "tpr", "fdr", "rounds", "s"]
    print_table(heads, rows, "contemporaneous (W) and lagged (A) edges")


_COLUMNS = ("shd", "shd_paper", "tpr", "fdr", "precision", "f1")


def score(
    truth: Annotated[
        Path, typer.Argument(help="truth.json, a stored network or a result.", show_default=False)
    ],
    result: Annotated[Path, typer.Argument(help="A result or a stored network.", show_default=False)],
    as_json: Json = False,
) -> None:
    """Score a result against the truth, contemporaneous (W) and lagged edges (A).

    shd counts a reversed edge once, shd_paper twice. If the sites have different truths, each site's network
    is scored against its own and the means are shown.
    """
    from feddbn.methods.scoring import score as score_shared
    from feddbn.methods.scoring import score_by_kind, score_sites
    from feddbn.methods.truth import read_estimate, read_truth, truth_of_sites
    from feddbn.model.dbn import DBN

    true, found = read_truth(truth), read_estimate(result)
    if isinstance(true, DBN) and isinstance(found, DBN):
        scores = score_shared(true, found)
        by_kind = score_by_kind(true, found).reset_index() if true.conditionals else None
        if as_json:
            print_json(scores.to_dict() | ({} if by_kind is None else {"by_kind": by_kind}))
            return
        _print("edges against the truth", scores)
        skeleton = scores.skeleton
        if by_kind is not None:
            shown = by_kind[["part", "kind", "shd", "tpr", "fdr", "f1", "n_true"]]
            print_frame(shown, "by the kind of the target", n_text=2)
        say(f"Regardless of contemporaneous directions: shd {skeleton.shd}, f1 {number(skeleton.f1)}.")
        return
    truths = truth_of_sites(true, found)
    per_site = score_sites(truths, found)
    if as_json:
        print_json(per_site.to_dict())
        return
    means = {part: {k.removeprefix("m"): v for k, v in per_site[part].items()} for part in per_site}
    alone = f"the network of {next(iter(truths))} against its truth"
    _print(
        alone if len(truths) == 1 else f"means over {len(truths)} sites, each against its own truth", means
    )


def _print(title: str, parts: Mapping[str, Mapping[str, Any]]) -> None:
    rows = [[part, *(number(parts[part][key]) for key in _COLUMNS)] for part in parts]
    print_table(["part", *_COLUMNS], rows, title)
