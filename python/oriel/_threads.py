"""Threads of XLA's CPU client.

XLA:CPU parks one thread of its pool for each device execution, so the pool must
be larger than the number of devices, with room for programs in flight. Its size
is PJRT_NPROC, else NPROC, else the number of cores, read when the client is
made.
"""

import os
import re
import sys

_LEAST = 16
_PER_DEVICE = 4
_UNKNOWN = 32  # when nothing says how many devices there will be

_reserved = None  # what we wrote into PJRT_NPROC
_early_pool = None  # size of the pool of a client older than this module


def devices_asked():
    """The number of CPU devices JAX will make, or None where nothing says it."""
    from jax import config

    asked = getattr(config, "jax_num_cpu_devices", -1)
    if asked is not None and asked > 0:
        return asked
    flag = re.findall(
        r"--xla_force_host_platform_device_count=(\d+)", os.environ.get("XLA_FLAGS", "")
    )
    return int(flag[-1]) if flag else None


def _pool_size():
    for name in ("PJRT_NPROC", "NPROC"):
        text = os.environ.get(name, "")
        if text.isdigit():
            return max(1, int(text))
    return os.cpu_count() or 1


def _client_exists():
    if "jax" not in sys.modules:
        return False
    from oriel import _compat

    return _compat.backends_exist()


def reserve():
    """Asks XLA for enough threads unless the user or an older client decided.

    Called at import and again by init, which may know more devices by then."""
    global _reserved, _early_pool

    if _client_exists():
        if _reserved is None and _early_pool is None:
            _early_pool = _pool_size()
        return
    if _reserved is None and ("PJRT_NPROC" in os.environ or "NPROC" in os.environ):
        return
    devices = devices_asked()
    wanted = max(_LEAST, _PER_DEVICE * devices) if devices else _UNKNOWN
    _reserved = str(max(wanted, int(_reserved or 0)))
    os.environ["PJRT_NPROC"] = _reserved


def shortage(devices):
    """Why the existing client has too few threads for `devices`, or None."""
    pool = _early_pool if _early_pool is not None else _pool_size()
    if devices < 2 or pool >= 2 * devices:
        return None
    return (
        f"JAX's CPU client has {pool} threads for {devices} devices, so collectives on them "
        f"could wait for each other for ever: import oriel before the first JAX computation, "
        f"or set PJRT_NPROC={max(_LEAST, _PER_DEVICE * devices)}"
    )
