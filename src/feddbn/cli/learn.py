"""From data to a network: ``feddbn fit``, ``update``, ``compare``, ``score``, ``select``, ``confidence``, ``power``."""

from __future__ import annotations

import shlex
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from feddbn.cli.options import (
    LINE,
    Data,
    Json,
    Params,
    Reading,
    complete_method,
    either,
    given_parameters,
    parse_n_lags,
    reads_data,
)
from feddbn.cli.printed import (
    All,
    print_notes,
    print_result,
    print_shared_edges,
    print_tables,
    warnings_at_end,
)
from feddbn.cli.terminal import number, print_frame, print_json, print_table, progress, say, write_csv
from feddbn.errors import ParameterError, ResultWarning
from feddbn.findings import Findings
from feddbn.method_table import METHODS, default_method, get_method
from feddbn.words.tables import held_out_tables

if TYPE_CHECKING:
    from feddbn.analysis.comparison import Compared


__all__ = ["compare", "confidence", "fit", "power", "print_scores", "score", "select", "update"]


@reads_data()
def fit(
    data: Data,
    out: Annotated[Path, typer.Option("--out", "-o", help="Where to write the result.")] = Path(
        "result.json"
    ),
    method: Annotated[
        str | None,
        typer.Option(
            "--method",
            "-m",
            help=f"{', '.join(METHODS)}, or a method of an installed package. Default: {next(iter(METHODS))}.",
            show_default=False,
            autocompletion=complete_method,
        ),
    ] = None,
    n_lags: Annotated[
        str | None, typer.Option(help="Number of lags, or auto if the method can choose it.")
    ] = None,
    lambda_w: Annotated[float | None, typer.Option(help="Penalty of contemporaneous edges.")] = None,
    lambda_a: Annotated[float | None, typer.Option(help="Penalty of lagged edges.")] = None,
    forbid: Annotated[
        list[str] | None,
        typer.Option(metavar="FROM,TO,LAG", help="An edge that cannot exist; * is any variable."),
    ] = None,
    require: Annotated[
        list[str] | None, typer.Option(metavar="FROM,TO,LAG", help="An edge that must exist.")
    ] = None,
    param: Params = None,
    truth: Annotated[
        Path | None, typer.Option(help="True network of simulated data, to store in the result.")
    ] = None,
    keep_sums: Annotated[
        bool,
        typer.Option(
            "--keep-sums",
            help="Keep the summed moments in the result, so that `feddbn update` can add new rows.",
        ),
    ] = False,
    min_count: Annotated[
        int,
        typer.Option(
            min=1, help="Methods with one network per site: hide counts of sites below this number."
        ),
    ] = 1,
    show_all: All = False,
    as_json: Json = False,
    *,
    read: Reading,
) -> None:
    """Learn a network from the data of several sites and write it to a JSON file.

    All rows are read on this machine. To learn from sites that keep their rows, see feddbn federation --help.
    """
    from feddbn.analysis.comparison import fit_method
    from feddbn.analysis.truth import read_truth
    from feddbn.model.dbn import DBN
    from feddbn.results.result import Result

    chosen = get_method(method or default_method())
    true = None if truth is None else read_truth(truth)
    parameters = given_parameters(
        [chosen],
        read,
        param,
        n_lags=parse_n_lags(n_lags),
        lambda_w=lambda_w,
        lambda_a=lambda_a,
        forbidden_edges=[_edge("forbid", text) for text in forbid] if forbid else None,
        required_edges=[_edge("require", text) for text in require] if require else None,
    )
    with progress(chosen.label) as (watch, _), warnings.catch_warnings():
        # The result carries these sentences and they are printed from there.
        warnings.simplefilter("ignore", ResultWarning)
        estimator = fit_method(chosen, data, parameters, watch, layout=read.layout)
    known = true if isinstance(true, DBN) else None
    result = Result.from_estimator(estimator, truth=known, keep_sums=keep_sums)
    result.save(out)
    report = estimator.shared_edges(min_count) if hasattr(estimator, "shared_edges") else None
    if as_json:
        shared = {} if report is None else {"shared_edges": report.to_dict()}
        print_json({"result": str(out), **result.to_dict(), **shared})
        return
    print_result(result, show_all)
    if report is not None:
        print_shared_edges(report)
    say(f"Result: {out}")


