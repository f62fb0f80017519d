"""Files in NVIDIA's wheels, which JAX's CUDA plugins bring, too."""

import importlib.util
import pathlib


def files(folders, pattern):
    """Those that match, in the first folders first."""
    found = importlib.util.find_spec("nvidia")
    for root in found.submodule_search_locations if found else ():
        for folder in folders:
            yield from sorted(pathlib.Path(root, folder).glob(pattern))


def nccl():
    """The file of NCCL, or None."""
    return next(map(str, files(("nccl/lib",), "libnccl.so.2")), None)
