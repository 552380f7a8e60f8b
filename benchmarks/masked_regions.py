"""Two-level sums in one process: sites add up within regions, under masks, and regions add up under masks again.

Theory of operation
-------------------
A region is a federation with secure aggregation and a server of its own. That server opens one thing: the sum over its
region, of at least `min_sites` sites, by the same rules as any masked sum. Towards the top the region is one site, whose
answer is that sum; regions mask it against each other, so the top opens nothing but the sum over all regions.

    who                          sees
    a region's server            masked vectors of its sites; its region's sum (min_sites sites or more)
    the top                      masked sums of regions; the sum over all sites
    all servers together         the sums of regions, and no combination of fewer than min_sites sites

Sites compare what they were asked with the sites of their region, regions with each other. A region is masked by the same
code as a site, so a region can be made of regions (at most 255 members a level, as the shares of secrets allow).

Known weakness: a third of the *sites of a region*, together with its server, can do what it takes a third of all sites to do
in one level. Regions should be large; docs/performance.md says how large costs what.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from feddbn.core.arrays import FloatArray
from feddbn.core.designs.recordings import Recording
from feddbn.errors import NotEnoughSites, ParameterError, ProtocolError
from feddbn.federation.protocol.site import Channel, Guard, Here, Site, SiteState, SiteTask
from feddbn.federation.protocol.task import Sum, Task
from feddbn.privacy.integers import MAX_SHARES
from feddbn.privacy.keys import RandomBytes
from feddbn.privacy.policy import DEFAULT_MIN_SITES
from feddbn.runtime.masked import SecureFederation
from feddbn.runtime.simulated.secure import Fault, secure_federation

__all__ = ["RegionalFederation", "regional_federation"]

FEWEST_REGIONS = 2
"""With two, each learns the other's sum by subtracting its own: a sum of min_sites sites, which it may see."""


@dataclass(frozen=True)
class _NoRows:
    """What a region has of its own: names of variables, and no recording."""

    variables: tuple[str, ...]

    def recordings(self) -> Iterator[Recording]:
        return iter(())


class _RegionSum(Guard):
    """Answers a question with the sum over a region."""

    def __init__(self, region: SecureFederation | RegionalFederation) -> None:
        self.region = region
        self.contributors: tuple[str, ...] = ()

    def make(
        self, program: SiteTask, here: Here, task: Task, channel: Channel
    ) -> tuple[SiteState, FloatArray] | None:
        total = self.region.sum(replace(task, participants=None))
        self.contributors = total.contributors
        return here.state, total.value


class RegionalFederation:
    """A federation of regions: of secure federations, or of such federations again.

    Parameters
    ----------
    regions
        Name -> the region; no site may be in two.
    run
        Name of the run.
    random_bytes
        Source of keys.
    fault
        Faults between regions and the top, as in `InProcessCourier`; for tests.
    """

    answered_tasks: frozenset[str] | None = None
    sites: tuple[str, ...]
    variables: tuple[str, ...]

    def __init__(
        self,
        regions: Mapping[str, SecureFederation | RegionalFederation],
        run: str = "run",
        random_bytes: RandomBytes = os.urandom,
        fault: Callable[[str, str], Fault | None] | None = None,
    ) -> None:
        if not FEWEST_REGIONS <= len(regions) <= MAX_SHARES:
            raise NotEnoughSites(
                f"regions has {len(regions)} members, but {FEWEST_REGIONS} to {MAX_SHARES} can mask their sums; make more, "
                "or regions of regions."
            )
        seen: dict[str, str] = {}
        for region, federation in regions.items():
            if not isinstance(federation, (SecureFederation, RegionalFederation)):
                raise ParameterError(
                    f"region {region!r} adds up in the clear; make it with secure_federation or regional_federation."
                )
            for site in federation.sites:
                if site in seen:
                    raise ParameterError(
                        f"site {site!r} is in the regions {seen[site]!r} and {region!r}; every site is in one."
                    )
                seen[site] = region
        self.sites = tuple(sorted(seen))
        self.variables = tuple(dict.fromkeys(name for one in regions.values() for name in one.variables))
        self._sums = {name: _RegionSum(regions[name]) for name in sorted(regions)}
        members = {name: Site(name, _NoRows(self.variables), (one,)) for name, one in self._sums.items()}
        self._top = secure_federation(members, FEWEST_REGIONS, None, run, random_bytes, fault)

    def state_of(self, site: str) -> None:
        """Return None: the state behind a masked answer is the site's own business."""

    def sum(self, task: Task) -> Sum:
        """Return the sum over all regions; contributors are the sites whose numbers are in it."""
        if task.participants is not None and set(task.participants) != set(self.sites):
            raise ProtocolError(
                f"task {task.name!r} names some of the sites; under secure aggregation every site takes part in every sum."
            )
        opened = self._top.sum(replace(task, participants=None))
        contributors = [site for name in opened.contributors for site in self._sums[name].contributors]
        return Sum(opened.value, tuple(sorted(contributors)))


def regional_federation(
    sites: Mapping[str, Site],
    regions: Mapping[str, Sequence[str]],
    min_sites: int = DEFAULT_MIN_SITES,
    run: str = "run",
    random_bytes: RandomBytes = os.urandom,
) -> RegionalFederation:
    """Return a federation of sites in this process that add up in regions first.

    Parameters
    ----------
    sites
        All sites.
    regions
        Region -> names of its sites; every site is in one region, and a region has at least `min_sites`.
    min_sites
        Fewest sites whose sum a region's server may open.
    """
    listed = [site for names in regions.values() for site in names]
    for site in listed:
        if site not in sites:
            raise ParameterError(f"regions names the site {site!r}, which is not in sites; correct the name.")
    for site in sites:
        if site not in listed:
            raise ParameterError(
                f"site {site!r} is in no region; name it in regions, or leave it out of sites."
            )
    made = {}
    for region, names in regions.items():
        if not min_sites <= len(names) <= MAX_SHARES:
            raise NotEnoughSites(
                f"region {region!r} has {len(names)} sites, but {min_sites} (min_sites) to {MAX_SHARES} can mask "
                "their answers; merge or split regions."
            )
        own = {name: sites[name] for name in names}
        made[region] = secure_federation(own, min_sites, None, f"{run}/{region}", random_bytes)
    return RegionalFederation(made, run, random_bytes)