def _edge(option: str, text: str) -> tuple[str, str, int]:
    parts = [part.strip() for part in text.rsplit(",", 2)]
    if len(parts) == 3 and parts[2].lstrip("-").isdigit():
        return parts[0], parts[1], int(parts[2])
    raise ParameterError(f"--{option} {text!r} must look like FROM,TO,LAG, for example --{option} x0,x1,0.")


@reads_data()
def update(
    result: Annotated[Path, typer.Argument(help="A result of `feddbn fit --keep-sums`.", show_default=False)],
    data: Data,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Where to write the new result; by default over the old one."),
    ] = None,
    show_all: All = False,
    as_json: Json = False,
    *,
    read: Reading,
) -> None:
    """Add new rows to a stored result and learn the network again; the old rows are not needed.

    Lags do not connect new rows to old ones. If a recording continues, begin its new file with its last n_lags rows.
    """
    import pandas as pd

    from feddbn.method_table import make_estimator
    from feddbn.results.result import Result

    stored = Result.load(result)
    if stored.sums is None:
        raise ParameterError(
            f"RESULT {str(result)!r} holds no sums, so new rows cannot be added; fit all rows again, with --keep-sums."
        )
    method = next((name for name, row in METHODS.items() if row.cls == stored.method), stored.method)
    layout = read.for_rows_of(stored.dbn.variables)
    with progress(method) as (watch, _), warnings.catch_warnings():
        warnings.simplefilter("ignore", ResultWarning)
        estimator = make_estimator(method, stored.parameters)
        if not hasattr(estimator, "take_up"):
            raise ParameterError(
                f"RESULT {str(result)!r} comes from {stored.method}, which cannot be updated."
            )
        sites = pd.DataFrame(stored.sites).set_index("name") if stored.sites else pd.DataFrame()
        estimator.take_up(stored.sums, sites, stored.n_rounds or 0, f"file {str(result)!r}")
        estimator.update(data, observer=watch, layout=layout)
    found = Result.from_estimator(estimator, truth=stored.truth, keep_sums=True)
    path = found.save(out or result)
    if as_json:
        print_json({"result": str(path), **found.to_dict()})
        return
    print_result(found, show_all)
    say(f"Result: {path}")


@reads_data()
def compare(
    data: Data,
    truth: Annotated[Path | None, typer.Option(help="True network of simulated data (truth.json).")] = None,
    method: Annotated[
        list[str] | None,
        typer.Option(
            "--method",
            "-m",
            help="A method; repeat for more. By default all suitable ones.",
            autocompletion=complete_method,
        ),
    ] = None,
    personal: Annotated[
        bool, typer.Option("--personal", help="Also compare methods with one network per site.")
    ] = False,
    held_out: Annotated[
        float | None,
        typer.Option(help="Share of rows at the end of each recording to test on; 0.2 without --truth."),
    ] = None,
    n_lags: Annotated[str | None, typer.Option(help="Number of lags.")] = None,
    param: Params = None,
    as_json: Json = False,
    *,
    read: Reading,
) -> None:
    """Learn with several methods from the same data and show how good each is.

    With --truth: structural errors (SHD), share of true edges found (TPR), share of found edges that are
    wrong (FDR). Without it: mean log-likelihood of held-out rows; higher is better.
    """
    from feddbn.analysis.comparison import compare as compare_methods
    from feddbn.analysis.comparison import default_methods
    from feddbn.analysis.truth import read_truth
    from feddbn.data import read_sites

    true = None if truth is None else read_truth(truth)
    methods = [get_method(name) for name in method] if method else default_methods(personal)
    parameters = given_parameters(methods, read, param, n_lags=parse_n_lags(n_lags))
    sites = read_sites(data, layout=read.with_kinds(parameters.get("kinds")))
    share = (0.0 if true is not None else 0.2) if held_out is None else held_out
    with progress("compare", total=len(methods)) as (watch, part), warnings_at_end() as found_by:
        lines = list(compare_methods(sites, methods, parameters, true, share, watch, part))
        found_by.update({line.method.label: line.estimator.findings_ for line in lines})
    found = {"held_out_share": share, "methods": [line.to_dict() for line in lines]}
    if as_json:
        print_json(found)
        return
    if true is not None:
        print_scores(lines)
    if share:
        print_tables(held_out_tables({"comparison": found}))


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
    """Score a result against the true network, for contemporaneous (W) and lagged edges (A).

    shd counts a reversed edge once, shd_paper twice. If the sites have different true networks, each site's network
    is scored against its own, and means are shown.
    """
    from feddbn.analysis.truth import read_estimate, read_truth, truth_of_sites
    from feddbn.model.dbn import DBN
    from feddbn.results.scoring import score as score_shared
    from feddbn.results.scoring import score_by_kind, score_sites

    true, found = read_truth(truth), read_estimate(result)
    if isinstance(true, DBN) and isinstance(found, DBN):
        scores = score_shared(true, found)
        by_kind = score_by_kind(true, found).reset_index() if true.has_kinds else None
        if as_json:
            print_json(scores.to_dict() | ({} if by_kind is None else {"by_kind": by_kind}))
            return
        _print_parts("edges against the truth", scores)
        skeleton = scores.skeleton
        if by_kind is not None:
            shown = by_kind[["part", "kind", "shd", "tpr", "fdr", "f1", "n_true"]]
            print_frame(shown, "by kind of the effect variable", n_text=2)
        say(f"Ignoring contemporaneous directions: shd {skeleton.shd}, f1 {number(skeleton.f1)}.")
        return
    truths = truth_of_sites(true, found)
    per_site = score_sites(truths, found)
    if as_json:
        print_json(per_site.to_dict())
        return
    means = {part: {k.removeprefix("m"): v for k, v in per_site[part].items()} for part in per_site}
    alone = f"the network of {next(iter(truths))} against its truth"
    _print_parts(
        alone if len(truths) == 1 else f"means over {len(truths)} sites, each against its own truth", means
    )


