"""``feddbn score``: a result against the truth."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from feddbn.cli.options import Json
from feddbn.cli.terminal import number, print_frame, print_json, print_table, say

__all__ = ["score"]

_COLUMNS = ("shd", "shd_paper", "tpr", "fdr", "precision", "f1")


def score(
    truth: Annotated[
        Path, typer.Argument(help="truth.json, a stored network or a result.", show_default=False)
    ],
    result: Annotated[Path, typer.Argument(help="A result or a stored network.", show_default=False)],
    as_json: Json = False,
) -> None:
    """Score a result against the truth, edges within a moment (W) and lagged edges (A).

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
        say(f"Regardless of direction within a moment: shd {skeleton.shd}, f1 {number(skeleton.f1)}.")
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
