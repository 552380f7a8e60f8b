"""A site for any platform: its folder, and what answers messages there."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from feddbn.errors import FeddbnError, FileError, SiteRefused
from feddbn.federation.protocol.messages import WITHHELD, encode_reply, refusal, sentence_of
from feddbn.privacy.keys import RandomBytes
from feddbn.runtime.settings import SiteSettings, read_site_settings
from feddbn.runtime.site.kit_files import SITE_SETTINGS, check_names, owner_only, write_site_files

if TYPE_CHECKING:
    from feddbn.runtime.site.current import CurrentSite

_log = logging.getLogger("feddbn.site")


class Endpoint(Protocol):
    """One site: bytes in, bytes out.

    All that it must remember is in its state folder before an answer leaves. So it may live as long as the site, or be opened
    anew for each message, also in a new process; of two that live at the same time only one goes on with a run. Its policy is
    what the file says at each message. Data are read for each new run, and a run whose data have changed is refused. `handle`
    may be called from several threads.

    Examples
    --------
    >>> import tempfile
    >>> from feddbn.engine import Endpoint, make_sites, open_site
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     site: Endpoint = open_site(make_sites(folder, ["north"])["north"])
    ...     reply = site.handle(b"no message")
    >>> type(reply), b"refusal" in reply
    (<class 'bytes'>, True)
    """

    @property
    def name(self) -> str:
        """The name by which messages find it."""
        ...

    def handle(self, message: bytes, caller: str = "server") -> bytes:
        """Return the reply to one message; a refusal is a reply, too, and nothing is raised.

        Parameters
        ----------
        message
            What the server sent, whole.
        caller
            Who sent it, where the platform lets others than the server reach a site: only "server" is answered.
        """
        ...


class _SiteInFolder:
    """A site whose data are read with the first message of a run: one that cannot read them refuses."""

    def __init__(self, settings: SiteSettings, submitter: str, entropy: RandomBytes) -> None:
        self._settings = settings
        self._submitter = submitter
        self._entropy = entropy
        self._site: CurrentSite | None = None
        self._opening = threading.Lock()

    @property
    def name(self) -> str:
        """The site's name."""
        return self._settings.name

    def handle(self, message: bytes, caller: str = "server") -> bytes:
        """Return the reply to one message."""
        try:
            return self._open().handle(message, caller)
        except Exception as error:
            # The reason is for the site's owner.
            unexpected = None if isinstance(error, FeddbnError) else error
            _log.error("site %s cannot answer: %s", self.name, sentence_of(error), exc_info=unexpected)
            return encode_reply(refusal(self.name, None, SiteRefused(WITHHELD, code="withheld")))

    def _open(self) -> CurrentSite:
        with self._opening:
            if self._site is None:
                # Imported with the first message: it takes longer than all else here.
                from feddbn.runtime.site.current import CurrentSite
                from feddbn.runtime.site.open_site import open_site

                about = (self._settings, self.name, _log, self._submitter)
                self._site = CurrentSite(
                    self._settings.policy, lambda: open_site(*about, keep_masks=True, entropy=self._entropy)
                )
            return self._site


def open_site(
    folder: str | Path, *, submitter: str = "", entropy: Callable[[int], bytes] = os.urandom
) -> Endpoint:
    """Return the endpoint of the site in a folder.

    Parameters
    ----------
    folder
        A site's kit, a folder with its ``feddbn_site.toml``, or that file.
    submitter
        Who sent the study, where the platform knows: a study that names another lead is then refused.
    entropy
        Returns so many random bytes, of which the site makes keys of a run, masks and noise. Only a test gives another
        source, one with a seed: who knows the seed can take masks and noise off.

    Raises
    ------
    FileError
        If there is no site, or its settings cannot be read.

    Examples
    --------
    >>> import tempfile
    >>> from feddbn.engine import make_sites, open_site
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     places = make_sites(folder, ["north", "south"])
    ...     open_site(places["north"]).name
    'north'
    """
    return _SiteInFolder(read_site_settings(_settings_in(Path(folder))), submitter, entropy)


class SiteCalled:
    """The site in a folder under the name that a platform gives it; where it is none, it refuses and its owner reads why."""

    def __init__(self, name: str, folder: str | Path, submitter: str) -> None:
        self.name = name
        self._about = (folder, submitter)
        self._site: Endpoint | None = None

    def handle(self, message: bytes, caller: str = "server") -> bytes:
        """Return the reply to one message."""
        try:
            self._site = self._site or self._found()
        except (FeddbnError, OSError) as error:
            _log.error("site %s cannot answer: %s", self.name, error)
            said = "the folder named there is none of this site; its owner reads in the log why."
            return encode_reply(refusal(self.name, None, SiteRefused(said, code="no-site")))
        return self._site.handle(message, caller)

    def _found(self) -> Endpoint:
        folder, submitter = self._about
        site = open_site(folder, submitter=submitter)
        if site.name != self.name:
            raise FileError(
                f"{folder} is for site {site.name!r}, but the platform calls this site {self.name!r}.",
                code="other-site",
            )
        return site


def _settings_in(folder: Path) -> Path:
    path = folder / SITE_SETTINGS if folder.is_dir() else folder
    if not path.is_file():
        raise FileError(
            f"{folder} is no site: it has no {SITE_SETTINGS}; name a site's kit, or a folder that `make_sites` has made.",
            code="no-site",
        )
    return path


def make_sites(
    folder: str | Path,
    names: Iterable[str],
    *,
    entropy: Callable[[int], bytes] = os.urandom,
) -> dict[str, Path]:
    """Make a folder for each site, with settings, the default policy, a secret identity and the others' public keys.

    Data go into ``data`` of each. The folders are for trials on one machine, or for their owners, each its own. Who trusts
    nobody with a site's identity makes it there: 32 random bytes, and their public key in everybody's list.

    Parameters
    ----------
    folder
        Where the folders are made.
    names
        Of the sites.
    entropy
        Returns so many random bytes, of which the secret identities are made; a test gives a source with a seed.

    Returns
    -------
    dict
        Name -> folder.

    Raises
    ------
    FileError
        If a folder of one of these names is there already.

    Examples
    --------
    >>> import tempfile
    >>> from feddbn.engine import make_sites
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     places = make_sites(folder, ["north", "south"])
    ...     sorted(path.name for path in places["north"].iterdir())
    ['data', 'feddbn_site.toml', 'identity.key', 'peers.toml', 'policy.toml']
    """
    root = Path(folder).resolve()
    own = tuple(names)
    check_names(own)
    places = {name: root / name for name in own}
    for name, place in places.items():
        if place.exists():
            raise FileError(
                f"{place} is there already, so {name!r} is not made; choose another folder.",
                code="site-there",
            )
    for place in places.values():
        (place / "data").mkdir(parents=True)
    write_site_files(places, entropy=entropy)
    for place in places.values():
        owner_only(place)
    return places
