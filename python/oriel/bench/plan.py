"""What a benchmark measures: the words of the command line, checked."""

import argparse
import dataclasses
import json

from oriel.bench.operations import OPERATIONS

OURS = "ours"
PEERS = {"jax": "jax", "empty": "jax", "mpi": "c"}  # and the level each belongs to
LEVELS = ("c", "jax")
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

# Repetitions without --iterations at the level of JAX: fixed by the size alone,
# so that all processes do the same number. Small calls are noisy and cheap.
_MOST, _FEWEST = 1000, 30
_MOVED = 1 << 30  # bytes per size, between the two limits
_BATCHES = 9  # of each size in each round, at the level of C


@dataclasses.dataclass
class Plan:
    operation: str
    level: str
    processes: int
    devices: int  # of each process
    peers: list
    sizes: list  # bytes of the larger of a rank's operand and result
    dtype: str  # of DTYPES
    op: str
    iterations: int | None = None
    rounds: int = 1
    bind: str = "none"

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
        if self.level == "c":
            return f"{processes}, from C"
        devices = f"{self.devices} device{'s' if self.devices > 1 else ''}"
        return f"{processes}, {devices}{' each' if self.processes > 1 else ''}"

    @property
    def title(self):
        words = [self.operation]
        if OPERATIONS[self.operation].sized:
            words.append(self.dtype)
        if OPERATIONS[self.operation].reduces:
            words.append(self.op)
        return f"{' '.join(words)}, {self.layout}"

    @property
    def unit(self):
        """Bytes of which every size is a multiple."""
        divided = OPERATIONS[self.operation].divided
        return DTYPES[self.dtype][1] * (self.ranks if divided else 1)

    def repetitions(self, nbytes):
        if self.iterations is not None:
            return self.iterations
        return max(_FEWEST, min(_MOST, _MOVED // max(nbytes, 1)))

    def batches(self):
        """(batches, calls in each; 0: as many as fill a batch) of a round."""
        if self.iterations is None:
            return _BATCHES, 0
        batches = min(_BATCHES, self.iterations)
        return batches, self.iterations // batches

    def to_json(self):
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text):
        return cls(**json.loads(text))


# ---- sizes -------------------------------------------------------------------------


def one_size(text):
    """Bytes of "8", "64K", "64KiB"."""
    digits = text.rstrip("BbIiKkMmGg")
    unit = text[len(digits) :].upper().removesuffix("IB") or "B"
    if not digits.isdecimal() or unit not in _UNITS or int(digits) == 0:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no size: give bytes, with K, M or G for powers of 1024"
        )
    return int(digits) * _UNITS[unit]


def sizes(text):
    """The bytes of "8,1K,64M" as a list; of "8:64M" the two ends as a tuple."""
    least, colon, most = text.partition(":")
    if not colon:
        return list(dict.fromkeys(one_size(word) for word in text.split(",")))
    ends = one_size(least), one_size(most)
    if ends[0] > ends[1]:
        raise argparse.ArgumentTypeError(f"{text!r} ends below its start")
    return ends


def spread_sizes(ends, unit, base):
    """Both ends and the powers of `base` between them, as multiples of `unit`."""
    least, most = max(ends[0], unit), max(ends[1], unit)
    powers = [base**k for k in range(1, most.bit_length()) if least < base**k < most]
    return list(dict.fromkeys(size // unit * unit for size in (least, *powers, most)))


def choose_sizes(given, operation, unit, dense):
    if not OPERATIONS[operation].sized:
        return [0]
    if isinstance(given, list):
        return given
    return spread_sizes(given or (_SMALLEST, _LARGEST), unit, 2 if dense else 4)


# ---- other parts of the command line -------------------------------------------------


def count(most):
    """The type of an argument that counts from 1 to `most`."""

    def parse(text):
        if not text.isdecimal() or not 1 <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 1 to {most}")
        return int(text)

    return parse


def _words(text, known, what):
    names = text.split(",")
    for name in names:
        if name not in known:
            raise argparse.ArgumentTypeError(
                f"{name!r} is no {what}; there are: {', '.join(known)}"
                + (", or none" if what == "peer" else "")
            )
    return list(dict.fromkeys(names))


def peers(text):
    return [] if text == "none" else _words(text, PEERS, "peer")


def levels(text):
    return _words(text, LEVELS, "level")
