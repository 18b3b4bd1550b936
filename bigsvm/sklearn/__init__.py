"""Estimators with scikit-learn's names and parameters that are fitted by bigsvm, on arrays or on a store."""

from bigsvm.sklearn.linear import LinearSVC, LinearSVR
from bigsvm.sklearn.svm import SVC, SVR

__all__ = ["SVC", "SVR", "LinearSVC", "LinearSVR"]
