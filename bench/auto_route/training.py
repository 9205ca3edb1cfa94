"""Logistic regression by Newton's method, with a ridge. Knows nothing of questions."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]

STEPS = 25


def fit(rows: Matrix, labels: Matrix, ridge: float) -> Matrix:
    """Weights, the bias last. `rows` [n, features], `labels` [n] of 0 and 1; the bias is not shrunk."""
    inputs = np.hstack([rows, np.ones((len(rows), 1))])
    weights = np.zeros(inputs.shape[1])
    shrink = np.full(inputs.shape[1], ridge)
    shrink[-1] = 0
    for _ in range(STEPS):
        expected = 1 / (1 + np.exp(-inputs @ weights))
        slope = inputs.T @ (expected - labels) + shrink * weights
        curvature = (inputs.T * (expected * (1 - expected))) @ inputs + np.diag(shrink + 1e-9)
        weights -= np.linalg.solve(curvature, slope)
    return weights
