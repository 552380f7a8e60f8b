"""``python -m feddbn`` is ``feddbn``."""

from feddbn.cli.main import main

main()
