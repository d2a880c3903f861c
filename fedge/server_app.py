"""Flower's entry point for the server: passes Flower's facts about the run to `fedge.run`."""

import platform
import sys

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedge.config.registers.engines import FLOWER
from fedge.config.registers.option import ConfigError
from fedge.engine.capture import end_captures
from fedge.engine.federation import federation_of_this_process, refuse_missing_resources
from fedge.engine.flower_engine import FlowerEngine
from fedge.engine.flower_process import end_descendants_at_exit, stop_event
from fedge.engine.loopback import attaches
from fedge.process.endings.channels import exit_despite_channels
from fedge.process.logs import divert_descriptors
from fedge.run.run import run

app = ServerApp()
end_descendants_at_exit()
exit_despite_channels()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Carry out the run.

    It returns even if the run failed: Flower prints a traceback for an exception and reports success either
    way, so the manifest is authoritative.
    """
    federation = federation_of_this_process()
    is_simulated = federation.num_supernodes > 0
    try:
        refuse_missing_resources(federation, on_ray=is_simulated and not attaches(federation.init_args))
    except ConfigError as error:
        print(f"fedge: {error}", file=sys.stderr, flush=True)
        return
    engine = FlowerEngine(grid, stop_event() if is_simulated else None, nodes_come_back=not is_simulated)
    if is_simulated:
        fields = federation.describe()
        run(engine, context.run_config, FLOWER.name, fields, divert_descriptors, owns_process=True)
        end_captures(grid)
        return
    # the only output shown to others by the SuperLink
    outcome = run(engine, context.run_config, FLOWER.name, federation.describe(), lambda _: sys.stdout)
    print(outcome.last_line(platform.node()), flush=True)
