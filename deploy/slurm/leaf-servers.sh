#!/bin/bash
# A cloud and three leaf servers as one Slurm job of four tasks, on as many nodes as Slurm gives it.
#   fedge certs certs --leaves 3 && sbatch deploy/slurm/leaf-servers.sh -c fedge:fedge
#SBATCH --job-name=fedge-leaves
#SBATCH --ntasks=4
#SBATCH --cpus-per-task=4
#SBATCH --time=04:00:00
set -euo pipefail

PORT=${PORT:-9555}
CLOUD=$(hostname)                 # the first node of the job, where this script runs
LEAVES=$((SLURM_NTASKS - 1))

for leaf in $(seq 0 $((LEAVES - 1))); do
    srun --ntasks=1 --cpus-per-task="$SLURM_CPUS_PER_TASK" --exact fedge leaf "$leaf" --cloud "$CLOUD:$PORT" --once --wait 600 --workers "$SLURM_CPUS_PER_TASK" &
done
fedge run "$@" -c "hierarchy.num-servers=$LEAVES" --leaves "0.0.0.0:$PORT"
wait
