"""Groups of ranks, from the axes of a mesh."""

import numpy as np


def of_axes(ranks, axis_names, axes):
    """One row per group that an operation over `axes` forms.

    `ranks` has one entry per device of the mesh, in its shape. A row lists the
    group as lax.axis_index(axes) counts it: the last axis changes fastest."""
    joined = [axis_names.index(name) for name in axes]
    kept = [i for i in range(len(axis_names)) if i not in joined]
    size = int(np.prod([ranks.shape[i] for i in joined], dtype=int))
    return np.transpose(ranks, kept + joined).reshape(-1, size)
