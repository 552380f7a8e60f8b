"""Networks of single sites beside one network for all: a site that does not fit has one of its own."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from sklearn.base import clone

from feddbn.core.statistics.survey import FEWEST_SITES
from feddbn.data import SiteData, summary
from feddbn.errors import FeddbnError, ResultWarning
from feddbn.federation.protocol.rows import does_not_fit
from feddbn.federation.protocol.site import Site
from feddbn.federation.protocol.task import Federation
from feddbn.methods.treated import of_site
from feddbn.model.dbn import DBN
from feddbn.runtime.simulated.in_process import InProcessFederation

__all__ = ["give_own_networks"]


def give_own_networks(estimator: Any, federation: Federation, sites: Mapping[str, SiteData] | None) -> None:
    """Set `dbns_`: site -> the common network, or of a site that stayed out what the same method learns from its rows alone.

    Where sites keep their data (`sites` is None) `dbns_` is empty: owners are told how to learn theirs at home.
    """
    estimator.dbns_ = {}
    done = getattr(estimator, "treatment_", None)
    if done is None or done["n_rows"] is None or len(federation.sites) < FEWEST_SITES:
        estimator._tell(
            f"on_disagreement='personal' did nothing: sites are compared where there are at least {FEWEST_SITES} and "
            "all of them answer the tasks 'survey' and 'agreement'."
        )
    if sites is None:
        return
    for name, site in sites.items():
        state = federation.state_of(name)
        if done is not None and done["left_out"] and state is not None and does_not_fit(state):
            own = _learned_alone(estimator, name, site)
            if own is not None:
                estimator.dbns_[name] = own
        else:
            estimator.dbns_[name] = estimator.dbn_


def _learned_alone(estimator: Any, name: str, site: SiteData) -> DBN | None:
    """What a copy of the estimator learns from one site; None, and a sentence, where that cannot be."""
    alone = clone(estimator).set_params(
        **{"federation": None, "prepare.on_disagreement": "ignore", **estimator.selected_}
    )
    alone._begin()
    alone._set_variables(tuple(site.variables))
    alone.sites_ = summary({name: site}, alone._largest_lag)
    try:
        with warnings.catch_warnings():
            # What the copy says is said by the estimator.
            warnings.simplefilter("ignore", ResultWarning)
            alone._fit(InProcessFederation({name: Site(name, site)}), {name: site}, None)
    except FeddbnError as error:
        estimator._tell(f"site {name!r} has no network of its own: {error}")
        return None
    estimator._tell(*(of_site(one, name, ", its own network") for one in alone.findings_))
    found: DBN = alone.dbn_
    return found
