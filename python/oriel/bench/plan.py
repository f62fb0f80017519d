"""What a benchmark measures: the words of the command line, checked."""

import argparse
import dataclasses
import json

OURS = "ours"
PEERS = ("jax", "empty")
OPERATIONS = ("all_reduce",)
REDUCTIONS = ("sum", "mean", "min", "max", "prod")
DTYPES = {
    "f16": ("float16", 2),
    "bf16": ("bfloat16", 2),
    "f32": ("float32", 4),
    "f64": ("float64", 8),
    "s8": ("int8", 1),
    "s16": ("int16", 2),
    "s32": ("int32", 4),
    "s64": ("int64", 8),
    "u8": ("uint8", 1),
    "u16": ("uint16", 2),
    "u32": ("uint32", 4),
    "u64": ("uint64", 8),
    "c64": ("complex64", 8),
    "c128": ("complex128", 16),
}
_UNITS = {"B": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_SMALLEST, _LARGEST = 8, 64 << 20

# Repetitions without --iterations: fixed by the size alone, so that all
# processes do the same number. Small calls are noisy and cheap.
_MOST, _FEWEST = 1000, 30
_MOVED = 1 << 30  # bytes per size, between the two limits


@dataclasses.dataclass
class Plan:
    operation: str
    processes: int
    devices: int  # of each process
    peers: list
    sizes: list  # bytes of one rank's operand
    dtype: str  # of DTYPES
    op: str
    iterations: int | None = None

    @property
    def ranks(self):
        return self.processes * self.devices

    @property
    def numpy_dtype(self):
        return DTYPES[self.dtype][0]

    @property
    def layout(self):
        """As "2 processes, 1 device each"."""
        processes = f"{self.processes} process{'es' if self.processes > 1 else ''}"
        devices = f"{self.devices} device{'s' if self.devices > 1 else ''}"
        return f"{processes}, {devices}{' each' if self.processes > 1 else ''}"

    def repetitions(self, nbytes):
        if self.iterations is not None:
            return self.iterations
        return max(_FEWEST, min(_MOST, _MOVED // nbytes))

    def to_json(self):
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text):
        return cls(**json.loads(text))


# ---- parts of the command line -----------------------------------------------------


def one_size(text):
    """Bytes of "8", "64K", "64KiB"."""
    digits = text.rstrip("BbIiKkMmGg")
    unit = text[len(digits) :].upper().removesuffix("IB") or "B"
    if not digits.isdecimal() or unit not in _UNITS or int(digits) == 0:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no size: give bytes, with K, M or G for powers of 1024"
        )
    return int(digits) * _UNITS[unit]


def powers_of_four(least, most):
    """Both ends and the powers of four between them."""
    between = [4**k for k in range(most.bit_length()) if least < 4**k < most]
    return [least, *between, most] if least < most else [least]


def sizes(text):
    """Bytes of "8,1K,64M", or of "8:64M"."""
    least, colon, most = text.partition(":")
    if not colon:
        return list(dict.fromkeys(one_size(word) for word in text.split(",")))
    ends = one_size(least), one_size(most)
    if ends[0] > ends[1]:
        raise argparse.ArgumentTypeError(f"{text!r} ends below its start")
    return powers_of_four(*ends)


def default_sizes(dtype):
    return powers_of_four(max(_SMALLEST, DTYPES[dtype][1]), _LARGEST)


def count(most):
    """The type of an argument that counts from 1 to `most`."""

    def parse(text):
        if not text.isdecimal() or not 1 <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 1 to {most}")
        return int(text)

    return parse


def peers(text):
    names = [] if text == "none" else text.split(",")
    for name in names:
        if name not in PEERS:
            raise argparse.ArgumentTypeError(
                f"{name!r} is no peer; there are: {', '.join(PEERS)}, or none"
            )
    return list(dict.fromkeys(names))
