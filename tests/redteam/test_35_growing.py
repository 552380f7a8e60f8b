"""A server, a lead or a site that adds made-up sites to a federation, or swaps the key of one, by a note of its own."""

import json

import pytest

pytest.importorskip("cryptography")
from feddbn.errors import FileError
from feddbn.privacy.keys import Identity
from feddbn.privacy.membership import read_note
from feddbn.runtime.engines.growing import add_sites, look_at_note
from feddbn.runtime.engines.interface import FederationPlan, engine
from feddbn.runtime.settings import read_policy, read_site_settings
from feddbn.runtime.site.check import why_refused
from feddbn.runtime.site.kit_files import read_identity
from support.file_kits import LEAD
from support.owned_sites import NAMES, make_study
from support.saying import refused

pytestmark = pytest.mark.usefixtures("light")

STRANGER = Identity.from_seed(bytes(range(32)))


def federation(place):
    return engine("files").make_kits(FederationPlan("f", "none", NAMES), place)


def forged(note, path, signer, **changes):
    """The note with other sites, signed by somebody who says who he is."""
    values = {**json.loads(note.read_text()), "authority": signer.public.hex(), **changes}
    made = read_note(json.dumps(values))
    path.write_text(made.signed(signer.sign(made.statement)).to_text())
    return path


def with_sites(note, **changes):
    return {**json.loads(note.read_text())["sites"], **changes}


def test_a_note_that_the_authority_has_not_signed_admits_nobody(tmp_path):
    kits = federation(tmp_path)
    note = add_sites(["east"], tmp_path).note
    kit, bad = kits[NAMES[0]], tmp_path / "bad.json"
    made_up = with_sites(note, ghost=STRANGER.public.hex())
    before = (kit / "peers.toml").read_bytes()
    # The lead carries all files of such a federation; another site may know everything but the authority's key.
    for who in (
        STRANGER,
        read_identity(kits[LEAD] / "identity.key"),
        read_identity(kits[NAMES[1]] / "identity.key"),
    ):
        with refused(FileError, code="not-signed"):
            look_at_note(forged(note, bad, who, sites=made_up), kit)
    values = json.loads(note.read_text())
    for changes in ({"sites": made_up}, {"federation": "g"}, {"signature": ""}, {"signature": "00" * 64}):
        bad.write_text(json.dumps({**values, **changes}))
        with refused(FileError, code="not-signed"):
            look_at_note(bad, kit)
    for changes in (
        {"sites": {}},
        {"sites": {"a/b": "00" * 32}},
        {"sites": {"x": "00"}},
        {"more": 1},
        {"signature": "x"},
    ):
        bad.write_text(json.dumps({**values, **changes}))
        with refused(FileError, code="no-note"):
            look_at_note(bad, kit)
    assert (kit / "peers.toml").read_bytes() == before


def test_even_who_may_add_sites_swaps_no_key_and_counts_no_site_twice(tmp_path):
    kits = federation(tmp_path)
    note = add_sites(["east"], tmp_path).note
    authority, bad = read_identity(tmp_path / "authority" / "identity.key"), tmp_path / "bad.json"
    first, second = (with_sites(note)[name] for name in NAMES[:2])
    for sites, code in (
        (with_sites(note, **{NAMES[1]: STRANGER.public.hex()}), "other-key"),
        (with_sites(note, twin=second), "same-key"),
        ({name: key for name, key in with_sites(note).items() if key != first}, "other-federation"),
    ):
        with refused(FileError, code=code):
            look_at_note(forged(note, bad, authority, sites=sites), kits[NAMES[0]])
    # An older note takes nobody away.
    look_at_note(note, kits[NAMES[0]]).take()
    fewer = {name: key for name, key in with_sites(note).items() if name != "east"}
    assert not look_at_note(forged(note, bad, authority, sites=fewer), kits[NAMES[0]]).new


def test_a_study_with_a_site_that_was_not_admitted_is_refused(tmp_path):
    """The made-up site's masks are agreed on with nobody: its key is not on the list."""
    kits = federation(tmp_path)
    note = add_sites(["east"], tmp_path).note
    (kits[NAMES[0]] / "data" / "one.csv").write_text(
        "u,v\n" + "".join(f"{k % 7},{k % 5}\n" for k in range(40))
    )
    settings = read_site_settings(kits[NAMES[0]] / "feddbn_site.toml")
    policy, study = read_policy(settings.policy), make_study(sites=(*NAMES, "east"))

    def codes():
        return {one.values["why"] for one in why_refused(settings, policy, ("u", "v"), study)}

    assert "unknown-key" in codes()
    look_at_note(note, kits[NAMES[0]]).take()
    assert "unknown-key" not in codes()
