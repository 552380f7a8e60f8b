"""Classes that break the rules over real NVFlare connections; only the tests' kits allow them."""

import json
from pathlib import Path

from nvflare.collab import collab

from feddbn._version import __version__
from feddbn.errors import FeddbnError
from feddbn.federation.protocol.messages import (
    Request,
    encode_request,
    read_reply,
    read_request,
    task_request,
)
from feddbn.federation.protocol.study import study_from_json
from feddbn.federation.protocol.task import Task
from feddbn.runtime.engines.nvflare.site import FeddbnSite
from support.study_programs import WalkQuestion

CLASSES = ("support.mischief.BadServer", "support.mischief.BadSite")


class BadServer:
    """A server that sends garbage, changed and replayed messages and writes down what the sites said."""

    def __init__(self, study: str, run_id: str) -> None:
        self._study = study
        self._run_id = run_id

    @collab.main
    def run(self):
        import numpy as np

        study = study_from_json(self._study)
        hello = encode_request(
            Request("hello", self._run_id, meta={"study": study.to_json(), "version": __version__})
        )
        tasks = [
            encode_request(
                task_request(
                    Task(WalkQuestion(centre=np.full(4, k / 2), step=0.1, pause_s=0.0)),
                    self._run_id,
                    k,
                    k - 1,
                )
            )
            for k in range(3)
        ]
        changed = bytearray(tasks[2])
        changed[-1] ^= 1
        script = [
            ("hello", hello),
            ("first", tasks[0]),
            ("second", tasks[1]),
            ("replayed", tasks[0]),
            ("tampered", bytes(changed)),
            ("garbage", b"\0" * (100 * 2**20)),
            ("again", tasks[1]),
            ("third", tasks[2]),
        ]
        said = []
        for proxy in collab.clients:
            for what, message in script:
                try:
                    reply = read_reply(proxy(timeout=240.0).handle(message))
                    said.append(
                        [proxy.name, what, reply.kind, [float(x) for x in reply.arrays.get("vector", [])]]
                    )
                except FeddbnError as error:
                    said.append([proxy.name, what, "refused", str(error)])
        out = Path(collab.workspace.get_run_dir(collab.fl_ctx.get_job_id()))
        (out / "outcome.json").write_text(json.dumps({"state": "finished", "said": said}))


class BadSite(FeddbnSite):
    """A site that answers its second to fourth task with a changed, an old and a 100 MB reply, then calls its neighbours."""

    def __init__(self) -> None:
        super().__init__()
        self._replies = {}

    @collab.publish
    def handle(self, message: bytes) -> bytes:
        reply = super().handle(message)
        request = read_request(message)
        # Counted in tasks, not in messages: a slow start may greet a site more than once.
        if request.kind != "task" or request.seq in self._replies:
            return reply
        self._replies[request.seq] = reply
        n = len(self._replies)
        if n == 2:
            changed = bytearray(reply)
            changed[-1] ^= 1
            return bytes(changed)
        if n == 3:
            return next(iter(self._replies.values()))
        if n == 4:
            return b"\1" * (100 * 2**20)
        if n == 5:
            for neighbour in collab.other_clients:
                try:
                    read_reply(neighbour(timeout=60.0).handle(message))
                except FeddbnError as error:
                    (Path(collab.workspace.get_site_config_dir()) / "neighbours.txt").open("a").write(
                        f"{error}\n"
                    )
        return reply
