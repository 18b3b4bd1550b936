"""Estimators with scikit-learn's names and parameters that are fitted by bigsvm, on arrays or on a store."""

try:
    import sklearn as _needed  # noqa: F401
except ImportError as error:
    raise ImportError("bigsvm.sklearn needs scikit-learn: pip install 'bigsvm[sklearn]'") from error

from bigsvm.sklearn.linear import LinearSVC, LinearSVR
from bigsvm.sklearn.nu_svm import NuSVC, NuSVR, OneClassSVM
from bigsvm.sklearn.search import search
from bigsvm.sklearn.svm import SVC, SVR

__all__ = ["SVC", "SVR", "LinearSVC", "LinearSVR", "NuSVC", "NuSVR", "OneClassSVM", "search"]
