"""SVC and SVR: LIBSVM's problems with scikit-learn's names, solved to a proved duality gap."""

from bigsvm.sklearn.svm.svc import SVC
from bigsvm.sklearn.svm.svr import SVR

__all__ = ["SVC", "SVR"]
