"""Stands in for the worker of `oriel verify`: does as the environment says.

FAKE_HERE     what it finds, as JSON
FAKE_UNKNOWN  flags that this XLA does not know
FAKE_LOG      a file with what XLA and NCCL write
FAKE_WRONG    the process whose sum is wrong
FAKE_END      how it ends: hang, with its pid and its child's in FAKE_PIDS, or abort
"""

import json
import os
import pathlib
import subprocess
import sys
import time

env = os.environ
process = env["ORIEL_PROCESS_ID"]


def say(**what):
    print(f"oriel-verify {json.dumps(what)}", flush=True)


unknown = [flag for flag in env["XLA_FLAGS"].split() if flag in env.get("FAKE_UNKNOWN", "")]
if unknown:
    sys.stderr.write(f"F1115 parse_flags.cc:9] Unknown flags in XLA_FLAGS: {' '.join(unknown)}\n")
    sys.exit(134)
if sys.argv[1] == "look":
    say(**json.loads(env["FAKE_HERE"]))
    sys.exit(0)
if env.get("FAKE_END") == "hang":
    child = subprocess.Popen(["sleep", "100"])
    with open(f"{env['FAKE_PIDS']}.{process}", "w") as out:
        out.write(f"{os.getpid()} {child.pid}")
    time.sleep(100)
if env.get("FAKE_END") == "abort":
    print("h:7:7 [0] NCCL WARN Duplicate GPU detected : rank 0 and rank 1", file=sys.stderr)
    os.abort()
plan = json.loads(sys.argv[2])
say(ranks=plan["processes"] * (1 if plan["processes"] > 1 else plan["gpus"]), process=process)
names = ("LD_PRELOAD", "NCCL_MAX_CTAS", "NCCL_MULTI_RANK_GPU_ENABLE", "XLA_FLAGS", "NCCL_DEBUG")
say(operation="environment", bytes=4, wrong=None, coloured=False, **{n: env.get(n) for n in names})
if "FAKE_LOG" in env:  # one half through each descriptor, as native code writes it
    lines = pathlib.Path(env["FAKE_LOG"]).read_text().splitlines(keepends=True)
    os.write(1, "".join(lines[::2]).encode())
    os.write(2, "".join(lines[1::2]).encode())
wrong = "rank 0: 1 of 8 elements are wrong" if env.get("FAKE_WRONG") == process else None
for nbytes in plan["sizes"]:
    say(operation="psum", bytes=nbytes, wrong=wrong, coloured=True)
say(nccl={"version": 23007, "file": "/x/libnccl.so.2"})
