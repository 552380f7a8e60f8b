"""What is said of studies by files: which file it is, what it asks or holds, who is awaited."""

from __future__ import annotations

from feddbn.words import Card, Said, counted, says

_ASKED = {
    "hello": "whether this site takes part; the answer has its version of feddbn and where its audit log stands, no data",
    "task": "{tasks}. The answer is NOT masked: whoever reads it sees this site's own numbers",
    "sealed": "{tasks}. The answer is a sealed part for each of two keepers: by itself each is random numbers",
    "parts": "to take the sealed parts of sites; the answer has this keeper's share of what checks their proofs",
    "open": "to check proofs and to open sums; the answer has this keeper's share of a sum, sealed for the lead, or none",
    "advertise": "a public key for masks; the answer has nothing of the data but a keyed mark of their version",
    "share": "shares of this site's secrets, each sealed for one other site; nothing of the data",
    "deliver": "to take the other sites' sealed shares; the answer is a receipt",
    "masked": "{tasks}. The answer is masked: by itself it is random numbers",
    "survivors": "a signature under the list of sites that have answered; nothing of the data",
    "unmask": "what opens the sum of all sites that answered, and no site's own numbers",
    "heads": "to keep where the other sites' audit logs stand, so that nobody can rewrite one unseen",
    "finish": "nothing: it brings the result of the run, which this site keeps; the answer is a receipt",
}
_HELD = {
    "hello": "that this site takes part, its version and where its audit log stands; no data",
    "task": "{numbers} of this site, NOT masked: whoever reads this file can read them",
    "sealed": "a sealed part for each of two keepers ({bytes:,} bytes): by itself each is random numbers",
    "parts": "this keeper's share of what checks the sites' proofs ({bytes:,} bytes); no numbers of a site",
    "open": "who is valid, and, if it was asked for, this keeper's share of a sum ({bytes:,} bytes), sealed for the lead",
    "advert": "a public key for masks and a keyed mark of the version of the data",
    "shares": "shares of this site's secrets, each sealed for one other site ({bytes:,} bytes)",
    "ready": "a receipt of the other sites' sealed shares",
    "masked": "{numbers}, masked: by themselves they are random",
    "survivors": "a signature under the list of sites that have answered",
    "unmask": "what opens the sum of all sites that answered ({bytes:,} bytes); no numbers of this site",
    "heads": "receipts for where other sites' audit logs stand",
    "finish": "a receipt of the result",
}


_ASKED["batch"], _HELD["batch"] = _ASKED["task"], _HELD["task"]


@says("file-question")
def _file_question(it: Said) -> Card:
    return Card("file", "", f"question {it['number']} to the site {it['site']} in the run {it['run']}")


@says("file-answer")
def _file_answer(it: Said) -> Card:
    return Card(
        "file", "", f"answer of the site {it['site']} to question {it['number']} in the run {it['run']}"
    )


@says("file-signed")
def _file_signed(it: Said) -> Card:
    how = "the signature is right" if it["checked"] else "not checked; --kit checks the signature"
    return Card("signed by", "", f"{it['by']} ({how})")


@says("file-asks")
def _file_asks(it: Said) -> Card:
    tasks = "; ".join(f"{name}: {purpose or 'not known here'}" for name, purpose in it.get("tasks", ()))
    return Card("asks", "", _ASKED.get(it["phase"], it["phase"]).format(tasks=tasks))


@says("file-holds")
def _file_holds(it: Said) -> Card:
    values = {"numbers": counted(it["numbers"], "number"), "bytes": it["bytes"]}
    return Card("holds", "", _HELD.get(it["phase"], it["phase"]).format(**values))


@says("file-refuses")
def _file_refuses(it: Said) -> Card:
    return Card("holds", "", f"a refusal, no data: {it['sentence']}")


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
        f"Put the answers anywhere into {it['folder']}, then run `feddbn study step {it['folder']}` again."
    )
    return "\n".join(lines)


@says("files-finished")
def _files_finished(it: Said) -> str:
    if not it["files"]:
        return f"run {it['run']} has finished, and all its sites have the result."
    lines = [f"run {it['run']} has finished. With these files its sites get the result, too:"]
    return "\n".join([*lines, *(f"  {site}: {path}" for site, path in sorted(it["files"].items()))])


@says("files-kit")
def _files_kit(it: Said) -> Card:
    return Card(
        "kit", "", f"of {it['site']!r}, for questions that {it['lead']} has signed (key {it['key']}...)"
    )


@says("files-kit-other")
def _files_kit_other(it: Said) -> Card:
    said = f"files.toml is of {it['named']!r}, the settings of {it['site']!r}, or identity.key is not the key of that site"
    return Card("kit", "", f"{said} in peers.toml; use the kit as it was made")


@says("peers-listed")
def _peers_listed(it: Said) -> Card:
    return Card("public keys", "", f"of {it.names}")


@says("folder-shared")
def _folder_shared(it: Said) -> Card:
    there = "is watched by `feddbn start`" if it["there"] else "is not there; make it, or correct files.toml"
    return Card("shared folder", "", f"{it['folder']} {there}")


@says("folder-none")
def _folder_none(it: Said) -> Card:
    return Card("shared folder", "", "none in files.toml; questions are answered with `feddbn site answer`")
