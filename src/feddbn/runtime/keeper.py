"""A keeper: one of two parties that hold shares of sites' answers and open nothing but their sum.

Theory of operation
-------------------
A keeper answers two kinds of messages, and like a site it can be opened anew for each: all it knows is on disk.

``parts``  The parts of some sites for one batch of questions. Each is read if its site signed it for this run, study, batch
           and keeper; the reply has this keeper's share of each verifier, signed. The first part of a site counts.
``open``   The other keeper's signed shares of verifiers. A report whose proof does not hold is out, for good. The last such
           message names the sites of the sums and gets this keeper's share of them, sealed for the lead: of all questions of
           the batch that every site in it has answered, or of the first ones.

What one honest keeper makes sure of, whatever the lead, the other keeper and some sites do:

- A batch is opened once, for one set of sites, none of them more than once; the shares are erased with it.
- The set has as many sites as the study, the keeper and every site in it ask for.
- Together with all sums that were opened before, in any run, it shows no fewer sites than that (`privacy.register`).
- The key by which proofs are checked follows from the two keepers' own keys, and no third party knows it.

If lead and other keeper work together they hold one share of each answer, which is uniformly random, and the sum.
"""

from __future__ import annotations

import hashlib
import json
import logging
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from feddbn._version import __version__
from feddbn.core.encoding import decode, encode
from feddbn.errors import (
    AggregationError,
    FeddbnError,
    FileError,
    NotEnoughSites,
    ProtocolError,
    SiteRefused,
)
from feddbn.federation.protocol import batches
from feddbn.federation.protocol.messages import (
    Reply,
    Request,
    code_of,
    encode_reply,
    known_in,
    read_request,
    refusal,
    sentence_of,
    tasks_from,
)
from feddbn.federation.protocol.study import Study, check_keepers, check_sites, study_from_json
from feddbn.federation.protocol.task import MOST_NUMBERS
from feddbn.privacy.keepers import (
    NUMBER_BYTES,
    Batch,
    Part,
    Vdaf,
    read_part,
    read_signed,
    signed,
    sum_context,
)
from feddbn.privacy.keys import Identity, SealingKey, seal_for
from feddbn.privacy.register import MOST_SETS, Members, member, related, shown_by
from feddbn.runtime.settings import KeeperSettings, load_programs, read_keeper_settings
from feddbn.runtime.site.audit import SiteAudit
from feddbn.runtime.site.kit_files import KEEPER_SETTINGS, read_keepers, read_peers, read_seed
from feddbn.runtime.store import SealedLog, Store, private_directory, prune_runs

Answer = tuple[Mapping[str, Any], Mapping[str, np.ndarray]]


@dataclass(frozen=True)
class _Asked:
    """What a message is about, as this keeper has it on record."""

    study: Study
    batch: Batch
    vdaf: Vdaf
    verify_key: bytes
    to: bytes

    @property
    def place(self) -> str:
        return self.batch.run

    def name(self, what: str, site: str = "") -> str:
        """Where something of this batch is kept."""
        return f"keeper {self.batch.seq} {what} {site}".rstrip()


