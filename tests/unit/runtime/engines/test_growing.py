"""New sites: kits for them alone, one signed note for everybody else, kits of earlier versions, and studies afterwards."""

import shutil

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("cryptography")
from feddbn.errors import FileError, NotEnoughSites, ParameterError, StateError
from feddbn.runtime.engines.files.engine import FilesSession
from feddbn.runtime.engines.growing import add_sites, look_at_note
from feddbn.runtime.engines.interface import FederationPlan, engine
from feddbn.runtime.settings import read_site_settings
from feddbn.runtime.site.kit_files import read_peers
from feddbn.runtime.site.owner import Owner
from support.file_kits import LEAD, RULE, FileKits
from support.owned_sites import NAMES, make_study
from support.saying import refused

pytestmark = pytest.mark.usefixtures("light")

SETTINGS = {"files": "feddbn_site.toml", "platform": "feddbn_site.toml", "nvflare": "local/feddbn_site.toml"}
ENGINES = ["files", "platform", pytest.param("nvflare", marks=pytest.mark.slow)]


def made(name, place):
    if name == "nvflare":
        pytest.importorskip("nvflare")
    server = "localhost" if name == "nvflare" else "none"
    keepers = ("k1", "k2") if name == "files" else ()
    return engine(name).make_kits(FederationPlan("f", server, NAMES, keepers=keepers), place)


def files_of(kit):
    return {path: path.read_bytes() for path in sorted(kit.rglob("*")) if path.is_file()}


def peers_of(name, kit):
    return read_peers((kit / SETTINGS[name]).with_name("peers.toml"))


@pytest.mark.parametrize("name", ENGINES)
def test_a_site_joins_with_a_kit_of_its_own_and_a_note_for_the_others(tmp_path, name):
    kits = made(name, tmp_path)
    before = {kit: files_of(kit) for kit in kits.values()}
    grown = add_sites(["east"], tmp_path)
    assert {kit: files_of(kit) for kit in kits.values()} == before
    own = peers_of(name, grown.kits["east"])
    assert list(own) == [*sorted(NAMES), "east"]
    takers = [*NAMES, *(["k1", "k2", LEAD] if name == "files" else [])]
    for taker in takers:
        found = look_at_note(grown.note, kits[taker])
        assert list(found.new) == ["east"]
        found.take()
        assert not look_at_note(grown.note, kits[taker]).new
    assert all(peers_of(name, kits[taker]) == own for taker in takers)
    settings = read_site_settings(kits[NAMES[0]] / SETTINGS[name])
    assert [entry.event for entry in Owner(settings).audit.entries()] == ["admitted"]
    assert grown.kits["east"].stat().st_mode & 0o077 == 0
    if name != "nvflare":
        # The next ones are new to both.
        again = add_sites(["far", "further"], tmp_path)
        for kit in (kits[NAMES[0]], grown.kits["east"]):
            assert list(look_at_note(again.note, kit).new) == ["far", "further"]
        return
    from cryptography import x509

    root, east = (
        x509.load_pem_x509_certificate((kit / "startup" / of).read_bytes())
        for kit, of in ((kits[NAMES[0]], "rootCA.pem"), (grown.kits["east"], "client.crt"))
    )
    east.verify_directly_issued_by(root)
    usage = east.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [x509.oid.ExtendedKeyUsageOID.CLIENT_AUTH]
    with refused(ParameterError, code="no-circle"):
        look_at_note(grown.note, kits["localhost"])


@pytest.mark.parametrize("name", ["files", "platform"])
def test_kits_that_were_made_before_there_was_an_authority_grow_too(tmp_path, name):
    kits = made(name, tmp_path)
    shutil.rmtree(tmp_path / "authority")
    for kit in kits.values():
        (kit / "authority.pub").unlink(missing_ok=True)
    grown = add_sites(["east"], tmp_path)
    kit = kits[NAMES[0]]
    if name == "platform":
        # Nobody was named in these kits who could sign: a person says who it is, once.
        for said in ("", "0" * 16, grown.authority[:15]):
            with refused(ParameterError, code="unknown-authority"):
                look_at_note(grown.note, kit, said)
        look_at_note(grown.note, kit, grown.authority[:16]).take()
    else:
        look_at_note(grown.note, kit).take()
    later = add_sites(["far"], tmp_path)
    assert list(look_at_note(later.note, kit).new) == ["far"]


def test_what_cannot_be_added_is_said_before_anything_is_made(tmp_path):
    made("files", tmp_path)
    for names in (["a b"], [NAMES[0]], ["x", "x"], ["k1"], ["server"]):
        with refused(ParameterError):
            add_sites(names, tmp_path)
    with refused(ParameterError, code="no-federation"):
        add_sites(["x"], tmp_path / "kits")
    (tmp_path / "kits" / "x").mkdir()
    with refused(FileError, code="kits-there"):
        add_sites(["x"], tmp_path)
    for path in tmp_path.rglob("peers.toml"):
        path.unlink()
    with refused(StateError, code="no-peers"):
        add_sites(["y"], tmp_path)


@pytest.mark.slow
def test_after_a_pilot_one_more_site_is_refused_and_three_more_are_not(tmp_path):
    """Three sites, then four, then six; the sums of the six are those of all rows."""
    kits = FileKits(tmp_path)
    assert kits.run(run="pilot").state == "finished"
    rng = np.random.default_rng(1)

    def grow(*names):
        grown = add_sites(names, tmp_path)
        for name, kit in grown.kits.items():
            pd.DataFrame(rng.normal(size=(30, 2)), columns=["u", "v"]).to_csv(
                kit / "data" / "one.csv", index=False
            )
            (kit / "policy.toml").write_text(RULE)
            kits.kits[name] = kit
        for kit in kits.kits.values():
            look_at_note(grown.note, kit).take()

    grow("east")
    study = make_study(name="four", sites=(*NAMES, "east"))
    assert kits.run(study, run="four", most=12).state == "collecting"
    with pytest.raises(NotEnoughSites) as stopped:
        FilesSession(kits.lead).step(study, "four", accepts_refusals=True)
    assert set(stopped.value.values["reasons"].values()) == {"shows-few-sites"}
    grow("far", "further")
    study = make_study(name="six", sites=(*NAMES, "east", "far", "further"))
    assert kits.run(study, run="six").state == "finished"
