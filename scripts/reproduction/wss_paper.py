"""Figures of the paper of WSS-WR, as printed."""

from __future__ import annotations

KERNELS = ("rbf", "linear", "poly", "sigmoid")

_ACCURACY = """
a1a 83.4268 83.8006 83.053 83.8629 83.3645 83.3645 83.6137 83.4268
w1a 97.7796 97.9814 97.4162 97.8199 97.8603 97.6181 97.6988 97.8603
australian 86.2319 86.8116 85.5072 85.5072 86.087 85.7971 85.7971 85.6522
splice 86 86.8 80.4 79.5 82.1 82.7 80.4 80.5
breast-cancer 97.3646 97.2182 97.2182 97.2182 97.6574 97.511 97.0717 97.2182
diabetes 77.9948 77.474 76.4323 77.2135 76.6927 77.0833 77.2135 77.2135
fourclass 100 100 77.8422 77.6102 78.6543 79.6984 77.8422 77.8422
german.numer 75.8 77.6 75.3 77.9 75.1 75.2 75.8 77.8
heart 85.1852 84.4444 83.7037 84.4444 84.0741 84.8148 84.8148 84.0744
"""
_MSE = """
mpg 6.9927 6.4602 12.325 12.058 0.25 0.5 14.669 14.22
MG 0.01533 0.014618 0.02161 0.02138 0.019672 0.018778 0.023228 0.023548
"""
_LARGE = """
a9a .0522 .2306 .3439 .8498 .0522 .2282 .3439 .8603 .0522 .0687 .3439 .3799
w8a .0370 .0327 .0149 .2106 .0380 .0443 .0339 .4554 .0370 .0365 .0149 .3279
ijcnn1 .1187 .5889 .3474 .7422 .1309 .5928 .3883 .8147 .1187 .1673 .3474 .4093
"""


def _pairs(lines: str) -> dict[str, dict[str, tuple[float, float]]]:
    """(WSS-WR, WSS3) by set and kernel."""
    found = {}
    for line in lines.strip().splitlines():
        name, *values = line.split()
        found[name] = {kernel: (float(values[2 * k]), float(values[2 * k + 1])) for k, kernel in enumerate(KERNELS)}
    return found


ACCURACY = _pairs(_ACCURACY)
MSE = _pairs(_MSE)
RATIO_ORDER = "5 < 4 < 3 < 2 < 1"
SECONDS = {
    ("w1a", "100 MB, shrinking"): ((56.8936, 15.6038, 9.3744, 15.9825), (400.7368, 49.5343, 34.0337, 29.0977)),
    ("w1a", "100 MB"): ((56.8936, 15.6038, 9.7964, 16.1321), (505.7596, 62.5636, 34.3321, 32.2544)),
    ("w1a", "100 KB, shrinking"): ((59.9929, 17.7689, 9.4823, 16.7169), (1655.784, 232.5998, 140.9247, 103.3014)),
    ("w1a", "100 KB"): ((59.8346, 15.3692, 8.9024, 16.8676), (1602.4966, 533.9386, 93.334, 220.2574)),
    ("german.numer", "100 MB, shrinking"): (
        (97.8465, 24.0803, 15.9311, 31.7092), (299.3279, 168.0513, 46.5298, 38.7958),
    ),
    ("german.numer", "100 MB"): ((97.8465, 24.0803, 15.9311, 31.7092), (413.3258, 764.8448, 52.9702, 42.9117)),
    ("german.numer", "100 KB, shrinking"): (
        (99.8329, 26.4382, 15.0456, 30.863), (1427.4005, 505.8935, 201.4057, 60.0467),
    ),
    ("german.numer", "100 KB"): ((92.956, 25.7199, 15.0456, 28.5457), (3811.7786, 1213.8522, 336.8386, 71.2662)),
}  # fmt: skip
"""Seconds of WSS-WR and of WSS3, by kernel."""
LARGE_COLUMNS = (
    ("300 MB, shrinking", "rbf"), ("300 MB", "rbf"), ("300 MB, shrinking", "sigmoid"), ("300 MB", "sigmoid"),
    ("1 MB", "rbf"), ("1 MB", "sigmoid"),
)  # fmt: skip
"""Headings of Table IX as they were handed down, from left to right."""
LARGE = {
    line.split()[0]: tuple((float(i), float(t)) for i, t in zip(line.split()[1::2], line.split()[2::2], strict=True))
    for line in _LARGE.strip().splitlines()
}
"""Table IX: ratios WSS-WR / WSS3 of steps and of time, by set, in the order of the columns."""
LARGE_READ = (
    ("300 MB, shrinking", "rbf"), ("300 MB, shrinking", "sigmoid"), ("300 MB", "rbf"), ("300 MB", "sigmoid"),
    ("1 MB", "rbf"), ("1 MB", "sigmoid"),
)  # fmt: skip
"""Headings under which the ratios of steps fit together: shrinking and the size of a cache hardly change steps."""
