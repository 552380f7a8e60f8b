"""An admin session in a process of its own: NVFlare's client leaves sockets and threads behind."""

import json
import os
import sys
from pathlib import Path

from feddbn.errors import FeddbnError
from feddbn.federation.protocol.study import study_from_json
from feddbn.runtime.engines.nvflare.engine import NVFlareSession


def main():
    console = None
    for line in sys.stdin:
        request = json.loads(line)
        arguments = request["arguments"]
        if request["call"] == "submit":
            arguments[0] = study_from_json(arguments[0])
        try:
            if request["call"] == "open":
                console = NVFlareSession(Path(arguments[0]), timeout_s=60.0).__enter__()
                answer = None
            else:
                answer = getattr(console, request["call"])(*arguments)
            reply = {"answer": answer}
        except FeddbnError as error:
            reply = {"error": str(error)}
        print("@" + json.dumps(reply, default=str), flush=True)  # noqa: T201
    if console is not None:
        console.__exit__()
    # NVFlare's threads would keep the process alive.
    os._exit(0)


if __name__ == "__main__":
    main()
