"""Tables by pandas."""

from pathlib import Path

import numpy as np
import pandas as pd
from common import D, rows, run, tell

X, y = rows()
TEXT = np.array(["no", "yes"])[y]


def write(folder: Path) -> None:
    """Every way of to_*."""
    frame = pd.DataFrame(X, columns=[f"x{j}" for j in range(D)])
    numbers = frame.assign(label=y)
    numbers.to_parquet(folder / "numbers.parquet")
    tell("numbers.parquet")
    numbers.set_index(pd.Index([f"r{i}" for i in range(len(y))], name="id")).to_parquet(folder / "indexed.parquet")
    tell("indexed.parquet")  # an index is no feature, whether it has a name and text, or numbers
    numbers.set_index(pd.Index(np.arange(len(y)) * 3)).to_parquet(folder / "numbered.parquet")
    tell("numbered.parquet")
    frame.assign(label=pd.Categorical(TEXT, categories=["yes", "unused", "no"])).to_parquet(folder / "cat.parquet")
    tell("cat.parquet", labels="text")
    frame.assign(label=pd.array(y, dtype="Int64")).to_parquet(folder / "nullable.parquet")
    tell("nullable.parquet")
    frame.assign(label=y.astype(bool)).to_parquet(folder / "bool.parquet")
    tell("bool.parquet", labels="bool")
    frame.assign(label=pd.array(np.where(np.arange(len(y)) == 7, None, y), dtype="Int64")).to_parquet(
        folder / "na.parquet"
    )
    tell("na.parquet", read=False)
    numbers.to_parquet(folder / "brotli.parquet", compression="brotli", row_group_size=17)
    tell("brotli.parquet")
    numbers.to_csv(folder / "numbers.csv", index=False)
    tell("numbers.csv")
    numbers.to_csv(folder / "tabs.tsv.gz", index=False, sep="\t")
    tell("tabs.tsv.gz")
    frame.assign(label=TEXT).to_csv(folder / "text.csv", index=False)
    tell("text.csv", labels="text")
    numbers.to_feather(folder / "numbers.feather")
    tell("numbers.feather")
    numbers.to_pickle(folder / "numbers.pkl")
    tell("numbers.pkl", read=False)
    numbers.to_json(folder / "numbers.json", orient="records", lines=True)
    tell("numbers.json", read=False)
    numbers.to_orc(folder / "numbers.orc")
    tell("numbers.orc", read=False)


run(write)
