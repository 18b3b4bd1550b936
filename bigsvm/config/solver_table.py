"""The table of solvers: what is known of each before it is imported.

Commands name the solvers in help and in messages without loading their compiled loops.
"""

from __future__ import annotations

from typing import NamedTuple


class SolverEntry(NamedTuple):
    """What is known of a solver before it is imported.

    where : its class, below `bigsvm.solvers`
    of_kernel : it solves the dual, and sees the rows through a kernel only: hinge and a free bias are its defaults
    bias_in_paper : its paper has a bias; if not, `none` is the default under --stop paper
    """

    where: str
    of_kernel: bool = False
    bias_in_paper: bool = True


SOLVER_TABLE = {
    "dcd": SolverEntry("dcd.dual_cd.DualCD"),
    "newton": SolverEntry("primal.newton.Newton"),
    "newton-cg": SolverEntry("primal.newton_cg.NewtonCG"),
    "newton-ws": SolverEntry("newton_ws.newton_ws.NewtonWS"),
    "interior-point": SolverEntry("tube.interior_point.InteriorPoint"),
    "ssvm": SolverEntry("literature.ssvm.SSVM"),
    "pcd": SolverEntry("coordinate.primal_cd.PrimalCD"),
    "cd": SolverEntry("coordinate.coordinate_descent.CoordinateDescent"),
    "rosenbrock": SolverEntry("literature.rosenbrock.Rosenbrock"),
    "pegasos": SolverEntry("literature.pegasos.Pegasos", bias_in_paper=False),
    "hyperpass": SolverEntry("hyperpass.hyperpass.HyperPass", bias_in_paper=False),
    "hyperpass-shrink": SolverEntry("hyperpass.hyperpass_shrink.HyperPassShrink", bias_in_paper=False),
    "smo": SolverEntry("kernel.smo.smo.Smo", of_kernel=True),
    "rosen": SolverEntry("kernel.rosen.rosen.Rosen", of_kernel=True),
    "rosen-block": SolverEntry("kernel.rosen.rosen_block.RosenBlock", of_kernel=True),
    "simplified-smo": SolverEntry("kernel.literature.simplified.SimplifiedSMO", of_kernel=True),
    "simplified-smo-km": SolverEntry("kernel.literature.simplified.SimplifiedSMOWithKM", of_kernel=True),
    "platt-smo": SolverEntry("kernel.literature.platt.PlattSMO", of_kernel=True),
}
"""All solvers by name.  If several can solve a problem, the first is preferred."""
KERNEL_SOLVERS = tuple(name for name, solver in SOLVER_TABLE.items() if solver.of_kernel)
NO_BIAS_IN_PAPER = tuple(name for name, solver in SOLVER_TABLE.items() if not solver.bias_in_paper)
