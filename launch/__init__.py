"""Sweeps: one experiment, many overrides, on this machine or on a Slurm cluster.

plan      one list of runs, checked before anything starts; both engines work it off
job       what a worker or a cluster's job executes: one run, once at a time, stopped and resumed
local     python -m launch.local: so many at once on this machine
slurm     python -m launch.slurm: an array job
status    python -m launch.status: how far a sweep is, wherever it runs
"""
