"""What NVFlare's tasks carry, and who is answered."""

import json
from types import SimpleNamespace

import pytest

pytest.importorskip("nvflare")
pytest.importorskip("cryptography")
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import FLContextKey, ReservedKey, ReturnCode
from nvflare.apis.fl_context import FLContext, FLContextManager
from nvflare.apis.shareable import Shareable

from feddbn import engine
from feddbn.adapters.nvflare import BYTES, TASK, FeddbnController, FeddbnExecutor
from feddbn.errors import SiteRefused, StillCollecting
from feddbn.federation.protocol.messages import read_reply
from support.saying import refused


class Workspace:
    def __init__(self, root):
        self.root = root

    def get_site_config_dir(self):
        return str(self.root / "local")

    def get_job_meta_path(self, job):
        return str(self.root / "meta.json")


def at_site(name, root):
    """The context in which NVFlare calls an executor."""
    made = SimpleNamespace(get_workspace=lambda: Workspace(root))
    manager = FLContextManager(engine=made, identity_name=name, job_id="job")
    return manager.new_context()


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.delenv("FEDDBN_SITE", raising=False)
    return engine.make_sites(tmp_path / "sites", ["north", "south"])


def ask(executor, context, task=TASK, message=b"garbage"):
    return executor.execute(task, Shareable({BYTES: message}), context, None)


def test_a_fetched_task_is_answered_from_the_folder_that_the_owner_names(place, tmp_path, monkeypatch):
    monkeypatch.setenv("FEDDBN_SITE", str(tmp_path / "sites" / "{site}"))
    executor = FeddbnExecutor()
    context = at_site("north", tmp_path)
    executor.handle_event(EventType.AFTER_PULL_TASK, context)
    reply = ask(executor, context)
    assert reply.get_return_code() == ReturnCode.OK
    with refused(SiteRefused, "north", code="withheld"):
        read_reply(reply[BYTES])
    assert executor.endpoint.name == "north"


def test_without_it_the_folder_is_that_of_the_kit(place, tmp_path):
    (tmp_path / "local").symlink_to(place["south"])
    (tmp_path / "meta.json").write_text(json.dumps({"submitter_name": "lead@example.org"}))
    for name, code in (("south", "withheld"), ("north", "no-site")):
        with refused(SiteRefused, name, code=code):
            read_reply(FeddbnExecutor().open(at_site(name, tmp_path)).handle(b"garbage"))


def test_a_site_whose_folder_is_wrong_refuses_and_says_so(place, tmp_path, monkeypatch):
    folder = tmp_path / "folder"
    folder.symlink_to(place["south"])
    monkeypatch.setenv("FEDDBN_SITE", str(folder))
    executor, context = FeddbnExecutor(), at_site("north", tmp_path)
    executor.handle_event(EventType.AFTER_PULL_TASK, context)
    reply = ask(executor, context)
    assert reply.get_return_code() == ReturnCode.OK
    with refused(SiteRefused, "north", code="no-site") as error:
        read_reply(reply[BYTES])
    assert str(tmp_path) not in str(error.value)
    folder.unlink()
    folder.symlink_to(place["north"])
    with refused(SiteRefused, "north", code="withheld"):
        read_reply(ask(executor, context)[BYTES])


def test_a_study_that_still_waits_ends_its_job_without_an_error():
    controller, told = FeddbnController(), []
    controller.system_panic = lambda *words: told.append(words)

    def waits(exchange, context):
        raise StillCollecting("1 site has not come.", ("north",), 60.0)

    controller.conduct = waits
    controller.control_flow(None, FLContext())
    assert told == []


@pytest.mark.parametrize(("task", "message"), [(TASK, b"x"), ("train", b"x"), (TASK, "text"), (TASK, None)])
def test_what_another_site_sends_and_what_is_no_message_is_not_answered(place, tmp_path, task, message):
    (tmp_path / "local").symlink_to(place["north"])
    executor = FeddbnExecutor()
    context = at_site("north", tmp_path)
    # Another site may call itself the server; only what was fetched has the mark, and it does not travel.
    sender = FLContext()
    sender.set_public_props({ReservedKey.IDENTITY_NAME: "server", "feddbn_fetched": True})
    context.set_peer_context(sender)
    is_message = task == TASK and isinstance(message, bytes)
    if not is_message:
        executor.handle_event(EventType.AFTER_PULL_TASK, context)
    assert ask(executor, context, task, message).get_return_code() == ReturnCode.TASK_UNKNOWN
    assert executor.endpoint is None


def test_the_mark_ends_with_its_task(tmp_path):
    manager = FLContextManager(engine=None, identity_name="north", job_id="job")
    with manager.new_context() as context:
        FeddbnExecutor().handle_event(EventType.AFTER_PULL_TASK, context)
        assert "feddbn_fetched" not in context.get_all_public_props()
    with manager.new_context() as later:
        assert later.get_prop("feddbn_fetched") is None
        assert later.get_prop(FLContextKey.TASK_NAME) is None
