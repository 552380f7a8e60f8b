"""Somebody who has a made-up site added to a federation, swaps the key of one, or has one counted twice."""

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("cryptography")
from feddbn.errors import FileError, NotEnoughSites, ParameterError
from feddbn.privacy.keys import Identity
from feddbn.runtime.files.kit import make_kits, make_more_kits
from feddbn.runtime.files.lead import Lead
from feddbn.runtime.settings import read_policy, read_site_settings
from feddbn.runtime.site.check import why_refused
from feddbn.runtime.site.kit_files import read_peers
from feddbn.runtime.site.open_site import read_data
from feddbn.runtime.site.owner import Owner, admit
from support.consortium import NAMES, make_study
from support.file_kits import LEAD, RULE, FileKits
from support.saying import refused

pytestmark = pytest.mark.promise

STRANGER = Identity.from_seed(bytes(range(32))).public.hex()


def keys_of(kit):
    return {name: key.hex() for name, key in read_peers(kit / "peers.toml").items()}


def test_no_key_is_swapped_no_site_is_counted_twice_and_the_log_tells_of_a_new_one(tmp_path):
    kits = make_kits(tmp_path, NAMES, LEAD)
    kit, before = kits[NAMES[0]], keys_of(kits[NAMES[0]])
    for name, key, code in (
        (NAMES[1], STRANGER, "other-key"),
        ("twin", before[NAMES[1]], "same-key"),
        (NAMES[0], STRANGER, "other-key"),
    ):
        with refused(FileError, code=code):
            admit(kit, name, key)
    for name, key in (("a/b", STRANGER), ("x", STRANGER[1:]), ("x", STRANGER.upper()), ("x", "")):
        with refused(ParameterError):
            admit(kit, name, key)
    assert keys_of(kit) == before
    assert admit(kit, "east", STRANGER)
    assert not admit(kit, "east", STRANGER)
    assert keys_of(kit) == {**before, "east": STRANGER}
    (entry,) = Owner(read_site_settings(kit / "feddbn_site.toml")).audit.entries()
    assert (entry.event, STRANGER[:12] in entry.note) == ("admitted", True)


def test_kits_for_new_sites_know_all_and_change_nobody_elses(tmp_path):
    kits = make_kits(tmp_path, NAMES, LEAD)
    new = make_more_kits(["east", "far"], tmp_path / "more", kits[LEAD])
    assert list(keys_of(new["east"])) == [*sorted(NAMES), "east", "far"]
    assert keys_of(new["far"]) == keys_of(new["east"]) == keys_of(kits[LEAD])
    assert "east" not in keys_of(kits[NAMES[0]])
    assert new["east"].stat().st_mode & 0o077 == 0
    for names in (["a b"], [NAMES[0]], ["x", "x"]):
        with refused(ParameterError):
            make_more_kits(names, tmp_path / "more", kits[LEAD])
    (tmp_path / "more" / "x").mkdir()
    with refused(FileError, code="kits-there"):
        make_more_kits(["x"], tmp_path / "more", kits[LEAD])


def test_a_study_with_a_site_that_was_not_admitted_is_refused(tmp_path):
    """The made-up site's masks are agreed on with nobody: its key is not on the list."""
    kit = make_kits(tmp_path, NAMES, LEAD)[NAMES[0]]
    rows = "".join(f"{k % 7},{k % 5}\n" for k in range(40))
    (kit / "data" / "r000.csv").write_text(f"u,v\n{rows}")
    settings = read_site_settings(kit / "feddbn_site.toml")
    policy, study = read_policy(settings.policy), make_study(sites=(*NAMES, "east"))

    def codes():
        return {one.values["why"] for one in why_refused(settings, policy, read_data(settings), study)}

    assert "unknown-key" in codes()
    admit(kit, "east", STRANGER)
    assert "unknown-key" not in codes()


@pytest.mark.slow
def test_after_a_pilot_one_more_site_is_refused_and_three_more_are_not(tmp_path):
    """Three sites, then four, then six; the sums of the six are those of all rows."""
    kits = FileKits(tmp_path)
    assert kits.run(run="pilot").state == "finished"
    rng = np.random.default_rng(1)

    def grow(*names):
        new = make_more_kits(names, tmp_path / "more", kits.lead)
        for kit in new.values():
            rows = pd.DataFrame(rng.normal(size=(30, 2)), columns=["u", "v"])
            rows.to_csv(kit / "data" / "r000.csv", index=False)
            (kit / "policy.toml").write_text(RULE)
        for kit in kits.kits.values():
            for name in names:
                admit(kit, name, keys_of(kits.lead)[name])
        kits.kits.update(new)

    grow("east")
    study = make_study(name="four", sites=(*NAMES, "east"))
    assert kits.run(study, run="four", most=12).state == "collecting"
    with pytest.raises(NotEnoughSites) as stopped:
        Lead(kits.lead).step(study, "four", accepts_refusals=True)
    assert set(stopped.value.values["reasons"].values()) == {"shows-few-sites"}
    grow("far", "further")
    study = make_study(name="six", sites=(*NAMES, "east", "far", "further"))
    assert kits.run(study, run="six").state == "finished"
