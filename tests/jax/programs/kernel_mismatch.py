"""Two processes, each with a JAX of its own, call different kernels."""

import jax
import numpy as np
import oriel
from common import report
from kernels import several


def attempt(what, function):
    oriel.init(distributed=False)
    raised = None
    try:
        jax.block_until_ready(jax.jit(function)())
    except Exception as error:
        raised = str(error)
    report(what=what, raised=raised)
    oriel.finalize()


def main():
    kernels = several("float32", "SUM")
    oriel.init(distributed=False)
    second = oriel.process_id() == 1
    oriel.finalize()
    attempt("sizes", lambda: kernels.reduce(np.ones(5 if second else 4, np.float32)))
    kernel = kernels.reduce_all if second else kernels.reduce
    attempt("names", lambda: kernel(np.ones(4, np.float32)))
    attempt("hops", lambda: kernels.pass_on(np.ones(4, np.float32), hops=3 if second else 2))


main()
