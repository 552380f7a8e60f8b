"""Verify exported audit logs of a site (`feddbn site log --out`) without feddbn: chains of hashes, and signatures with --key.

    python verify_audit.py logs/*.jsonl --key 64_HEXADECIMAL_DIGITS

The key is the site's public key, as in `peers.toml`; signatures need the package `cryptography`. Exit code 1 if a log is not
intact. What this cannot see is an end that was cut off: hold the number of entries and the last hash, which are printed,
against what the site's own log (`_site.jsonl`, field "chain") and the lead say.
"""

import argparse
import hashlib
import json
import sys
from pathlib import Path


def canonical(entry, without):
    """The text that was hashed or signed."""
    kept = {name: value for name, value in entry.items() if name not in without}
    return json.dumps(kept, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()


def is_signed(entry, key):
    """Whether the owner of the key signed an entry."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    statement = b"feddbn secure aggregation 1 audit " + canonical(entry, ("signature", "hash"))
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(bytes.fromhex(entry["signature"]), statement)
    except (InvalidSignature, ValueError, KeyError):
        return False
    return True


def verify(lines, key=None):
    """Return the number of good entries, the last good hash, and what is wrong, or None."""
    last = "0" * 64
    for index, line in enumerate(lines):
        try:
            entry = json.loads(line)
            digest = hashlib.sha256(b"feddbn audit " + canonical(entry, ("hash",))).hexdigest()
            fits = (entry["index"], entry["previous"], entry["hash"]) == (index, last, digest)
        except (ValueError, KeyError, AttributeError, TypeError):
            fits = False
        if not fits:
            return index, last, f"line {index + 1} was edited, or lines before it are missing"
        if key is not None and not is_signed(entry, key):
            return index, last, f"line {index + 1} was not signed with this key"
        last = digest
    return len(lines), last, None


def main():
    """Verify the files that are named."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("logs", nargs="+", type=Path)
    parser.add_argument("--key", help="the site's public key, hexadecimal")
    options = parser.parse_args()
    key = None if options.key is None else bytes.fromhex(options.key)
    is_bad = False
    for path in options.logs:
        n, last, problem = verify(path.read_text(encoding="utf-8").splitlines(), key)
        said = "intact" if problem is None else f"NOT intact: {problem}"
        print(f"{path.name}: {said}; {n} good entries, last hash {last}")
        is_bad = is_bad or problem is not None
    sys.exit(int(is_bad))


if __name__ == "__main__":
    main()
