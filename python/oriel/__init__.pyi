# What type checkers and editors see. Operations take and give pytrees of arrays, hence Any.
# tests/api_page.py holds this against the code.

import os
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, Literal, SupportsIndex, TypeAlias

from jax import Array, Device
from jax.sharding import Mesh

from oriel._collectives.groups import Group
from oriel._lib import OrielError as OrielError
from oriel._lib import Status as Status
from oriel._memory.window import Window as Window

_Axes: TypeAlias = Hashable | Sequence[Hashable]
_Op: TypeAlias = Literal["sum", "prod", "min", "max", "and", "or", "xor"]
_Mean: TypeAlias = Literal["mean"]
_Place: TypeAlias = Literal["minloc", "maxloc"]

__version__: str

def all_gather(
    x: Any,
    axis_name: _Axes = None,
    axis: int = 0,
    tiled: bool = False,
    *,
    axis_index_groups: Sequence[Sequence[int]] | None = None,
    to: Literal["varying", "invarying", "reduced"] = "varying",
    group: Group | None = None,
    tag: str | None = None,
    effect: bool = False,
    ordered: bool = False,
    into: Window | Sequence[Window] | None = None,
    after: Any = None,
) -> Any: ...
def all_reduce(
    x: Any,
    axis_name: _Axes = None,
    op: _Op | _Mean | _Place = "sum",
    *,
    axis_index_groups: Sequence[Sequence[int]] | None = None,
    via: str | None = None,
    memory_space: Literal["collective"] | None = None,
    group: Group | None = None,
    tag: str | None = None,
    effect: bool = False,
    ordered: bool = False,
    into: Window | Sequence[Window] | None = None,
    after: Any = None,
) -> Any: ...
def all_reduce_vias() -> dict[str, str | None]: ...
def all_to_all(
    x: Any,
    axis_name: _Axes,
    split_axis: int,
    concat_axis: int,
    tiled: bool = False,
    *,
    axis_index_groups: Sequence[Sequence[int]] | None = None,
    group: Group | None = None,
    tag: str | None = None,
    effect: bool = False,
    ordered: bool = False,
    into: Window | Sequence[Window] | None = None,
    after: Any = None,
) -> Any: ...
def axis_index(axis_name: _Axes = None, *, group: Group | None = None) -> Array: ...
def barrier(
    x: Any,
    axis_name: _Axes = None,
    *,
    group: Group | None = None,
    tag: str | None = None,
    effect: bool = False,
    ordered: bool = False,
    into: Window | Sequence[Window] | None = None,
    after: Any = None,
) -> Any: ...
def broadcast(
    x: Any,
    axis_name: _Axes = None,
    root: int = 0,
    *,
    group: Group | None = None,
    tag: str | None = None,
    effect: bool = False,
    ordered: bool = False,
    into: Window | Sequence[Window] | None = None,
    after: Any = None,
) -> Any: ...
def check() -> None: ...
def data_ptr(x: Array) -> int: ...
def finalize() -> None: ...
def from_ptr(
    ptr: SupportsIndex,
    shape: int | Sequence[int],
    dtype: Any,
    *,
    device: Device,
    owner: Any,
) -> Array: ...
def gather(
    x: Any,
    axis_name: _Axes = None,
    root: int = 0,
    axis: int = 0,
    tiled: bool = False,
    *,
    group: Group | None = None,
    tag: str | None = None,
    effect: bool = False,
    ordered: bool = False,
    into: Window | Sequence[Window] | None = None,
    after: Any = None,
) -> Any: ...
def group(ranks: Iterable[int]) -> Group: ...
def init(
    process_id: int | None = None,
    num_processes: int | None = None,
    store: str | None = None,
    *,
    secret: str | None = None,
    distributed: bool | None = None,
    timeout: float | None = None,
    platform: Literal["cpu", "cuda"] | None = None,
) -> None: ...
def is_initialized() -> bool: ...
def is_symmetric(x: Array) -> tuple[Window, int] | None: ...
def kernel(
    path: str | os.PathLike[str],
    *,
    defines: Mapping[str, Any] | None = None,
    flags: Sequence[str] = (),
) -> Any: ...
def load(window: Window, after: Any = None) -> Array: ...
def local_size() -> int: ...
def num_processes() -> int: ...
def op(library: str | os.PathLike[str], name: str, *, capture: bool = False) -> Any: ...
def permute(
    x: Any,
    axis_name: _Axes,
    perm: Sequence[tuple[int, int]],
    *,
    group: Group | None = None,
    tag: str | None = None,
    effect: bool = False,
    ordered: bool = False,
    into: Window | Sequence[Window] | None = None,
    after: Any = None,
) -> Any: ...
def process_id() -> int: ...
def ragged_all_to_all(
    operand: Any,
    output: Any,
    input_offsets: Any,
    send_sizes: Any,
    output_offsets: Any,
    recv_sizes: Any,
    *,
    axis_name: _Axes,
    axis_index_groups: Sequence[Sequence[int]] | None = None,
    group: Group | None = None,
    tag: str | None = None,
    effect: bool = False,
    ordered: bool = False,
    into: Window | Sequence[Window] | None = None,
    after: Any = None,
) -> Array: ...
def rank() -> int: ...
def recv(
    like: Any,
    source: int,
    *,
    group: Group | None = None,
    tag: str = "message",
    effect: bool = False,
) -> Any: ...
def reduce(
    x: Any,
    axis_name: _Axes = None,
    op: _Op = "sum",
    root: int = 0,
    *,
    group: Group | None = None,
    tag: str | None = None,
    effect: bool = False,
    ordered: bool = False,
    into: Window | Sequence[Window] | None = None,
    after: Any = None,
) -> Any: ...
def reduce_scatter(
    x: Any,
    axis_name: _Axes = None,
    scatter_dimension: int = 0,
    tiled: bool = False,
    op: _Op | _Mean = "sum",
    *,
    axis_index_groups: Sequence[Sequence[int]] | None = None,
    group: Group | None = None,
    tag: str | None = None,
    effect: bool = False,
    ordered: bool = False,
    into: Window | Sequence[Window] | None = None,
    after: Any = None,
) -> Any: ...
def register(x: Array) -> Literal["window", "read"]: ...
def scan(
    x: Any,
    axis_name: _Axes = None,
    op: _Op = "sum",
    *,
    group: Group | None = None,
    tag: str | None = None,
    effect: bool = False,
    ordered: bool = False,
    into: Window | Sequence[Window] | None = None,
    after: Any = None,
) -> Any: ...
def scatter(
    x: Any,
    axis_name: _Axes = None,
    root: int = 0,
    axis: int = 0,
    tiled: bool = False,
    *,
    group: Group | None = None,
    tag: str | None = None,
    effect: bool = False,
    ordered: bool = False,
    into: Window | Sequence[Window] | None = None,
    after: Any = None,
) -> Any: ...
def send(
    x: Any,
    dest: int,
    *,
    group: Group | None = None,
    tag: str = "message",
    effect: bool = False,
) -> Any: ...
def sendrecv(
    x: Any,
    like: Any,
    source: int,
    dest: int,
    *,
    group: Group | None = None,
    tag: str = "message",
    effect: bool = False,
) -> Any: ...
def size() -> int: ...
def store(x: Any, into: Window, after: Any = None, *, effect: bool = False) -> Array: ...
def version() -> str: ...
def window(
    shape: int | Sequence[int],
    dtype: Any,
    mesh: Mesh | None = None,
    axis_name: _Axes = None,
    *,
    group: Group | None = None,
) -> Window: ...
