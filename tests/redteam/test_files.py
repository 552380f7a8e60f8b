"""Studies by files: forged, changed, swapped and replayed files, and folders that somebody else can write to."""

import os

import pytest

pytest.importorskip("cryptography")
import numpy as np

from feddbn.errors import FileError
from feddbn.federation.protocol.encoding import decode, encode
from feddbn.privacy.keys import Identity
from feddbn.runtime.files.signed import read_plain, read_signed, signed_file
from feddbn.runtime.files.site import FileSite
from feddbn.runtime.site.kit_files import read_identity
from feddbn.runtime.store import Store
from support.consortium import make_study
from support.file_kits import LEAD, FileKits
from support.saying import refused

pytestmark = pytest.mark.promise


@pytest.fixture
def kits(tmp_path):
    return FileKits(tmp_path)


@pytest.fixture
def asked(kits):
    """The first questions of a run."""
    return kits.begin().questions


def again(content, identity, **changes):
    """The same file with some words changed, signed with another key."""
    file = read_signed(content, "file")
    words = ("direction", "by", "run", "site", "number", "study", "message", "question")
    values = {name: getattr(file, name) for name in words} | changes
    return signed_file(identity, **values)


def edited(content, **changes):
    """The same file with some words changed after it was signed."""
    outer, parts = decode(content)
    meta, arrays = decode(parts["content"].tobytes())
    inner = encode({**meta, **changes}, arrays)
    return encode(outer, {**parts, "content": np.frombuffer(inner, np.uint8)})


def key_of(kits, name):
    return read_identity(kits.kits[name] / "identity.key")


def read(kits, content, name="north"):
    return FileSite(kits.kits[name]).read(content, "question.feddbn")


def test_questions_that_the_lead_did_not_sign_as_they_are_are_not_answered(kits, asked):
    good = read_plain(asked["north"])
    assert read(kits, good).number == 1
    stranger = Identity.from_seed(bytes(range(32)))
    for content, code in (
        (again(good, stranger), "wrong-signature"),
        # Another site has a key of its own, and is no lead.
        (again(good, key_of(kits, "south")), "wrong-signature"),
        (edited(good, number=2), "wrong-signature"),
        (edited(good, run="run-2"), "wrong-signature"),
        (edited(good, study=make_study(name="nice").to_json()), "wrong-signature"),
        (again(good, key_of(kits, LEAD), by="somebody@example.org"), "other-lead"),
        (read_plain(asked["south"]), "other-site"),
        (edited(read_plain(asked["south"]), site="north"), "wrong-signature"),
        (good[:-1], "damaged"),
        (good[: len(good) // 2], "damaged"),
        (good[:-1] + bytes([good[-1] ^ 1]), "damaged"),
        (b"", "no-file"),
        (b"PK\x03\x04", "no-file"),
    ):
        with refused(FileError, "question.feddbn", code=code):
            read(kits, content)
    # Nothing of all this has left a trace of a run.
    assert Store(kits.kits["north"] / "state").get("run-1", "record") is None


def test_a_lead_cannot_show_one_study_and_ask_about_another(kits, asked):
    good, lead = read_plain(asked["north"]), key_of(kits, LEAD)
    nice = make_study(name="nice").to_json()
    with refused(FileError, "question.feddbn", code="other-study"):
        read(kits, again(good, lead, study=nice))
    kits.answer(asked["north"])
    # Later messages do not name the study: it is the one that the run began with.
    for site in ("south", "west"):
        kits.answer(asked[site])
    later = read_plain(kits.step().questions["north"])
    assert read(kits, later).number == 2
    with refused(FileError, "question.feddbn", code="other-study"):
        read(kits, again(later, lead, study=nice))
    with refused(FileError, "question.feddbn", code="other-study"):
        read(kits, again(later, lead, run="run-2"))


def test_answers_are_taken_only_from_their_site_for_their_question_and_run(kits, asked):
    given = kits.answer(asked["north"]).content
    place = asked["north"].with_name("run-1-north-001-answer.feddbn")
    assert read_plain(place) == given
    place.unlink()
    folder = kits.place / "run-1"
    stranger = Identity.from_seed(bytes(range(32)))
    bad = [
        # South answers in north's name.
        again(given, key_of(kits, "south")),
        again(given, stranger),
        again(kits.answer(asked["south"]).content, key_of(kits, "south"), site="north"),
        edited(given, number=2),
        edited(given, run="run-2"),
        # North's own key, for a question that was never asked.
        again(given, key_of(kits, "north"), question="0" * 64),
        again(given, key_of(kits, "north"), number=2),
        again(given, stranger, site="../../north"),
        given[:-3],
    ]
    for k, content in enumerate(bad):
        (folder / f"{k}.feddbn").write_bytes(content)
    stepped = kits.step()
    assert len(stepped.notes) == len(bad)
    assert sorted(stepped.outcome["awaited"]) == ["north", "west"]
    # The whole answer is taken beside them.
    (folder / "good.feddbn").write_bytes(given)
    assert kits.step().outcome["awaited"] == ["west"]


def test_an_answer_of_one_run_says_nothing_in_another(kits, asked):
    given = kits.answer(asked["north"]).content
    other = kits.begin(run="run-2")
    (kits.place / "run-2" / "north" / "replayed.feddbn").write_bytes(given)
    stepped = kits.step("run-2")
    assert "north" in stepped.outcome["awaited"]
    assert len(stepped.notes) == 1
    # Nor is a question an answer, or an answer a question.
    with refused(FileError, "question.feddbn", code="other-direction"):
        read(kits, given)
    (kits.place / "run-2" / "copy.feddbn").write_bytes(read_plain(other.questions["south"]))
    assert len(kits.step("run-2").notes) == 1


def test_links_and_devices_in_a_shared_folder_are_not_followed(kits, asked, tmp_path):
    kits.answer(asked["north"])
    answer = asked["north"].with_name("run-1-north-001-answer.feddbn")
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    answer.rename(hidden / "answer.feddbn")
    folder = kits.place / "run-1"
    (folder / "link.feddbn").symlink_to(hidden / "answer.feddbn")
    (folder / "linked").symlink_to(hidden)
    os.mkfifo(folder / "pipe.feddbn")
    assert "north" in kits.step().outcome["awaited"]
    for path in (folder / "link.feddbn", folder / "pipe.feddbn"):
        with pytest.raises(FileError):
            read_plain(path)
    # A link where a question should lie is replaced; what it points to stays.
    mine = tmp_path / "mine.txt"
    mine.write_text("mine")
    asked["south"].unlink()
    asked["south"].symlink_to(mine)
    before = read_plain(asked["west"])
    asked["west"].write_bytes(before[::-1])
    kits.step()
    assert read_plain(asked["west"]) == before
    assert mine.read_text() == "mine"
    assert not asked["south"].is_symlink()
    # A folder that is a link is not written to.
    for path in (folder / "west").iterdir():
        path.unlink()
    (folder / "west").rmdir()
    (folder / "west").symlink_to(hidden)
    with refused(FileError, "west", code="no-folder"):
        kits.step()
    assert [path.name for path in hidden.iterdir()] == ["answer.feddbn"]


def test_files_that_are_too_long_are_not_read(kits, asked, tmp_path):
    with open(tmp_path / "long.feddbn", "wb") as file:
        file.truncate(2**40)
    with refused(FileError, "long.feddbn", code="too-long"):
        read_plain(tmp_path / "long.feddbn")
