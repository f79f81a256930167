"""Jobs of many kinds besides TPC-H, on the tables of TPC-H: windows, Python, machine learning, ETL, caches.

Each function runs one job with a session whose temporary views are the tables; ``scratch`` is a folder for its files.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["JOBS"]

#: Queries whose results are computed and not kept.
_QUERIES = {
    "window-rank": """
        select * from (select *, row_number() over (partition by o_custkey order by o_totalprice desc) as rank
        from orders) where rank <= 3""",
    "window-running": """
        select l_suppkey, l_shipdate, sum(l_extendedprice) over (partition by l_suppkey order by l_shipdate) as total
        from lineitem""",
    "window-lag": """
        select avg(gap) from (select datediff(l_shipdate, lag(l_shipdate) over (partition by l_orderkey
        order by l_linenumber)) as gap from lineitem)""",
    "window-join": """
        select c_mktsegment, avg(share) from (select o_custkey, o_totalprice / sum(o_totalprice)
        over (partition by o_custkey) as share from orders) join customer on o_custkey = c_custkey
        group by c_mktsegment""",
    "rollup": """
        select l_returnflag, l_linestatus, l_shipmode, sum(l_quantity), avg(l_discount) from lineitem
        group by rollup (l_returnflag, l_linestatus, l_shipmode)""",
    "cube": """
        select o_orderstatus, o_orderpriority, year(o_orderdate), count(*), sum(o_totalprice) from orders
        group by cube (o_orderstatus, o_orderpriority, year(o_orderdate))""",
    "distinct-counts": """
        select l_shipmode, count(distinct l_orderkey), count(distinct l_partkey), count(distinct l_suppkey)
        from lineitem group by l_shipmode""",
    "percentiles": """
        select l_returnflag, percentile_approx(l_extendedprice, array(0.1, 0.5, 0.9)) from lineitem
        group by l_returnflag""",
    "customer-value": """
        select c_custkey, c_name, count(distinct o_orderkey), sum(l_extendedprice * (1 - l_discount)) as value
        from customer join orders on c_custkey = o_custkey join lineitem on o_orderkey = l_orderkey
        group by c_custkey, c_name order by value desc limit 1000""",
    "basket": """
        select a.l_partkey, b.l_suppkey, count(*) as times from lineitem a join lineitem b
        on a.l_orderkey = b.l_orderkey and a.l_linenumber < b.l_linenumber where a.l_shipmode = 'AIR'
        group by a.l_partkey, b.l_suppkey having times > 2""",
    "anti-join": """
        select count(*) from part left anti join lineitem on p_partkey = l_partkey and l_quantity > 45""",
    "full-outer-join": """
        select count(*), sum(coalesce(ps_availqty, 0)) from partsupp full outer join lineitem
        on ps_partkey = l_partkey and ps_suppkey = l_suppkey and l_quantity > 40""",
    "broadcast-join": """
        select /*+ broadcast(supplier), broadcast(nation) */ n_name, sum(l_extendedprice) from lineitem
        join supplier on l_suppkey = s_suppkey join nation on s_nationkey = n_nationkey group by n_name""",
    "range-join": """
        select count(*) from supplier join nation on s_acctbal > n_nationkey * 100 and s_nationkey <> n_nationkey""",
    "sort-all": "select * from lineitem order by l_extendedprice, l_orderkey",
    "explode-words": """
        select word, count(*) as times from (select explode(split(l_comment, ' ')) as word from lineitem)
        group by word order by times desc limit 100""",
    "intersect": """
        select l_partkey from lineitem where l_shipmode = 'RAIL' intersect
        select ps_partkey from partsupp where ps_supplycost > 500""",
    "pivot": """
        select * from (select year(o_orderdate) as year, o_orderpriority, o_totalprice from orders)
        pivot (sum(o_totalprice) for o_orderpriority in ('1-URGENT', '2-HIGH', '3-MEDIUM', '5-LOW'))""",
}


def _compute(frame: Any) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _query(text: str) -> Callable[[Any, Path], None]:
    return lambda spark, _: _compute(spark.sql(text))


def etl_partitions(spark: Any, scratch: Path) -> None:
    cleaned = spark.sql(
        "select *, regexp_replace(lower(o_comment), '[^a-z ]', '') as text, year(o_orderdate) as year from orders"
    )
    cleaned.repartition("year").write.partitionBy("year").mode("overwrite").parquet(str(scratch / "orders"))


def etl_csv(spark: Any, scratch: Path) -> None:
    columns = "l_orderkey long, l_partkey long, l_quantity double, l_extendedprice double"
    chosen = spark.sql(
        "select l_orderkey, l_partkey, l_quantity, l_extendedprice from lineitem where l_tax > 0.04"
    )
    chosen.write.mode("overwrite").csv(str(scratch / "csv"))
    again = spark.read.schema(columns).csv(str(scratch / "csv"))
    _compute(again.groupBy("l_partkey").sum("l_extendedprice"))


def etl_json(spark: Any, scratch: Path) -> None:
    spark.table("customer").write.mode("overwrite").json(str(scratch / "json"))
    again = spark.read.schema("c_custkey long, c_nationkey long, c_acctbal double").json(
        str(scratch / "json")
    )
    _compute(again.groupBy("c_nationkey").avg("c_acctbal"))


def deduplicate(spark: Any, scratch: Path) -> None:
    orders = spark.table("orders")
    _compute(orders.union(orders.sample(0.3, seed=1)).dropDuplicates(["o_orderkey"]))


def cache_reuse(spark: Any, scratch: Path) -> None:
    joined = spark.sql("select * from orders join customer on o_custkey = c_custkey").cache()
    for column in ("c_mktsegment", "o_orderpriority", "c_nationkey"):
        _compute(joined.groupBy(column).sum("o_totalprice"))
    joined.unpersist()


def python_udf(spark: Any, scratch: Path) -> None:
    from pyspark.sql.functions import udf

    vowels = udf(lambda text: sum(text.count(vowel) for vowel in "aeiou"), "int")
    _compute(spark.table("orders").withColumn("vowels", vowels("o_comment")).groupBy("vowels").count())


def python_words(spark: Any, scratch: Path) -> None:
    words = spark.table("orders").select("o_comment").rdd.flatMap(lambda row: row[0].split())
    words.map(lambda word: (word, 1)).reduceByKey(lambda one, other: one + other).takeOrdered(20)


def rdd_join(spark: Any, scratch: Path) -> None:
    def pairs(table: str, *columns: str) -> Any:
        return spark.table(table).select(*columns).rdd.map(tuple)

    pairs("customer", "c_custkey", "c_nationkey").join(pairs("orders", "o_custkey", "o_totalprice")).count()


def page_rank(spark: Any, scratch: Path) -> None:
    links = spark.sql(
        "select distinct ps_suppkey as source, ps_partkey % 5000 as target from partsupp"
    ).cache()
    ranks = links.selectExpr("source as node").distinct().selectExpr("node", "1.0D as rank")
    for _ in range(3):
        given = links.join(ranks, links.source == ranks.node).selectExpr(
            "target as node", "rank / 80 as part"
        )
        ranks = given.groupBy("node").sum("part").toDF("node", "rank")
    _compute(ranks)
    links.unpersist()


def _numbers(spark: Any) -> Any:
    from pyspark.ml.feature import VectorAssembler

    columns = ["quantity", "price", "discount", "tax"]
    table = spark.sql(
        "select double(l_quantity) as quantity, double(l_extendedprice) as price, double(l_discount) as discount, "
        "double(l_tax) as tax, if(l_returnflag = 'R', 1.0D, 0.0D) as label from lineitem"
    )
    return (
        VectorAssembler(inputCols=columns, outputCol="features").transform(table).select("features", "label")
    )


def kmeans(spark: Any, scratch: Path) -> None:
    from pyspark.ml.clustering import KMeans

    KMeans(k=8, maxIter=4, seed=1).fit(_numbers(spark))


def logistic_regression(spark: Any, scratch: Path) -> None:
    from pyspark.ml.classification import LogisticRegression

    LogisticRegression(maxIter=5).fit(_numbers(spark))


def decision_tree(spark: Any, scratch: Path) -> None:
    from pyspark.ml.classification import DecisionTreeClassifier

    DecisionTreeClassifier(maxDepth=4, seed=1).fit(_numbers(spark))


def als(spark: Any, scratch: Path) -> None:
    from pyspark.ml.recommendation import ALS

    ratings = spark.sql(
        "select int(o_custkey) as user, int(l_partkey % 2000) as item, float(sum(l_quantity)) as rating "
        "from orders join lineitem on o_orderkey = l_orderkey group by 1, 2"
    )
    ALS(rank=4, maxIter=2, userCol="user", itemCol="item", ratingCol="rating", seed=1).fit(ratings)


def text_features(spark: Any, scratch: Path) -> None:
    from pyspark.ml.feature import IDF, HashingTF, Tokenizer

    words = Tokenizer(inputCol="p_comment", outputCol="words").transform(spark.table("part"))
    counts = HashingTF(inputCol="words", outputCol="counts", numFeatures=1000).transform(words)
    _compute(IDF(inputCol="counts", outputCol="features").fit(counts).transform(counts).select("features"))


#: Jobs by name.
JOBS: dict[str, Callable[[Any, Path], None]] = {
    **{name: _query(text) for name, text in _QUERIES.items()},
    "etl-partitions": etl_partitions,
    "etl-csv": etl_csv,
    "etl-json": etl_json,
    "deduplicate": deduplicate,
    "cache-reuse": cache_reuse,
    "python-udf": python_udf,
    "python-words": python_words,
    "rdd-join": rdd_join,
    "page-rank": page_rank,
    "ml-kmeans": kmeans,
    "ml-logistic-regression": logistic_regression,
    "ml-decision-tree": decision_tree,
    "ml-als": als,
    "ml-text-features": text_features,
}
