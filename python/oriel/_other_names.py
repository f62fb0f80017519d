"""What other libraries call what oriel has, for the error where a person writes their names."""

# Without underscores and capitals: MPI's binding for Python has AllReduce, Allreduce and allreduce.
CALLS = {
    "all_reduce(x, axis_name)": "psum allreduce allreducesum sumallreduce unreducedpsum",
    'all_reduce(x, axis_name, "mean")': "pmean allreducemean",
    'all_reduce(x, axis_name, "max")': "pmax allreducemax",
    'all_reduce(x, axis_name, "min")': "pmin allreducemin",
    'all_reduce(x, axis_name, "maxloc")': "pargmax",
    'all_reduce(x, axis_name, "minloc")': "pargmin",
    "all_gather(x, axis_name)": "allgather gatherall",
    "all_to_all(x, axis_name, split_axis, concat_axis)": "alltoall",
    "all_to_all(x, axis_name, axis, axis)": "pswapaxes",
    "reduce_scatter(x, axis_name)": "psumscatter reducescatter reducescatterblock",
    "broadcast(x, axis_name, root)": "pbroadcast bcast broadcastroot",
    "permute(x, axis_name, perm)": "ppermute collectivepermute pshuffle",
    'reduce(x, axis_name, "sum", root)': "reducesum reducetoroot",
    'scan(x, axis_name, "sum")': "scansum prefixsum cumsum",
    "ragged_all_to_all(operand, output, input_offsets, send_sizes, output_offsets, recv_sizes, "
    "axis_name=axis_name)": "raggedalltoall alltoallv alltoallw",
    "send(x, dest)": "isend ssend bsend",
    "recv(like, source)": "irecv receive",
    "sendrecv(x, like, source, dest)": "sendrecvreplace sendreceive",
    "axis_index(axis_name)": "axisindex",
    "init()": "initialize initialise setup initprocessgroup",
    "finalize()": "finalise shutdown destroyprocessgroup",
    "is_initialized()": "isinitialised initialized",
    "rank()": "getrank commrank",
    "size()": "getsize getworldsize worldsize commsize devicecount",
    "local_size()": "localdevicecount",
    "process_id()": "processindex procid",
    "num_processes()": "processcount nprocs",
    "barrier(x, axis_name)": "syncglobaldevices synchronize",
}
_WORDS = {
    "axissize": "jax.lax.axis_size(axis_name), or oriel.size() for the whole world",
    "pcast": "jax.lax.pcast: it communicates nothing",
    "pvary": "jax.lax.pcast: it communicates nothing",
}
_HERE = {
    other: f"oriel.{call}" for call, others in CALLS.items() for other in others.split()
} | _WORDS


def sentence(name):
    """Of an AttributeError of the package."""
    plain = name.replace("_", "").lower()
    missing = f"module 'oriel' has no attribute {name!r}"
    return f"{missing}; it is {_HERE[plain]}" if plain in _HERE else missing
