"""A federation by files in this process: kits, data, and a courier who brings answers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from feddbn.analysis import studies  # noqa: F401 (registers the methods)
from feddbn.runtime.files.kit import make_kits
from feddbn.runtime.files.lead import Lead
from feddbn.runtime.files.signed import put_file, read_plain
from feddbn.runtime.files.site import FileSite, answer_name
from support.consortium import NAMES, RULE, make_study

LEAD = "lead@example.org"


class FileKits:
    """Kits of three sites with thirty rows each, and of their lead."""

    def __init__(self, place: Path, policy: str | None = RULE) -> None:
        self.place = Path(place)
        self.kits = make_kits(self.place, NAMES, LEAD)
        rng = np.random.default_rng(0)
        for name in NAMES:
            frame = pd.DataFrame(rng.normal(size=(30, 2)), columns=["u", "v"])
            frame.to_csv(self.kits[name] / "data" / "r000.csv", index=False)
            if policy is not None:
                (self.kits[name] / "policy.toml").write_text(policy)

    @property
    def lead(self) -> Path:
        return self.kits[LEAD]

    def begin(self, study=None, run="run-1", place=None):
        """Take the first step of a study in a folder; return how it stands."""
        study = study or make_study()
        lead = Lead(self.lead)
        lead.check(study, run)
        lead.remember(study, run, (place or self.place) / run)
        return lead.step(study, run)

    def step(self, run="run-1"):
        lead = Lead(self.lead)
        return lead.step(lead.study_of(run), run)

    def answer(self, question: Path, name: str | None = None):
        """Answer a question as a site's process would; return what it says."""
        name = name or question.parent.name
        site = FileSite(self.kits[name])
        asked = site.read(read_plain(question), str(question))
        answered = site.answer(asked)
        put_file(question.with_name(answer_name(asked)), answered.content)
        return answered

    def run(self, study=None, run="run-1", most=100):
        """Carry files until a study has ended; return its outcome's last step."""
        stepped = self.begin(study, run)
        while stepped.state == "collecting" and most > 0:
            for question in stepped.questions.values():
                self.answer(question)
            stepped, most = self.step(run), most - 1
        return stepped

    def result(self, run="run-1") -> bytes:
        return (self.lead / "runs" / run / "result.feddbn").read_bytes()
