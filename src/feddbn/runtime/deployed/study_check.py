"""Everything for which a site would refuse a study, found before it is sent; nothing leaves the site."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from feddbn._version import __version__
from feddbn.data.checks import check_sites, summary
from feddbn.errors import FeddbnError, SiteRefused
from feddbn.federation.guards.disclosure import counted_rows
from feddbn.federation.guards.study_scope import lacking_tasks, scope_of
from feddbn.federation.protocol.endpoint import agree, chosen_variables
from feddbn.federation.protocol.study import Study
from feddbn.privacy.policy import SitePolicy
from feddbn.runtime.deployed.books import account_of
from feddbn.runtime.deployed.masking import read_identity, read_peers
from feddbn.runtime.deployed.open_site import read_data, study_checks
from feddbn.runtime.deployed.registers import FileShelf
from feddbn.runtime.deployed.settings import SiteSettings
from feddbn.runtime.deployed.store import REGISTER

__all__ = ["study_remarks", "why_refused"]


def why_refused(
    settings: SiteSettings, policy: SitePolicy, variables: Sequence[str], study: Study
) -> list[str]:
    """Return one sentence for everything that would make this site refuse the study; none if it would take part."""
    own: list[Callable[[], None]] = [lambda: agree(study, settings.name, variables, __version__)]
    own += [lambda check=check: check(study) for check in study_checks(settings, policy)]  # type: ignore[misc]
    own += [
        lambda: _masking(settings, study),
        lambda: _budget(settings, policy, study),
        lambda: _rows(settings, policy, variables, study),
    ]
    found: list[str] = []
    for check in own:
        try:
            check()
        except FeddbnError as error:
            if str(error) not in found:
                found.append(str(error))
    return found


def study_remarks(
    settings: SiteSettings, policy: SitePolicy, variables: Sequence[str], study: Study
) -> Iterator[str]:
    """Yield what the owner of the data should know about a study that would not be refused."""
    perhaps = lacking_tasks(policy, study)
    if perhaps:
        yield f"it may ask for {', '.join(perhaps)}, which the policy does not list and this site would refuse then"
    if _has_other_sites(settings, policy, study):
        yield (
            "earlier sums over data of this site had other sites: unless many sites have new data, sums of this study would "
            "be refused, because together with those they show single sites; ask the same sites, or use noise"
        )
    names = chosen_variables(study, variables)
    unused = [name for name in variables if name not in names]
    if unused:
        yield f"not asked for: {', '.join(unused[:8])}{', ...' if len(unused) > 8 else ''}; these columns are not read"
    silent = [name for name in names if name in study.units and name not in settings.units]
    if silent:
        wanted = ", ".join(f"{name} in {study.units[name]}" for name in silent)
        yield f"the study means {wanted}; say it in `units` of the settings if that is so, or convert the data"
    unsaid = [name for name in names if name in settings.units and name not in study.units]
    if unsaid:
        yield f"the study does not say the units of {', '.join(unsaid)}; ask the lead for a [units] table"
    n_lags = 1 if study.n_lags is None else study.n_lags
    rows = summary({settings.name: read_data(settings, names)}, n_lags).iloc[0]
    yield (
        f"{int(rows['usable_rows'])} of {int(rows['rows'] + rows['dropped_rows'])} rows can be used with n_lags = {n_lags}, "
        f"{int(rows['complete_rows'])} of them without an empty cell; {rows['missing_percent']:.1f} % of the cells are empty"
    )
    few = int(rows["usable_rows"] - rows["complete_rows"])
    if 0 < few < policy.min_rows and "fill" in scope_of(study, settings.max_lags).transformations:
        yield f"the {few} rows with an empty cell are too few to be filled in and are left out (min_rows in the policy)"


def _has_other_sites(settings: SiteSettings, policy: SitePolicy, study: Study) -> bool:
    """Whether the register has a sum over other sites than the study's, with which the study's would show a few."""
    if not study.privacy.secure_aggregation or study.privacy.epsilon is not None or settings.peers is None:
        return False
    from feddbn.privacy.register import member, shown_by

    peers = read_peers(settings.peers)
    # The versions of the others' data are not known here; as if no data had changed.
    now = frozenset(member(peers[site], "") for site in study.sites)
    shelf = FileShelf(settings.state / REGISTER, "", "")
    before = {frozenset(one.partition(":")[0] + ":" for one in entry.members) for entry in shelf.entries()}
    return bool(shown_by(now, before, max(policy.min_sites, study.privacy.min_sites)))


def _masking(settings: SiteSettings, study: Study) -> None:
    if not study.privacy.secure_aggregation:
        return
    if settings.identity is None or settings.peers is None:
        raise SiteRefused(
            "the study asks for secure aggregation, which is not set up at this site; `identity` and `peers` in its "
            "settings name the two files."
        )
    read_identity(settings.identity)
    peers = read_peers(settings.peers)
    unknown = [site for site in study.sites if site not in peers]
    if unknown:
        raise SiteRefused(
            f"{settings.peers} has no key of {', '.join(unknown)}; ask these sites for their public keys."
        )


def _budget(settings: SiteSettings, policy: SitePolicy, study: Study) -> None:
    if policy.max_epsilon is None or study.privacy.epsilon is None:
        return
    account = account_of(settings)
    if account.spent(policy.unit, policy.delta) >= policy.max_epsilon:
        raise SiteRefused(
            f"this site's privacy budget: {account.words(policy).rstrip('.')}; no further study with noise can be answered."
        )


def _rows(settings: SiteSettings, policy: SitePolicy, variables: Sequence[str], study: Study) -> None:
    names = chosen_variables(study, variables)
    if not names:
        return
    data, n_lags = read_data(settings, names, study.kinds), study.n_lags or 0
    check_sites({settings.name: data}, n_lags)
    if study.privacy.epsilon is None:
        n_rows = sum(counted_rows(data.recordings(), n_lags))
        policy.check_rows(n_rows, (n_lags + 1) * len(names))
        policy.check_share(n_rows, study.rows)