class Keeper:
    """Answers messages for one keeper.

    Parameters
    ----------
    settings
        What its administrator wrote.
    """

    def __init__(self, settings: KeeperSettings, log: logging.Logger | None = None) -> None:
        load_programs(settings.programs)
        seed = read_seed(settings.identity)
        self.name = settings.name
        self._settings = settings
        self._log = log or logging.getLogger("feddbn.keeper")
        self._identity, self._sealing = Identity.from_seed(seed), SealingKey.from_seed(seed)
        self._peers, self._keepers = read_peers(settings.peers), read_keepers(settings.keepers)
        own = self._keepers.get(self.name)
        if own is None or (own.sign, own.seal) != (self._identity.public, self._sealing.public):
            raise FileError(
                f"{settings.keepers} has not the keys of {self.name!r} that belong to {settings.identity}.",
                code="other-keys",
            )
        private_directory(settings.state)
        prune_runs(settings.state, settings.keep_days)
        self._store = Store(settings.state)
        self._register = SealedLog(settings.state, "openings", self._damaged, seed)
        self.audit = SiteAudit(settings.state, self.name, self._identity)
        self._lock = threading.Lock()
        self._asked: tuple[bytes, _Asked] | None = None
        self._states: dict[tuple[bytes, str], Any] = {}

    def handle(self, message: bytes, caller: str = "server") -> bytes:
        """Return the reply to one message; a refusal is a reply too, never an exception."""
        request: Request | None = None
        with self._lock:
            try:
                if caller != "server":
                    raise SiteRefused(
                        f"this keeper answers only the server, not {caller!r}.", code="not-the-server"
                    )
                request = read_request(message, self._settings.max_message_mb * 2**20)
                handlers = {"parts": self._parts, "open": self._open}
                if request.kind not in handlers:
                    raise ProtocolError(
                        f"a keeper does not know the message kind {request.kind!r}.", code="unknown-message"
                    )
                meta, arrays = handlers[request.kind](request)
                return encode_reply(Reply(self.name, request.kind, request.run_id, request.seq, meta, arrays))
            except Exception as error:
                if not isinstance(error, FeddbnError):
                    self._log.error("unexpected error", exc_info=error)
                self._tell("refused", request, sentence_of(error), code_of(error))
                return encode_reply(refusal(self.name, request, error))

    @property
    def openings(self) -> list[dict[str, Any]]:
        """All sums that it has helped to open: run, study, questions, sites."""
        return [json.loads(line) for line in self._register.lines("sum")]

    def _tell(self, event: str, request: Request | None, sentence: str, code: str = "") -> None:
        run = "" if request is None else request.run_id
        self._log.info("%s (run %s): %s", event, run, sentence)
        try:
            task = "" if request is None else request.kind[:40]
            self.audit.note(event, task, sentence[:500], run, code=code)
        except (FeddbnError, OSError) as error:
            self._log.error("the audit log of this keeper cannot be written: %s", error)
            # A keeper that cannot write down what it opens does not open it.
            if event != "refused":
                raise

    # What a message is about.

    def _about(self, request: Request) -> _Asked:
        inner = request.arrays.get("batch")
        words = str(request.meta.get("study")), str(request.meta.get("to"))
        sizes = str(request.meta.get("lengths"))
        if inner is None or inner.dtype != np.uint8:
            raise ProtocolError("this message does not say which questions it is about.", code="bad-message")
        key = hashlib.sha256(b"\0".join([word.encode() for word in (request.run_id, sizes, *words)]))
        key.update(inner.tobytes())
        if self._asked is None or self._asked[0] != key.digest():
            self._asked = (key.digest(), self._agreed(request, inner.tobytes(), *words))
            self._states.clear()
        return self._asked[1]

    def _agreed(self, request: Request, questions: bytes, text: str, to: str) -> _Asked:
        """Return what is asked, or refuse a study or a batch that is not the one of this run."""
        version, study = str(request.meta.get("version")), study_from_json(text)
        if version != __version__:
            raise SiteRefused(
                f"the server runs feddbn {version}, this keeper {__version__}; install the same version on both.",
                code="other-version",
            )
        check_keepers(study)
        check_sites(study)
        unknown = [name for name in study.privacy.keepers if name not in self._keepers]
        if self.name not in study.privacy.keepers or unknown:
            raise SiteRefused(
                f"the study {study.name!r} does not name this keeper and another one that it knows.",
                code="unknown-keeper",
            )
        asked = read_request(questions)
        if (asked.run_id, asked.seq) != (request.run_id, request.seq):
            raise ProtocolError("the questions are those of another batch.", code="other-batch")
        tasks, lengths = tasks_from(asked), request.meta.get("lengths")
        if not isinstance(lengths, list) or not all(
            isinstance(n, int) and 0 <= n <= MOST_NUMBERS for n in lengths
        ):
            raise ProtocolError("this message does not say how long answers are.", code="bad-message")
        known = known_in(asked)
        batch = batches.batch_of(study, request.run_id, request.seq, tasks, lengths, known)
        self._same(batch, "run", {"study": study.digest, "to": to, "version": version})
        self._same(batch, f"batch {batch.seq}", asdict(batch))
        (other,) = (name for name in study.privacy.keepers if name != self.name)
        # For this batch alone: a report is checked with one key, and no other batch has it.
        verify_key = self._sealing.shared(self._keepers[other].seal, b"verify " + batch.context)
        try:
            lead = bytes.fromhex(to)
        except ValueError:
            raise ProtocolError("this message does not say whom a sum is for.", code="bad-message") from None
        return _Asked(study, batch, batches.vdaf_of(study, tasks, batch, known), verify_key, lead)

    def _same(self, batch: Batch, what: str, values: Mapping[str, Any]) -> None:
        """Write something about a run down, once; refuse if it is on record otherwise."""
        text = json.dumps(values, sort_keys=True).encode()
        with self._store.hold():
            before = self._store.get(batch.run, f"keeper {what}")
            if before is None:
                self._store.put(batch.run, f"keeper {what}", text)
        if before not in (None, text):
            raise SiteRefused(
                f"run {batch.run!r} has another study, lead or batch of questions at this keeper.",
                code="other-batch",
            )

    # Parts, and shares of verifiers.

    def _parts(self, request: Request) -> Answer:
        """Take the parts of some sites; return this keeper's shares of their verifiers."""
        asked = self._about(request)
        opened = self._opened(asked)
        found: dict[str, tuple[str, bytes]] = {}
        refused: dict[str, str] = {}
        new: dict[str, tuple[bytes, Part, bytes, int]] = {}
        for key, array in request.arrays.items():
            kind, _, site = key.partition("/")
            if kind != "part":
                continue
            message = array.tobytes()
            try:
                known = self._verifier(asked, site, message)
                if known is not None:
                    found[site] = known
                elif opened is not None:
                    raise AggregationError("this batch has been opened already.", code="already-opened")
                else:
                    part = self._read(asked, site, message)
                    new[site] = (message, part, *self._begin(asked, part))
            except FeddbnError as error:
                refused[site] = error.code
                self._tell("refused", request, f"site {site!r}: {error}", error.code)
        with self._store.hold():
            for site, (message, part, share, n_answered) in new.items():
                if self._verifier(asked, site, message) is None:
                    self._keep(asked, site, message, part, share, n_answered)
                found[site] = (part.label.report, share)
        meta = {
            "batch": asked.batch.context.hex(),
            "reports": {site: found[site][0] for site in sorted(found)},
        }
        shares = {site: np.frombuffer(found[site][1], np.uint8) for site in sorted(found)}
        said = signed(self._identity, self.name, "verifiers", meta, shares)
        told = {"refused": refused, "opened": None if opened is None else list(opened[0])}
        return told, {"verifiers": np.frombuffer(said, np.uint8)}

    def _read(self, asked: _Asked, site: str, message: bytes) -> Part:
        if site not in asked.study.sites or site not in self._peers:
            raise AggregationError(
                f"site {site!r} is not in the study, or its key is not known.", code="unknown-site"
            )
        return read_part(message, asked.batch, site, self.name, self._peers[site])

    def _begin(self, asked: _Asked, part: Part) -> tuple[bytes, int]:
        """Return this keeper's share of the verifier of a report, and how many questions its site has answered; remember the
        state behind it.
        """
        label = part.label
        content = self._sealing.open(part.sealed, label.bytes)
        n_answered, share = content[0] if content else 0, content[1:]
        if not 1 <= n_answered <= len(asked.batch.tasks):
            raise AggregationError("a part does not say how many questions it answers.", code="bad-proof")
        index = asked.batch.keepers.index(self.name)
        try:
            state, verifier = asked.vdaf.verify_init(
                asked.verify_key, index, bytes.fromhex(label.nonce), part.public, share
            )
        except (ValueError, ArithmeticError, IndexError) as error:
            raise AggregationError(f"a share cannot be read ({error}).", code="bad-proof") from None
        self._states[asked.batch.context, label.site] = state
        return verifier, n_answered

    def _keep(
        self, asked: _Asked, site: str, message: bytes, part: Part, share: bytes, n_answered: int
    ) -> None:
        about = {
            "report": part.label.report,
            "part": hashlib.sha256(message).hexdigest(),
            "member": member(self._peers[site], part.label.data),
            "fewest": part.label.fewest,
            "answered": n_answered,
        }
        self._store.put(asked.place, asked.name("part", site), message)
        content = encode(about, {"share": np.frombuffer(share, np.uint8)})
        self._store.put(asked.place, asked.name("verifier", site), content)

    def _known(self, asked: _Asked, site: str) -> tuple[dict[str, Any], bytes] | None:
        stored = self._store.get(asked.place, asked.name("verifier", site))
        if stored is None:
            return None
        meta, arrays = decode(stored)
        return meta, arrays["share"].tobytes()

    def _verifier(self, asked: _Asked, site: str, message: bytes) -> tuple[str, bytes] | None:
        """What was said to this very part before; another part of the same site is refused."""
        known = self._known(asked, site)
        if known is None:
            return None
        if known[0]["part"] != hashlib.sha256(message).hexdigest():
            raise AggregationError(
                f"site {site!r} has sent another part for this batch before.", code="second-part"
            )
        return str(known[0]["report"]), known[1]

    # Verdicts, and the sum.

    def _open(self, request: Request) -> Answer:
        asked = self._about(request)
        for key, array in sorted(request.arrays.items()):
            if key.startswith("verifiers"):
                self._judge(asked, request, array.tobytes())
        wanted = request.meta.get("sites")
        if wanted is None:
            return {"invalid": self._invalid(asked)}, {}
        return self._sum(asked, request, tuple(sorted({str(site) for site in wanted})))

    def _judge(self, asked: _Asked, request: Request, message: bytes) -> None:
        """Hold the other keeper's shares of verifiers against this one's: each report is valid, or out, from then on."""
        (other,) = (name for name in asked.batch.keepers if name != self.name)
        meta, shares = read_signed(message, other, "verifiers", self._keepers[other].sign)
        if meta.get("batch") != asked.batch.context.hex():
            raise AggregationError("these verifiers are of another batch.", code="other-batch")
        if self._opened(asked) is not None:
            return
        valid: dict[str, bytes] = {}
        out: dict[str, str] = {}
        reports = dict(meta.get("reports") or {})
        for site, share in shares.items():
            known = self._known(asked, site)
            if known is None or self._verdict(asked, site) is not None:
                continue
            try:
                if reports.get(site) != known[0]["report"]:
                    raise AggregationError(
                        "the parts for the two keepers are not of one report.", code="different-parts"
                    )
                both = {other: share.tobytes(), self.name: known[1]}
                state = self._state(asked, site)
                valid[site] = asked.vdaf.verify_finish(state, [both[name] for name in asked.batch.keepers])
            except (AggregationError, ValueError, ArithmeticError, IndexError) as error:
                out[site] = getattr(error, "code", "") or "bad-proof"
                self._tell("refused", request, f"site {site!r}: {error}", out[site])
        with self._store.hold():
            for site, content in valid.items():
                self._store.put(asked.place, asked.name("valid", site), content)
            for site, code in out.items():
                self._store.put(asked.place, asked.name("invalid", site), code.encode())

    def _state(self, asked: _Asked, site: str) -> Any:
        """The state behind this keeper's share of a verifier; after a restart it is made again from the part."""
        key = (asked.batch.context, site)
        if key not in self._states:
            message = self._store.get(asked.place, asked.name("part", site))
            if message is None:
                raise AggregationError(f"the part of site {site!r} is not here any more.", code="lost-part")
            self._begin(asked, self._read(asked, site, message))
        return self._states.pop(key)

    def _verdict(self, asked: _Asked, site: str) -> bool | None:
        if self._store.get(asked.place, asked.name("valid", site)) is not None:
            return True
        return None if self._store.get(asked.place, asked.name("invalid", site)) is None else False

    def _invalid(self, asked: _Asked) -> dict[str, str]:
        start = asked.name("invalid") + " "
        names = [name for name in self._store.names(asked.place) if name.startswith(start)]
        found = {name.removeprefix(start): self._store.get(asked.place, name) for name in names}
        return {site: (code or b"").decode() for site, code in found.items()}

    def _opened(self, asked: _Asked) -> tuple[tuple[str, ...], int, bytes] | None:
        """For whom this batch was opened, how many questions all of them have answered, and this keeper's share."""
        stored = self._store.get(asked.place, asked.name("opened"))
        if stored is None:
            return None
        meta, arrays = decode(stored)
        return tuple(meta["sites"]), int(meta["answered"]), arrays["share"].tobytes()

    def _sum(self, asked: _Asked, request: Request, sites: tuple[str, ...]) -> Answer:
        """Open the sum over these sites: write it down, erase the shares, and give this keeper's share of it."""
        with self._store.hold(erase=True):
            opened = self._opened(asked)
            if opened is None:
                opened = (sites, *self._add(asked, request, sites))
            elif opened[0] != sites:
                raise AggregationError(
                    "this batch has been opened for another set of sites; the difference would show a few.",
                    code="already-opened",
                )
        wanted = request.meta.get("n_tasks")
        n_tasks = min(opened[1], wanted if isinstance(wanted, int) and wanted > 0 else opened[1])
        share = opened[2][: NUMBER_BYTES * sum(asked.batch.lengths[:n_tasks])]
        context = sum_context(asked.batch, sites, n_tasks)
        secret = hashlib.sha256(self._identity.sign(b"secret of sum " + context + asked.to)).digest()
        sealed = seal_for(asked.to, share, context, secret)
        meta = {"batch": asked.batch.context.hex(), "sites": list(sites), "n_tasks": n_tasks}
        said = signed(self._identity, self.name, "sum", meta, {"sealed": np.frombuffer(sealed, np.uint8)})
        return {"sites": list(sites)}, {"sum": np.frombuffer(said, np.uint8)}

    def _add(self, asked: _Asked, request: Request, sites: tuple[str, ...]) -> tuple[int, bytes]:
        shares, members, fewest = [], [], max(asked.study.privacy.min_sites, self._settings.min_sites)
        n_answered = len(asked.batch.tasks)
        for site in sites:
            share = self._store.get(asked.place, asked.name("valid", site))
            known = self._known(asked, site)
            if share is None or known is None:
                raise AggregationError(
                    f"the report of site {site!r} has not been verified.", code="not-verified"
                )
            shares.append(share)
            members.append(str(known[0]["member"]))
            fewest = max(fewest, int(known[0]["fewest"]))
            n_answered = min(n_answered, int(known[0]["answered"]))
        if len(sites) < fewest:
            raise NotEnoughSites(
                f"this sum is over {len(sites)} sites; the study, this keeper or a site asks for at least {fewest}.",
                code="few-sites",
            )
        self._admit(asked.batch, frozenset(members), fewest)
        # What some have not answered is never opened, so nothing of it is kept.
        share = asked.vdaf.add(shares)[: NUMBER_BYTES * sum(asked.batch.lengths[:n_answered])]
        line: dict[str, Any] = {
            "run": asked.batch.run,
            "study": asked.study.name,
            "digest": asked.batch.study,
        }
        line |= {"seq": asked.batch.seq, "tasks": list(asked.batch.tasks), "sites": list(sites)}
        self._register.append("sum", json.dumps({**line, "members": sorted(members)}, sort_keys=True))
        about = {"sites": list(sites), "answered": n_answered}
        self._store.put(
            asked.place, asked.name("opened"), encode(about, {"share": np.frombuffer(share, np.uint8)})
        )
        for name in self._store.names(asked.place):
            if name.startswith((asked.name("part") + " ", asked.name("valid") + " ")):
                self._store.drop(asked.place, name)
        last = asked.batch.seq + n_answered - 1
        said = f"helped to open sums {asked.batch.seq} to {last} of {len(sites)} sites"
        self._tell("sent", request, said)
        return n_answered, share

    def _admit(self, batch: Batch, new: Members, fewest: int) -> None:
        """Refuse a sum that was opened in a run that has been pruned, or that together with earlier ones shows few sites."""
        if any((one["run"], one["seq"]) == (batch.run, batch.seq) for one in self.openings):
            raise AggregationError("this batch has been opened already.", code="already-opened")
        known = related(new, [frozenset(one["members"]) for one in self.openings])
        if len(known) > MOST_SETS or shown_by(new, known, fewest, fewest):
            raise AggregationError(
                "the sites of this sum, or their data, are not those of an earlier sum: together they would show fewer "
                f"than {fewest} sites. Nothing was opened.",
                code="shows-few-sites",
            )

    @staticmethod
    def _damaged() -> FileError:
        return FileError(
            "the register of this keeper's store or its head (_openings.head) was damaged, lost or put back from a backup; "
            "without it this keeper cannot tell which sums it has opened. Restore the latest of both.",
            code="damaged-register",
        )


def open_keeper(folder: Path) -> Keeper:
    """Return the keeper in a folder: one with its settings, a kit, or the settings file itself."""
    places = [folder, folder / KEEPER_SETTINGS, folder / "local" / KEEPER_SETTINGS]
    found = next((path for path in places if path.is_file()), None)
    if found is None:
        raise FileError(
            f"{folder} is no keeper: it has no {KEEPER_SETTINGS}; name a keeper's kit, or a folder that `make_sites` has "
            "made.",
            code="no-keeper",
        )
    return Keeper(read_keeper_settings(found))
