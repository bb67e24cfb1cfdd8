"""A launcher of ranks, as torchrun, mpirun and srun are: starts COMMAND once for each rank, waits for all.

usage: launcher.py RANKS VARIABLES COMMAND...     VARIABLES: torch, mpi or slurm
Passes SIGTERM on to the ranks, as those do; exits 1 when a rank failed.
"""
import os
import signal
import subprocess
import sys

NAMES = {"torch": ("RANK", "LOCAL_RANK", "WORLD_SIZE"), "mpi": ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE"),
         "slurm": ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS")}
ranks, names = int(sys.argv[1]), NAMES[sys.argv[2]]
children = []
for rank in range(ranks):
    env = dict(os.environ, **dict(zip(names, map(str, (rank, rank, ranks)))))
    command = [word.replace("%RANK%", str(rank)) for word in sys.argv[3:]]
    children.append(subprocess.Popen(command, env=env))


def pass_on(number, _frame):
    for child in children:
        child.send_signal(number)


signal.signal(signal.SIGTERM, pass_on)
print("launched", flush=True)
sys.exit(1 if [child for child in children if child.wait() != 0] else 0)
