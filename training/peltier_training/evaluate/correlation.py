"""Correlations of two lists of numbers."""

import warnings
from typing import Any

import numpy as np
from scipy import stats

Array = np.ndarray[Any, Any]


def correlations(found: Array, targets: Array) -> dict[str, float]:
    """`pearson` and `spearman`; 0 with a constant, for which they are undefined."""
    if np.ptp(found) == 0 or np.ptp(targets) == 0:
        return {"pearson": 0.0, "spearman": 0.0}
    with warnings.catch_warnings():
        # The answers of a first epoch are close to the mean.
        warnings.simplefilter("ignore", stats.NearConstantInputWarning)
        pearson, spearman = stats.pearsonr(found, targets).statistic, stats.spearmanr(found, targets).statistic
    return {"pearson": float(pearson), "spearman": float(spearman)}
