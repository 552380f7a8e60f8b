"""The study beside this file, run by a SuperLink; ``--run-config 'run="sepsis-1"'`` names a run, to begin or go on with."""

from pathlib import Path

from flwr.app import Context
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from feddbn.adapters.flower_server import serve

app = ServerApp()
# Flower asks for one; nodes of feddbn fetch no app.
client = ClientApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the study."""
    serve(grid, Path(__file__).with_name("study.toml"), str(context.run_config["run"]) or None)
