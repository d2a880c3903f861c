#!/usr/bin/env bash
# What somebody does who has never seen Fedge: a fresh environment, the wheel, an empty folder, a project with an LSTM
# and a way to group leaves of their own, three rounds on both engines with the same bits, and the model put to use.
#
#   tests/newcomer.sh                 # builds the wheel, installs it with all it needs (minutes, 2 GB)
#   ENVIRONMENT=.venv tests/newcomer.sh    # with an environment that has Fedge already: the rest alone
set -euo pipefail
checkout=$(cd "$(dirname "$0")/.." && pwd)
python=${PYTHON:-python3}
folder=$(mktemp -d "${FOLDER:-${TMPDIR:-/tmp}}/newcomer.XXXXXX")
trap 'rm -rf "$folder"' EXIT
export FLWR_TELEMETRY_ENABLED=0 RAY_USAGE_STATS_ENABLED=0
say() { printf '\n== %s (%d s)\n' "$1" "$SECONDS"; }

if [ -n "${ENVIRONMENT:-}" ]; then
    environment=$(cd "$ENVIRONMENT" && pwd)
else
    say "a fresh environment, with the wheel"
    environment=$folder/environment
    "$python" -m venv "$environment"
    "$environment/bin/pip" wheel --quiet --no-deps --wheel-dir "$folder" "$checkout"
    wheel=$(ls "$folder"/fedge-*.whl)
    "$environment/bin/pip" install --quiet -c "$checkout/constraints.txt" "$wheel[ray]" pytest
    if grep -q '^onnx = ' "$checkout/pyproject.toml"; then
        "$environment/bin/pip" install --quiet -c "$checkout/constraints.txt" "$wheel[onnx]"
    fi
    printf '%s packages, %s, %d s\n' "$("$environment/bin/pip" list 2>/dev/null | tail -n +3 | wc -l)" \
        "$(du -sh "$environment" | cut -f1)" "$SECONDS"
fi
export PATH="$environment/bin:$PATH"
work="$folder/an empty folder"    # with spaces, as folders have them
mkdir "$work" && cd "$work"

say "the default and a configuration that comes with Fedge, in an empty folder"
fedge --version
fedge run -c fedge:hierfl -c 'num-server-rounds=1 train.local-epochs=1'
fedge runs

say "a project of one's own: an LSTM, a way to group leaves"
fedge new my-study && cd my-study
cat > my_study/lstm.py <<'PYTHON'
from torch import nn


class Lstm(nn.Module):
    def __init__(self, input_shape, classes, width=16):
        super().__init__()
        self.lstm = nn.LSTM(input_shape[0], width, batch_first=True)
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        return self.head(self.lstm(x.transpose(1, 2))[0][:, -1])
PYTHON
cat > my_study/halves.py <<'PYTHON'
import numpy as np

from fedge.clustering.registry import Grouping


def halves(evidence, config, before):
    """The first leaves are one cluster, the others another."""
    count = len(evidence.models)
    return Grouping((np.arange(count) >= count // 2).astype(np.int64), np.eye(count))
PYTHON
options="num-server-rounds=3 train.local-epochs=1 train.model='my_study.lstm:Lstm' train.model-args='{\"width\": 8}'"
options="$options cluster.method='my_study.halves:halves' report=true"
fedge run -c "$options" -c 'run-name="in-process"'
flwr run . -c "$options run-name='on-ray'"

say "the same bits on both engines"
python - <<'PYTHON'
import fedge

one, other = fedge.load_run("runs/in-process"), fedge.load_run("runs/on-ray")
assert one.status == other.status == "completed", (one.status, other.status)
assert len(one.rounds) == len(other.rounds) == 3
assert one.clients["test_accuracy"].equals(other.clients["test_accuracy"])
assert one.clients["train_loss"].equals(other.clients["train_loss"])
for leaf, model in enumerate(one.models()):
    for name, array in model.items():
        assert array.tobytes() == other.models()[leaf][name].tobytes(), (leaf, name)
print("models, accuracies and losses agree in every bit")
PYTHON

say "compared, tested"
fedge compare in-process on-ray --format markdown
if [ -z "${ENVIRONMENT:-}" ]; then python -m pytest -q -p no:cacheprovider; fi    # else the caller has tests enough

if fedge --help | grep -q '^    predict '; then
    say "the model put to use"
    hhar synthesize data.npz --small
    fedge predict in-process data.npz -o predicted.csv
    python -c "
import csv, numpy
rows = list(csv.reader(open('predicted.csv')))
windows = len(numpy.load('data.npz', allow_pickle=False)['y'])
assert len(rows) == windows + 1, (len(rows), windows)
print(len(rows) - 1, 'windows classified')"
    fedge export in-process --onnx model.onnx
    ls -l model.onnx
fi
say "done"
