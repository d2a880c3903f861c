"""A ServerApp that carries out run after run by the plans of FEDGE_STUDY, on Ray or on SuperNodes.

Of "greetings" it finds the clients alone.
With FEDGE_HOLE it does not look at numbers of windows.
"""

import json
import os
from pathlib import Path

from flwr.serverapp import ServerApp
from lying_runs import carry_out_all, greet_all

from fedge.data import own_windows
from fedge.engine.federation import federation_of_this_process
from fedge.engine.flower_engine import FlowerEngine
from fedge.engine.flower_process import stop_event

app = ServerApp()

if os.environ.get("FEDGE_HOLE"):  # a check of first answers is planted away
    own_windows._parse_count = lambda value: value


@app.main()
def main(grid, context):
    study = json.loads(Path(os.environ["FEDGE_STUDY"]).read_text())
    is_deployed = federation_of_this_process().num_supernodes == 0
    stopped = None if is_deployed else stop_event()
    for changes, plans in study["parts"]:
        carry_out_all(
            lambda: FlowerEngine(grid, stopped, is_deployed), "flower", {**study["config"], **changes}, plans
        )
    for clients, least, folder, plans in study.get("greetings", ()):
        greet_all(lambda: FlowerEngine(grid, stopped, is_deployed), clients, least, folder, plans)
    print("the study is over", flush=True)
