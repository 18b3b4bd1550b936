"""The gates that a candidate and its rows must pass, and the figures behind them."""
