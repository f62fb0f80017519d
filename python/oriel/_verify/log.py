"""What XLA and NCCL say in their logs of symmetric memory. Their wording changes from
version to version, so lines are known by few words and by what they tell."""

import re

# XLA asks:  "Register symmetric buffer for NCCL communicator; buffer=0x4…; size=…; comm=0x5…"
#            "Create NCCL symmetric memory on comm=0x5… from: ptr=0x4…; size=…"
_ASKED = re.compile(r"\b(?:register|registering|create|creating)\b.*\bsymmetric\b", re.I)
# NCCL does: "… NCCL INFO register comm 0x5… buffer 0x4… size …", of plain buffers as well
_DONE = re.compile(r"\bNCCL\b.*\bregister(?:ed|ing)?\b", re.I)
_UNDONE = re.compile(r"\b(?:de|un)-?regist|\bdestroy|\bfail|\bskip", re.I)
# "… NCCL INFO AllReduce [Symmetric]: 4096 Bytes -> Kernel AllReduce_AGxLL_R nchannels 2 …"
_KERNEL = re.compile(r"(\w+) \[Symmetric\]: (\d+) Bytes -> Kernel (\S+)")
_SPACE = re.compile(r"Symmetric VA size ?= ?(\S+)")
_ADDRESS = r"\b(?:{})\s*[=:]?\s*(0x[0-9a-f]+)"
_BUFFER = re.compile(_ADDRESS.format("buffer|buff|ptr|addr|address"), re.I)
_COMM = re.compile(_ADDRESS.format("comm|communicator"), re.I)
_SIZE = re.compile(r"\b(?:size|bytes)\s*[=:]?\s*(\d+)", re.I)
_FROM_NCCL = re.compile(r"\bNCCL (?:INFO|TRACE|WARN|VERSION)\b")

# Why nothing came of it, the most telling first.
_COMPLAINTS = [
    re.compile(pattern, re.I)
    for pattern in (
        r"Duplicate GPU detected.*",
        r"symmetric memory device ABI mismatch.*",
        r"Symmetric registration is not supported.*",
        r"does not support symmetric memory.*",
        r"could not allocate collective.*",
        r"RESOURCE_EXHAUSTED.*",
        r"NCCL WARN .*",
        r"\w*(?:Error|Exception): .*",
        r"^F\d{4} .*",
    )
]


def _fields(line):
    """{buffer, size, comm} of a line that tells of a registration, or None."""
    buffer, size, comm = _BUFFER.search(line), _SIZE.search(line), _COMM.search(line)
    if buffer is None or size is None:
        return None
    return {
        "buffer": buffer.group(1).lower(),
        "size": int(size.group(1)),
        "comm": comm.group(1).lower() if comm else None,
    }


def _same(one, other):
    comms = {one["comm"], other["comm"]} - {None}
    return (one["buffer"], one["size"]) == (other["buffer"], other["size"]) and len(comms) < 2


def _lines(text):
    """(those by which XLA asks, those by which NCCL says that it has done)."""
    asked, done = [], []
    for line in text.splitlines():
        fields = None if _UNDONE.search(line) else _fields(line)
        if fields is None:
            continue
        if _FROM_NCCL.search(line):
            if fields["comm"] and _DONE.search(line):
                done.append(fields)
        elif _ASKED.search(line):
            asked.append(fields)
    return asked, done


def _counted(lines, name):
    """Each once, with how often as `name`."""
    found = []
    for fields in lines:
        known = next((one for one in found if _same(one, fields)), None)
        if known is None:
            known = fields | {"xla": 0, "nccl": 0}
            found.append(known)
        known[name] += 1
    return found


def registrations(text):
    """Of one process: {buffer, size, comm, xla, nccl}, the last two for how often XLA has
    asked for it and NCCL has done it. NCCL tells of plain buffers in the same words, so its
    lines count where XLA has asked for this buffer, or where XLA's own lines are of another
    version's wording and NCCL has made a space for symmetric memory."""
    asked, done = _lines(text)
    found = _counted(asked, "xla")
    for one in found:
        one["nccl"] = min(one["xla"], sum(_same(one, fields) for fields in done))
    if not found and _SPACE.search(text):
        found = _counted(done, "nccl")
    return found


def kernels(text):
    """NCCL's symmetric kernels that ran: {operation, bytes, kernel}, each once."""
    found = dict.fromkeys(_KERNEL.findall(text))
    return [{"operation": o, "bytes": int(b), "kernel": k} for o, b, k in found]


def unknown_flags(text):
    """The flags that XLA refused, as "--xla_this=true"; None when it did not."""
    match = re.search(r"Unknown flags? in XLA_FLAGS: ?(.*)", text)
    return re.findall(r"--\S+", match.group(1)) if match else None


def complaint(text):
    """The line that says best why something failed, or ""."""
    for pattern in _COMPLAINTS:
        for line in reversed(text.splitlines()):
            if match := pattern.search(line):
                return match.group(0).strip()
    return ""