def _print_parts(title: str, parts: Mapping[str, Mapping[str, Any]]) -> None:
    rows = [[part, *(number(parts[part][key]) for key in _COLUMNS)] for part in parts]
    print_table(["part", *_COLUMNS], rows, title)


_SELECTING = either(method.name for method in METHODS.values() if method.selects)


@reads_data()
def select(
    data: Data,
    grid: Annotated[
        list[str] | None,
        typer.Option(
            "--grid",
            "-g",
            metavar="KEY=V1,V2,...",
            help="Values to try; repeat to combine. By default both penalties, or mu for pfdbnl.",
        ),
    ] = None,
    method: Annotated[str, typer.Option("--method", "-m", help=f"{_SELECTING}.")] = "fdbnl",
    n_blocks: Annotated[int, typer.Option(help="Number of consecutive blocks of held-out rows.")] = 2,
    share: Annotated[
        float, typer.Option(help="Share of rows at the end of each recording to test on.")
    ] = 0.3,
    rule: Annotated[
        str, typer.Option(help="How to choose: one-standard-error or best.")
    ] = "one-standard-error",
    n_lags: Annotated[str | None, typer.Option(help="Number of lags, unless the grid sets it.")] = None,
    param: Params = None,
    as_json: Json = False,
    *,
    context: typer.Context,
    read: Reading,
) -> None:
    """Choose parameters by the loss on held-out rows of every site; only sums of losses are used.

    Example: feddbn select DATA -g n_lags=1,2,3 -g lambda_w=0.1,0.05
    """
    from feddbn.method_table import make_estimator
    from feddbn.methods import selection

    chosen = get_method(method)
    given = given_parameters([chosen], read, param, n_lags=parse_n_lags(n_lags))
    estimator = make_estimator(chosen.name, given)
    candidates = _grid(grid) if grid else selection.default_grid(chosen)
    options: dict[str, Any] = {"n_blocks": n_blocks, "share": share, "rule": rule, "layout": read.layout}
    with progress(f"{chosen.label}: select") as (watch, _):
        found = selection.select(estimator, data, candidates, observer=watch, **options)
    line = _fit_line(context.meta[LINE], chosen.name, found.chosen)
    if as_json:
        print_json({**found.to_dict(), "fit": line})
        return
    print_tables(held_out_tables({"selection": found.to_dict()}))
    say(f"Fit with: {shlex.join(line)}")


