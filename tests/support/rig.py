"""Real endpoints of deployed sites, with their policy, audit and masks, and a hostile server that speaks to them.

The server chooses every name, parameter and array of a question; its messages are otherwise those of the real one, so the
rig follows the protocol as it changes.
"""

from __future__ import annotations

import gc
import logging
import shutil
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
import pytest

from feddbn._version import __version__
from feddbn.core.encoding import encode
from feddbn.errors import FederationError, PrivacyError
from feddbn.federation.protocol.messages import WITHHELD, Request, encode_request, read_reply
from feddbn.federation.protocol.study import Study
from feddbn.federation.protocol.task import Task
from feddbn.runtime.masked import SecureFederation, read_secure_reply
from feddbn.runtime.settings import read_site_settings
from feddbn.runtime.site.kit_files import default_policy_text, write_site_files
from feddbn.runtime.site.open_site import open_site
from support.entropy import Entropy
from support.states import entries_of
from support.study_files import ABOUT


@dataclass(frozen=True)
class Raw:
    """A question as it travels, with whatever a hostile server puts into it."""

    name: str
    params: dict = field(default_factory=dict)
    arrays: dict = field(default_factory=dict)


def raw(name, params=None, arrays=None, participants=None):
    """A task of anything."""
    arrays = {key: np.asarray(value, dtype=float) for key, value in (arrays or {}).items()}
    return Task(Raw(name, dict(params or {}), arrays), participants)


def listing(*tasks, features=()):
    """The default policy of an owner who lists these tasks and feature maps, too."""
    text = default_policy_text()
    for last, more in (("residuals.checks", tasks), ("linear", features)):
        text = text.replace(f'"{last}"', ", ".join(f'"{name}"' for name in (last, *more)))
    return text


class Rig:
    """Sites on disk with their default policy; `data` is site -> its recordings."""

    def __init__(self, place, data, policy=None):
        self.place, self.data = place, data
        self.names = tuple(data)
        first = next(iter(data.values()))[0]
        self.variables = tuple(f"x{j}" for j in range(np.shape(first)[1]))
        for name, recordings in data.items():
            (place / name / "data").mkdir(parents=True)
            for number, values in enumerate(recordings):
                frame = pd.DataFrame(values, columns=list(self.variables))
                frame.to_csv(place / name / "data" / f"r{number:03d}.csv", index=False, float_format="%.17g")
        self.entropy = Entropy()
        write_site_files({name: place / name for name in data}, entropy=self.entropy("keys"))
        for name in data:
            path = place / name / "policy.toml"
            # What is tried here is what rules stop without an owner who looks at every study.
            path.write_text("approve_by_rule = true\n" + (path.read_text() if policy is None else policy))
        self.endpoints = {name: self.open(name) for name in data}

    def open(self, name):
        """Start a site; what it keeps is on disk."""
        settings = read_site_settings(self.place / name / "feddbn_site.toml")
        return open_site(settings, name, logging.getLogger("redteam"), entropy=self.entropy(name))

    def restart(self, name):
        """End a site and start it again."""
        self.endpoints[name] = None
        gc.collect()
        self.endpoints[name] = self.open(name)

    def study(self, method="oneshot", parameters=None, privacy=None, **more):
        """A study of all sites under masks."""
        values = {
            "name": "s",
            "about": ABOUT,
            "method": method,
            "variables": self.variables,
            "sites": self.names,
            "parameters": {"n_lags": 1, **(parameters or {})},
            "privacy": {"secure_aggregation": True, "protection": "exact", **(privacy or {})},
        }
        return Study(**{**values, **more})

    def refusals(self, name, run):
        """What a site refused in a run and why, as its owner reads it."""
        return [entry for entry in entries_of(self.place / name / "state", run) if entry.event == "refused"]

    def clear(self):
        """Delete everything."""
        shutil.rmtree(self.place, ignore_errors=True)


class Server:
    """A server that asks what it likes; `told` is what sites said no with in the last attempt."""

    def __init__(self, rig, study, run="run", greet=True):
        self.rig, self.study, self.run = rig, study, run
        self.sites = tuple(sorted(study.sites))
        self.told: dict[str, str] = {}
        self.codes: dict[str, str] = {}
        self._seq, self._after = -1, -1
        if greet:
            self.greet()
        self._sums = SecureFederation(self, run, study.privacy.min_sites, None, study.variables)

    def greet(self, names=None):
        """Send the study to sites; a refusal is raised."""
        meta = {"study": self.study.to_json(), "version": __version__}
        message = encode_request(Request("hello", self.run, meta=meta))
        for name in names or self.sites:
            read_reply(self.rig.endpoints[name].handle(message))

    def again(self):
        """Greet again and agree on keys anew, as after a restart; numbers of tasks go on."""
        self.greet()
        self._sums.agree_on_keys()

    def sum(self, task):
        """Return the sum for a task; what sites refuse raises their sentence, and may be asked anew."""
        if self._sums._server.slots_left == 0:
            self._sums.agree_on_keys()
        self._seq, self.told, self.codes = self._seq + 1, {}, {}
        try:
            found = self._sums.sum(task)
        except (FederationError, PrivacyError) as error:
            raise (Refused(self.told) if self.told else error) from None
        self._after = self._seq
        return found

    def refused(self, task, code, *names, site="s0"):
        """Expect a refusal for what data or rules say: the server hears one sentence, the owner reads why."""
        with pytest.raises(Refused) as caught:
            self.sum(task)
        assert {one.partition("refused: ")[2] for one in caught.value.told.values()} == {WITHHELD}
        last = self.rig.refusals(site, self.run)[-1]
        assert last.code == code, (last.code, last.note)
        assert [name for name in names if str(name) not in last.note] == [], last.note

    def malformed(self, task, *names):
        """Expect a refusal for what a question is, whatever the data are: that may be said."""
        with pytest.raises(Refused) as caught:
            self.sum(task)
        for told in caught.value.told.values():
            assert WITHHELD not in told
            assert [name for name in names if str(name) not in told] == [], told

    def __call__(self, messages):
        """Carry messages of secure aggregation; the courier of `SecureFederation`."""
        replies = {}
        for name, (meta, arrays) in messages.items():
            inner = np.frombuffer(encode(meta, arrays), dtype=np.uint8)
            request = Request("secagg", self.run, max(self._seq, 0), self._after, arrays={"message": inner})
            try:
                reply = read_reply(self.rig.endpoints[name].handle(encode_request(request)))
                replies[name] = read_secure_reply(reply.arrays["message"].tobytes())
            except (FederationError, PrivacyError) as error:
                self.told[name], self.codes[name] = str(error), error.code
        return replies


class Refused(Exception):
    """What sites said, by name."""

    def __init__(self, told):
        super().__init__(" ".join(told.values()))
        self.told = told
