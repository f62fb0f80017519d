"""Groups of ranks, from the axes of a mesh."""

import numpy as np


def of_axes(ranks, axis_names, axes):
    """One row per group that a reduction over `axes` forms.

    `ranks` has one entry per device of the mesh, in its shape. A row lists the
    group in mesh order whatever the order in `axes`, so that a sum over
    ("x", "y") and one over ("y", "x") have the same bits."""
    reduced = [i for i, name in enumerate(axis_names) if name in axes]
    kept = [i for i in range(len(axis_names)) if i not in reduced]
    size = int(np.prod([ranks.shape[i] for i in reduced], dtype=int))
    return np.transpose(ranks, kept + reduced).reshape(-1, size)