_OF_SELECT = ("--grid", "--method", "--n-blocks", "--share", "--rule")
_SHORT = {"-g": "--grid", "-m": "--method", "-p": "--param"}


def _fit_line(typed: Sequence[str], method: str, chosen: Mapping[str, Any]) -> list[str]:
    """The line that fits with what was chosen: what was typed, without what only `select` takes."""
    line, words = ["feddbn", "fit"], iter(typed[1:])
    for word in words:
        option, value = _option(word, words)
        key = "n_lags" if option == "--n-lags" else value.partition("=")[0].strip().replace("-", "_")
        if option in ("--param", "--n-lags"):
            line += [] if key in chosen else [option, value]
        elif option not in _OF_SELECT and word != "--json":
            line.append(word)
    settings = (word for name, value in chosen.items() for word in ("-p", f"{name}={value}"))
    return [*line, "--method", method, *settings]


def _option(word: str, following: Iterator[str]) -> tuple[str, str]:
    """The long name of an option that `select` and `fit` treat differently, and its value, however the two are written."""
    short = _SHORT.get(word[:2])
    option, is_whole, value = (short, word[2:], word[2:]) if short else word.partition("=")
    if option in (*_OF_SELECT, "--param", "--n-lags"):
        return option, value if is_whole else next(following, "")
    return "", ""


def _grid(texts: list[str]) -> dict[str, list[Any]]:
    grid: dict[str, list[Any]] = {}
    for text in texts:
        key, sign, values = text.partition("=")
        grid[key.strip().replace("-", "_")] = [_number(value.strip()) for value in values.split(",")]
        if not sign or not key.strip() or "" in values.split(","):
            raise ParameterError(f"--grid {text!r} must look like key=v1,v2,..., for example -g n_lags=1,2.")
    return grid


