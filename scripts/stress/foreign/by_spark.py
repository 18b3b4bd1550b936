"""Folders of parts by Spark in local mode; it needs Java."""

from pathlib import Path

from common import D, rows, run, tell
from pyspark.ml.linalg import Vectors, VectorUDT
from pyspark.sql import SparkSession
from pyspark.sql.types import DoubleType, StructField, StructType

X, y = rows()


def write(folder: Path) -> None:
    """Vectors sparse, dense and mixed, columns, text."""
    spark = (
        SparkSession.builder.master("local[1]").appName("rows").config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2").getOrCreate()
    )  # fmt: skip
    spark.sparkContext.setLogLevel("ERROR")
    schema = StructType([StructField("label", DoubleType()), StructField("features", VectorUDT())])
    sparse = [
        (float(t), Vectors.sparse(D, [(int(j), float(row[j])) for j in row.nonzero()[0]]))
        for row, t in zip(X, y, strict=True)
    ]
    dense = [(float(t), Vectors.dense(row.tolist())) for row, t in zip(X, y, strict=True)]
    mixed = [one if k % 2 else other for k, (one, other) in enumerate(zip(sparse, dense, strict=True))]
    for name, vectors in (("sparse", sparse), ("dense", dense), ("mixed", mixed)):
        spark.createDataFrame(vectors, schema).repartition(1).write.parquet(str(folder / f"{name}.parquet"))
        tell(f"{name}.parquet")
    frame = spark.createDataFrame(sparse, schema)
    frame.coalesce(1).write.option("compression", "zstd").parquet(str(folder / "zstd.parquet"))
    tell("zstd.parquet")
    frame.coalesce(1).write.format("libsvm").option("numFeatures", D).save(str(folder / "libsvm"))
    tell("libsvm/part-*", ingest=True)
    columns = [(*map(float, row), int(t)) for row, t in zip(X, y, strict=True)]
    table = spark.createDataFrame(columns, [*(f"x{j}" for j in range(D)), "label"])
    table.coalesce(1).write.parquet(str(folder / "columns"))
    tell("columns/*.parquet")
    table.coalesce(1).write.option("header", "true").csv(str(folder / "csv"))
    tell("csv/*.csv")
    table.coalesce(1).write.partitionBy("label").parquet(str(folder / "partitioned"))
    tell("partitioned", read=False)
    table.coalesce(1).write.orc(str(folder / "orc"))
    tell("orc", read=False)
    spark.stop()


run(write)
