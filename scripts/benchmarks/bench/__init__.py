"""Parts of the benchmarks: problems, solvers, measured runs, one evaluator, tables."""
