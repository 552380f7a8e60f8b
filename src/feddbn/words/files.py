"""What is said of studies by files: which file it is, what it asks or holds, who is awaited."""

from __future__ import annotations

from feddbn.words import Card, Said, counted, says, says_as

_ASKED = {
    "hello": "whether this site takes part; the answer holds its feddbn version and the state of its audit log, no data",
    "task": "{task}. The answer is NOT masked: whoever reads it sees this site's own numbers",
    "advertise": "a public key for masks; about the data, the answer holds only a keyed fingerprint of their version",
    "share": "shares of this site's secrets, each encrypted for one other site; no data",
    "deliver": "to store the other sites' encrypted shares; the answer is a receipt",
    "masked": "{task}. The answer is masked: alone, it is random numbers",
    "survivors": "a signature under the list of sites that have answered; no data",
    "unmask": "the keys that open the sum over all sites that answered; they open no single site's numbers",
    "finish": "nothing: it delivers the result of the run, which this site keeps; the answer is a receipt",
}
_HELD = {
    "hello": "that this site takes part, its version and the state of its audit log; no data",
    "task": "{numbers} of this site, NOT masked: whoever reads this file can read them",
    "advert": "a public key for masks and a keyed fingerprint of the version of the data",
    "shares": "shares of this site's secrets, each encrypted for one other site ({bytes:,} bytes)",
    "ready": "a receipt for the other sites' encrypted shares",
    "masked": "{numbers}, masked: alone, they are random",
    "survivors": "a signature under the list of sites that have answered",
    "unmask": "the keys that open the sum over all sites that answered ({bytes:,} bytes); no numbers of this site",
    "finish": "a receipt for the result",
}


says_as(
    {
        "file-question": ("file", "", "question {number} to the site {site} in the run {run}"),
        "file-answer": ("file", "", "answer of the site {site} to question {number} in the run {run}"),
        "file-refuses": ("holds", "", "a refusal, no data: {sentence}"),
        "files-kit": ("kit", "", "of {site!r}, for questions that {lead} has signed (key {key}...)"),
        "peers-listed": ("public keys", "", "of {it.names}"),
        "folder-none": (
            "shared folder",
            "",
            "none in files.toml; questions are answered with `feddbn site answer`",
        ),
    }
)


@says("file-signed")
def _file_signed(it: Said) -> Card:
    how = "the signature is right" if it["checked"] else "not checked; --kit checks the signature"
    return Card("signed by", "", f"{it['by']} ({how})")


@says("file-asks")
def _file_asks(it: Said) -> Card:
    name, purpose = it.get("task", ("", ""))
    task = f"{name}: {purpose or 'not known here'}"
    return Card("asks", "", _ASKED.get(it["phase"], it["phase"]).format(task=task))


@says("file-holds")
def _file_holds(it: Said) -> Card:
    values = {"numbers": counted(it["numbers"], "number"), "bytes": it["bytes"]}
    return Card("holds", "", _HELD.get(it["phase"], it["phase"]).format(**values))


@says("files-awaited")
def _files_awaited(it: Said) -> str:
    lines = [f"run {it['run']}: {it['sentence']}"]
    lines += [f"  {site}: {path}" for site, path in sorted(it["files"].items())]
    if it["is_first"]:
        lines.append(
            "Hand each site its file. Its owner approves the study once: `feddbn site approve FILE --kit KIT`."
        )
    lines.append("Each site answers with `feddbn site answer FILE --kit KIT` and sends the answer back.")
    lines.append(
        f"Put the answers anywhere in {it['folder']}, then run `feddbn study step {it['folder']}` again."
    )
    return "\n".join(lines)


@says("files-finished")
def _files_finished(it: Said) -> str:
    if not it["files"]:
        return f"run {it['run']} has finished, and all its sites have the result."
    lines = [
        f"run {it['run']} has finished. Send these files to the sites, so that they get the result, too:"
    ]
    return "\n".join([*lines, *(f"  {site}: {path}" for site, path in sorted(it["files"].items()))])


@says("files-kit-other")
def _files_kit_other(it: Said) -> Card:
    said = f"files.toml names {it['named']!r} and the settings {it['site']!r}, or identity.key is not the key of that site"
    return Card("kit", "", f"{said} in peers.toml; use the kit as it was made")


@says("folder-shared")
def _folder_shared(it: Said) -> Card:
    there = (
        "is watched by `feddbn start`" if it["there"] else "does not exist; create it, or correct files.toml"
    )
    return Card("shared folder", "", f"{it['folder']} {there}")
