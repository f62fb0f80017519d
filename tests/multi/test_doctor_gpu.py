"""What `oriel doctor` says of GPUs, with tests/fake/cuda.c in the driver's place."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from launcher import ORIEL, findings_of

FAKE = Path(ORIEL).parent / "tests" / "fake"
pytestmark = pytest.mark.skipif(
    not (FAKE / "libcuda.so.1").exists(), reason="tests/fake is not built: no libcuda.so.1"
)


def examine(oriel, fake="", **env):
    """With the driver that `fake` describes; no Python is asked for its packages."""
    env = {"LD_LIBRARY_PATH": str(FAKE), "FAKE_CUDA": fake, "PATH": "/nonexistent"} | env
    return oriel.run("doctor", "--json", env=env)


def test_a_good_machine(oriel):
    done = examine(oriel)
    found = findings_of(done)
    assert done.returncode == 0
    assert "for CUDA up to 13.0; 2 GPUs" in found["CUDA driver"]["what"]
    assert found["GPU 1"]["what"] == (
        'Fake "GPU" 1, 140.0 GiB, 132 multiprocessors, sm_90; virtual memory yes, descriptors '
        "yes, fabric handles yes, multicast no"
    )
    assert re.match(r"\d+ GB/s, .* % of the 4917 GB/s ", found["copy on GPU 0"]["what"])
    assert found["peer access"]["status"] == "ok"
    assert "direct" in found["fabric on GPUs"]["what"]
    assert "no variable changes this" in found["fabric on GPUs"]["what"]
    gpus = json.loads(done.stdout)["cuda"]["gpus"]
    assert [gpu["reaches"] for gpu in gpus] == [[0, 1], [0, 1]]
    assert gpus[0]["multiprocessors"] == 132 and gpus[0]["copy_bytes_per_s"] > 0


@pytest.mark.parametrize(
    "fake, env, name, status, words",
    [
        ("init=100", {"CUDA_VISIBLE_DEVICES": ""}, "CUDA driver", "warn",
         'CUDA_VISIBLE_DEVICES="" hides all'),
        ("init=100", {}, "CUDA driver", "warn", "CUDA shows no device"),
        ("gpus=0", {}, "CUDA driver", "warn", "CUDA shows no device"),
        ("init=803", {}, "CUDA driver", "warn", "of different versions"),
        ("init=802", {}, "CUDA driver", "warn", "nvidia-fabricmanager"),
        ("init=807", {}, "CUDA driver", "warn", "MPS server is sick"),
        ("init=999", {}, "CUDA driver", "warn", "cuInit failed: CUDA_ERROR_FAKE (999)"),
        ("crash=1", {}, "CUDA driver", "warn", "broken: it ended the process"),
        ("reach=0", {}, "peer access", "warn", "GPU 0 has no access to the memory of GPU 1"),
        ("vmm=0", {}, "GPU 0", "warn", "lacks virtual memory management"),
        ("vmm=0", {}, "fabric on GPUs", "warn", "none"),
        ("mps=1", {}, "MPS", "ok", "used by this process"),
        ("sync_ms=40 gpus=1", {}, "copy on GPU 0", "warn", "nvidia-smi"),
        ("", {"ORIEL_FABRIC": "nccl"}, "fabric on GPUs", "ok", "nccl is chosen, direct"),
        ("", {}, "NCCL", "ok", "2.30.7 for CUDA 13.0; configured as of 2.28; "),
        ("", {}, "NCCL's windows", "ok", "all that oriel uses is here"),
        ("version=12080", {}, "NCCL", "warn",
         "2.30.7 for CUDA 13.0; the driver knows CUDA up to 12.8"),
        ("", {"FAKE_NCCL": "version=22809"}, "NCCL's windows", "missing",
         "lacks ranks that share a GPU (2.30), buffers of sizes that differ"),
        ("", {"FAKE_NCCL": "version=22707"}, "NCCL", "missing", "2.27.7; 2.28.3 is needed"),
        ("", {"ORIEL_DIRECT": "0", "ORIEL_GPU_CTAS": "64"}, "fabric on GPUs", "warn",
         "staged: data passes through oriel's memory; ORIEL_DIRECT=0, ORIEL_GPU_CTAS=64"),
    ],
)  # fmt: skip
def test_what_is_wrong(oriel, fake, env, name, status, words):
    done = examine(oriel, fake, **env)
    finding = findings_of(done)[name]
    assert done.returncode == 0
    assert finding["status"] == status
    assert words in " ".join((finding["what"], finding["why"], finding["mend"]))


def test_a_daemon_that_is_not_used(oriel, tmp_path):
    """MPS's daemon is known by the file it leaves and by its name."""
    shutil.copy("/bin/sleep", tmp_path / "nvidia-cuda-mps-control")
    daemon = subprocess.Popen([tmp_path / "nvidia-cuda-mps-control", "60"])
    try:
        (tmp_path / "nvidia-cuda-mps-control.pid").write_text(f"{daemon.pid}\n")
        done = examine(oriel, CUDA_MPS_PIPE_DIRECTORY=str(tmp_path))
    finally:
        daemon.kill()
        daemon.wait()
    assert f"its daemon runs (process {daemon.pid}" in findings_of(done)["MPS"]["what"]
    done = examine(oriel, CUDA_MPS_PIPE_DIRECTORY=str(tmp_path))
    assert findings_of(done)["MPS"]["what"] == f"no daemon at {tmp_path}"
