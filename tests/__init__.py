"""The test suite.  What is set here holds before NumPy is loaded, and for every program that a test starts."""

import os

# A second thread of OpenBLAS turns in a circle while it waits, and pytest's processes and their fits take all cores:
# the reference optimum of 120 rows took fifty times the CPU seconds with two threads.
os.environ["OPENBLAS_NUM_THREADS"] = "1"