def _number(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


_MOST_ROWS = 20
_RESAMPLING = either(method.name for method in METHODS.values() if method.resamples)


@reads_data()
def confidence(
    data: Data,
    out: Annotated[Path, typer.Option("--out", "-o", help="Where to write the table.")] = Path("edges.csv"),
    method: Annotated[str, typer.Option("--method", "-m", help=f"{_RESAMPLING}.")] = "oneshot",
    n_lags: Annotated[str | None, typer.Option(help="Number of lags.")] = None,
    param: Params = None,
    replicates: Annotated[int, typer.Option(help="How many resamples are drawn.")] = 100,
    level: Annotated[float, typer.Option(help="Coverage of the intervals of weights.")] = 0.9,
    seed: Annotated[int, typer.Option(help="The same seed and data give the same table.")] = 0,
    jobs: Annotated[int, typer.Option(help="Number of processes.")] = 1,
    show_all: All = False,
    as_json: Json = False,
    *,
    read: Reading,
) -> None:
    """Learn again from resamples of parts of the rows and count how often each edge is found.

    Writes a table with the columns source, target, lag, weight, ci_low, ci_high, probability, presence, direction, oriented.
    Networks with curved effects add a column: how often each effect was curved. `feddbn report RESULT --edges TABLE` shows
    the table beside the graph. With --method latent the columns are source, target, lag, mark (the type of edge, such as
    -->), edge, same, cause, hidden, reverse.
    """
    from feddbn.analysis.confidence import confidence as resampled
    from feddbn.data import read_sites
    from feddbn.method_table import make_estimator

    parameters = given_parameters([get_method(method)], read, param, n_lags=parse_n_lags(n_lags))
    estimator = make_estimator(method, parameters)
    sites = read_sites(data, layout=read.with_kinds(parameters.get("kinds")))
    with progress("refits", total=max(replicates, 1)) as (_, part), warnings.catch_warnings():
        # `feddbn fit` gives this advice; a table of probabilities cannot act on it.
        warnings.simplefilter("ignore", ResultWarning)
        table = resampled(
            estimator,
            sites,
            replicates,
            random_state=seed,
            level=level,
            n_jobs=jobs,
            progress=lambda done: part("refits"),
        )
    write_csv(table, out)
    if as_json:
        print_json({"edges": table, "file": str(out), **table.attrs})
        return
    if "mark" in table:
        print_frame(table.head(_MOST_ROWS), n_text=2)
        own = table[table["mark"] != ""]
        say(
            f"{int((own['same'] >= 0.9).sum())} of {len(own)} edges keep their type (mark) in at least 90 % of the refits."
        )
        say(f"Edges: {out}")
        return
    shown = ["source", "target", "lag", "weight", "ci_low", "ci_high", "presence", "direction"]
    shown += ["curved"] if "curved" in table else []
    print_frame(table[shown].head(_MOST_ROWS).rename(columns={"presence": "link"}), n_text=2)
    sure = int((table["probability"] >= 0.9).sum())
    say(f"{sure} edges have probability 0.9 or more; {len(table)} were found at least once.")
    linked = table[(table["presence"] >= 0.9) & (table["probability"] < 0.9) & (table["weight"] != 0)]
    if len(linked):
        say(f"{len(linked)} more links have probability 0.9 or more, but their direction is less certain.")
    print_notes(Findings.stored_in({str(name): value for name, value in table.attrs.items()}), show_all)
    say(f"Edges: {out}")


def power(
    rows: Annotated[int, typer.Option(help="Rows of all sites together.", show_default=False)],
    sites: Annotated[int, typer.Option(help="Number of sites.")] = 1,
    recordings: Annotated[
        int | None,
        typer.Option(help="Number of recordings; one for each site if left out.", show_default=False),
    ] = None,
    variables: Annotated[int, typer.Option(help="Number of variables.")] = 10,
    n_lags: Annotated[int, typer.Option(help="Number of lags.")] = 1,
    missing: Annotated[float, typer.Option(help="Share of empty cells.")] = 0.0,
    masked: Annotated[bool, typer.Option(help="Sites add the noise of masked studies.")] = False,
    criterion: Annotated[str, typer.Option(help="Price of an edge: bic or ebic.")] = "bic",
    threshold: Annotated[
        float | None, typer.Option(help="Threshold of FDBNL instead.", show_default=False)
    ] = None,
    fdr: Annotated[
        float | None, typer.Option(help="Largest share of false edges instead.", show_default=False)
    ] = None,
    edges: Annotated[
        int | None,
        typer.Option(
            help="With --fdr: how many edges have such an effect; one for two variables if left out.",
            show_default=False,
        ),
    ] = None,
    effect: Annotated[
        list[float] | None,
        typer.Option(help="An effect to ask about; may be repeated. 0.1, 0.2, 0.3 and 0.5 if left out."),
    ] = None,
    pilot: Annotated[
        Path | None, typer.Option(help="A result whose network is like the one of the study.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
    as_json: Json = False,
) -> None:
    """Say which effects a study of this size can find.

    An effect is what one standard deviation of a cause, beside the other causes, does to its target, in standard deviations
    of the target's noise. --pilot takes the number of variables and lags from a result.
    """
    from feddbn.analysis.power import EFFECTS
    from feddbn.analysis.power import power as planned
    from feddbn.results.result import Result

    found = planned(
        rows,
        sites=sites,
        recordings=recordings,
        variables=variables,
        n_lags=n_lags,
        missing=missing,
        masked=masked,
        criterion=criterion,
        threshold=threshold,
        fdr=fdr,
        edges=edges,
        pilot=None if pilot is None else Result.load(pilot),
        random_state=seed,
    ).to_dict(tuple(effect or EFFECTS))
    if as_json:
        print_json(found)
        return
    say(f"{rows:,} rows are worth {found['n_effective']:,.0f} complete ones without noise.")
    if fdr is not None:
        say(f"Edges taken to have the effect that is asked about: {found['edges']}.")
    smallest, r = found["smallest_effect"], found["as_correlation"]
    if smallest is None:
        say("This study cannot tell: no effect is found with 80 % power.")
    else:
        say(f"Smallest effect with 80 % power: {smallest:.2f} sd (partial correlation {r:.2f}).")
    needed = ((size, share, found["rows_for"][size]) for size, share in found["power"].items())
    cells = [(size, f"{share:.0%}", "-" if n is None else f"{n:,}") for size, share, n in needed]
    print_table(("effect (sd)", "power", "rows for 80 %"), cells, n_text=0)
