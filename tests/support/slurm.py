"""What Slurm's srun tells the processes it starts, for tests that start them in its place."""

import uuid


def step(process, count, job_id, **more):
    """The variables of process `process` of `count` on one machine."""
    return {
        "SLURM_JOB_ID": job_id,
        "SLURM_STEP_ID": 0,
        "SLURM_PROCID": process,
        "SLURM_LOCALID": process,
        "SLURM_NODEID": 0,
        "SLURM_NTASKS": count,
        "SLURM_STEP_NUM_TASKS": count,
        "SLURM_NNODES": 1,
        "SLURM_STEP_TASKS_PER_NODE": count,
    } | more


def fresh_job():
    return uuid.uuid4().int % 10**12
