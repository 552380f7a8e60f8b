"""What claims are worth: in halves of real data (replicate), and where the truth is known (truth)."""

from __future__ import annotations

import argparse
import os
import warnings
from collections.abc import Sequence

# Small matrices: more threads than one cost several times what they gain.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def main(arguments: Sequence[str] | None = None) -> None:
    """Nothing is returned: the table that was asked for is printed, line by line as it is measured."""
    from benchmarks import replicate, truth

    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    commands = parser.add_subparsers(required=True)
    for module in (replicate, truth):
        assert module.__doc__ is not None
        name = module.__name__.rpartition(".")[2]
        command = commands.add_parser(
            name,
            help=module.__doc__.splitlines()[0],
            description=module.__doc__,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.add_options(command)
        command.set_defaults(run=module.run)
    asked = parser.parse_args(arguments)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        asked.run(asked)


if __name__ == "__main__":
    main()
