"""Several modules: messages that travel as signed files pass the suite for whatever carries studies."""

import contextlib
from collections import Counter

import pytest

pytest.importorskip("cryptography")
from feddbn.engine import conformance
from feddbn.errors import FeddbnError
from feddbn.federation.protocol.messages import Request, encode_request, read_request
from feddbn.privacy.keys import Identity
from feddbn.runtime.files.exchange import FileExchange
from feddbn.runtime.files.kit import MARK
from feddbn.runtime.files.signed import put_file, read_plain, read_signed, signed_file
from feddbn.runtime.files.site import FileSite, answer_name
from feddbn.runtime.site.kit_files import read_peers
from feddbn.runtime.store import Store
from support.consortium import NAMES, Consortium, make_study

LEAD = "lead@example.org"


class Carrier:
    """Every message is a new question in a folder, which its site finds there."""

    def __init__(self, sites, folder):
        self._sites, self._folder, self._numbers, self._studies = sites, folder, Counter(), {}
        self._identity = Identity.from_seed(bytes(range(32)))
        folder.mkdir()
        for name, place in sites.items():
            words = {"federation": "f", "role": "site", "name": name, "lead": LEAD}
            words["lead_key"] = self._identity.public.hex()
            (place / MARK).write_text("".join(f'{key} = "{value}"\n' for key, value in words.items()))
        self._ends = {name: FileSite(place) for name, place in sites.items()}

    def __call__(self, messages):
        return {site: self._carry(site, messages[site]) for site in messages if site in self._sites}

    def _carry(self, site, message):
        run, study = self._about(message)
        self._numbers[site] += 1
        words = (self._identity, "question", LEAD, run, site, self._numbers[site], study, message)
        path = self._folder / f"{self._numbers[site]}-{site}.feddbn"
        put_file(path, signed_file(*words))
        end = self._ends[site]
        asked = end.read(read_plain(path), str(path))
        answer = self._folder / answer_name(asked)
        put_file(answer, end.answer(asked).content)
        found = read_signed(read_plain(answer), str(answer), "answer")
        found.check_signature(read_peers(self._sites[site] / "peers.toml")[site], str(answer), site)
        assert (found.question, found.run, found.site) == (asked.digest, run, site)
        return found.message

    def _about(self, message):
        """The run and the study of a message; of one that cannot be read those of any other."""
        try:
            request = read_request(message)
        except FeddbnError:
            return next(iter(self._studies.items()))
        if request.kind == "hello":
            self._studies[request.run_id] = request.meta["study"]
        return request.run_id, self._studies[request.run_id]


@pytest.mark.slow
def test_files_carry_studies_rightly(tmp_path):
    @contextlib.contextmanager
    def make_exchange(sites):
        yield Carrier(sites, tmp_path / "shared")

    assert conformance.check(make_exchange, tmp_path / "trial", methods=("oneshot",))


def test_the_same_message_is_the_same_file_and_its_answer_is_taken_once(tmp_path):
    sites = Consortium(tmp_path / "sites")
    keys = read_peers(sites.place / "north" / "peers.toml")
    identity, store, study = Identity.from_seed(bytes(32)), Store(tmp_path / "runs"), make_study()

    def exchange():
        return FileExchange(tmp_path / "r", study, "r", store, identity, LEAD, keys)

    task = encode_request(Request("hello", "r", meta={"study": study.to_json()}))
    one = exchange()
    assert one(dict.fromkeys(NAMES, task)) == {}
    first = {site: read_plain(path) for site, path in one.open.items()}
    other = exchange()
    assert other(dict.fromkeys(NAMES, task)) == {}
    assert {site: read_plain(path) for site, path in other.open.items()} == first
    assert one({}) == {}
