"""What a linear operation must give, from a NumPy function of all members' operands."""

import numpy as np


def draw(rng, like):
    """Whole numbers, whose sums are exact."""
    return [rng.integers(-9, 9, part.shape).astype(part.dtype) for part in like]


def gradient(oracle, parts, weights, index):
    """Of sum(weights * results) by the operand of one member."""
    zeros = [np.zeros_like(part) for part in parts]
    found = np.zeros_like(parts[index])
    for place in np.ndindex(found.shape):
        basis = list(zeros)
        basis[index] = zeros[index].copy()
        basis[index][place] = 1
        found[place] = sum((w * y).sum() for w, y in zip(weights, oracle(basis), strict=True))
    return found
