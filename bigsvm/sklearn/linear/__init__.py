"""LinearSVC and LinearSVR: LIBLINEAR's problems with scikit-learn's names, solved to a proved duality gap."""

from bigsvm.sklearn.linear.linear_svc import LinearSVC
from bigsvm.sklearn.linear.linear_svr import LinearSVR

__all__ = ["LinearSVC", "LinearSVR"]
