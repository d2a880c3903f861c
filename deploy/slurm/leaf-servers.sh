#!/bin/bash
# A cloud and three leaf servers as one Slurm job of four tasks, on one or more nodes.
#   fedge certs certs --leaves 3 && sbatch deploy/slurm/leaf-servers.sh -c fedge:fedge
# With your own windows, in a file that all nodes can read: DATA=windows.npz sbatch …
# To resume from the last checkpoint after scancel, --time or the loss of a node:
#   sbatch deploy/slurm/leaf-servers.sh resume runs/NAME
# Two jobs at the same time need separate folders and different values of PORT.
#SBATCH --job-name=fedge-leaves
#SBATCH --ntasks=4
#SBATCH --cpus-per-task=4
#SBATCH --mem-per-cpu=1G
#SBATCH --time=04:00:00
#SBATCH --no-requeue
set -euo pipefail

PORT=${PORT:-9555}
CLOUD=$(hostname)                 # the first node of the job, where this script runs
LEAVES=$((SLURM_NTASKS - 1))

DATA=${DATA:+$(realpath "$DATA")}

# every task is a step on one node: Slurm gives it its own cores, and ends it with the job
step() { srun --nodes=1 --ntasks=1 --cpus-per-task="$SLURM_CPUS_PER_TASK" --exact "$@"; }

if [[ "${1:-}" == resume ]]; then
    step --relative=0 fedge "$@" --leaves "0.0.0.0:$PORT" &
else
    step --relative=0 fedge run "$@" -c "hierarchy.num-servers=$LEAVES" ${DATA:+-c "data.path=\"$DATA\""} --leaves "0.0.0.0:$PORT" &
fi
cloud=$!
for leaf in $(seq 0 $((LEAVES - 1))); do
    step fedge leaf "$leaf" --cloud "$CLOUD:$PORT" --once --wait 600 --workers "$SLURM_CPUS_PER_TASK" ${DATA:+--data "$DATA"} &
done
wait "$cloud"
wait
