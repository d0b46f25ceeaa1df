"""Text from people: whatever reaches out of the query is refused in a sentence, wherever it hides."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import watersmeet as wm
from tests.budget import one_in
from tests.spark.processes import lines, program
from tests.spark.small_driver import LARGE, SMALL
from watersmeet.limits import limited
from watersmeet.spark.sql.purity import is_allowed

pytestmark = pytest.mark.spark

Define = Callable[[str], wm.Join]


@pytest.fixture(scope="module")
def define(spark: SparkSession) -> Iterator[Define]:
    columns = ("id", "timestamp_seconds(id) AS ts", "cast(id AS string) AS s", "array(id) AS v", "map('k', id) AS m",
               "named_struct('x', id) AS p", "parse_json('{\"k\": 1}') AS j")  # fmt: skip
    frame = spark.range(3).selectExpr(*columns)
    spark.sql("CREATE OR REPLACE TEMPORARY FUNCTION mine(x BIGINT) RETURNS BIGINT RETURN x + 1")
    spark.sql("DECLARE OR REPLACE VARIABLE secret STRING DEFAULT 'hidden'")

    def sql(text: str) -> wm.Join:
        return wm.sql(text, {"a": frame, "b": frame}, time="ts", predicates=[near], untrusted=True)

    yield sql
    spark.sql("DROP TEMPORARY FUNCTION mine")
    spark.sql("DROP TEMPORARY VARIABLE secret")


@wm.predicate(form="pair")
def near(x: int, y: int) -> bool:
    return abs(x - y) < 2


EXPRESSIONS = [
    # reflection, by every name
    "reflect('java.lang.System', 'getenv', 'PATH')",
    "REFLECT('java.lang.System', 'getenv', 'PATH')",
    "`reflect`('java.lang.System', 'getenv', 'PATH')",
    "java_method('java.lang.System', 'exit', 1)",
    "try_reflect('java.lang.System', 'getenv', 'PATH')",
    "system.builtin.reflect('java.lang.System', 'getenv', 'PATH')",
    "builtin.reflect('java.lang.System', 'getenv', 'PATH')",
    "`system`.`builtin`.`java_method`('java.lang.System', 'getenv', 'PATH')",
    "/* harmless */ reflect /* too */ ('java.lang.System', 'getenv', 'PATH')",
    # and wherever they may stand
    "cast(reflect('java.lang.System', 'getenv', 'PATH') AS STRING)",
    "CASE WHEN a.id > 5 THEN reflect('java.lang.System', 'getenv', 'PATH') ELSE a.s END",
    "element_at(transform(a.v, x -> reflect('java.lang.System', 'getenv', 'PATH')), 1)",
    "aggregate(a.v, 0L, (acc, x) -> acc + x, acc -> reflect('java.lang.Long', 'toString', acc))",
    "map_filter(a.m, (k, v) -> reflect('java.lang.System', 'getenv', k) IS NULL)",
    "a.v[length(reflect('java.lang.System', 'getenv', 'PATH'))]",
    "named_struct('x', reflect('java.lang.System', 'getenv', 'PATH')).x",
    "a.s || reflect('java.lang.System', 'getenv', 'PATH')",
    "a.s IN (reflect('java.lang.System', 'getenv', 'PATH'))",
    "trim(BOTH reflect('java.lang.System', 'getenv', 'PATH') FROM a.s)",
    "reflect('java.lang.System', 'getenv', 'PATH') COLLATE UNICODE",
    "try_cast(reflect('java.lang.System', 'getenv', 'PATH') AS INT)",
    "IDENTIFIER('reflect')('java.lang.System', 'getenv', 'PATH')",
    "IDENTIFIER('ref' || 'lect')('java.lang.System', 'getenv', 'PATH')",
    # the session and its environment
    "current_user()", "current_user", "user()", "session_user()", "session_user", "version()", "current_catalog()",
    "current_database()", "current_schema()", "input_file_name()", "input_file_block_start()", "secret",
    "session.secret", "system.session.secret", "${env:PATH}", "${spark.app.name}", "'${system:user.home}'",
    ":named", "?",
    # functions of others
    "mine(a.id)", "spark_catalog.default.f(a.id)", "session.mine(a.id)", "system.session.mine(a.id)",
    "transform(a.v, x -> mine(x))", "no_such_function(a.id)",
    # files and the network, by way of formats
    "from_avro(X'00', '{\"type\": \"int\"}', map('avroSchemaUrl', '/etc/passwd'))", "schema_of_avro('/etc/passwd')",
    "from_protobuf(X'00', 'Message', '/etc/passwd')", "to_protobuf(a.p, 'Message', '/etc/passwd')",
    "xpath_string('<!DOCTYPE a SYSTEM \"file:///etc/passwd\"><a>x</a>', 'a')", "xpath('<a/>', 'a')",
    "from_xml('<a/>', 'x INT', map('rowValidationXSDPath', '/etc/passwd'))", "schema_of_xml('<a/>')", "to_xml(a.p)",
    "read_files('/etc')", "hll_sketch_estimate(X'00')",
    # other tables
    "(SELECT max(value) FROM text.`/etc/passwd`)", "EXISTS (SELECT * FROM csv.`/etc/passwd`)",
    "a.s IN (SELECT value FROM text.`/etc/passwd`)", "transform(a.v, x -> (SELECT 1))", "array(SELECT 1)",
    # not of one row, by chance, or by the clock
    "count(*)", "sum(a.id)", "row_number() OVER (ORDER BY a.id)", "explode(a.v)", "json_tuple(a.s, 'x')", "rand()",
    "uuid()", "now()", "current_timestamp", "monotonically_increasing_id()", "spark_partition_id()",
    "unix_timestamp()", "to_timestamp('now')", "timestamp 'now'", "date 'today'", "timestamp /* '2' */ 'yesterday'",
    "timestamp '\\u006eow'", "timestamp_ntz \"now\"", "cast('now' AS timestamp)", "'tomorrow'::date", "a.ts < 'now'",
    "cast(concat('n', 'ow') AS timestamp)", "localtimestamp", "localtimestamp()", "curdate()", "current_date",
    "current_time()", "date('today')", "date_trunc('HOUR', 'now')", "randn()", "random()", "uniform(1, 2)",
    "shuffle(a.v)", "aes_encrypt(a.s, '0000111122223333')", "input_file_block_length()", "current_path()",
    "randstr(2000000000)", "window(a.ts, '1 second')",
    # large values
    "cast(a.v AS array<string>)", "cast(map(1, 2) AS map<int, string>)", "cast(a.j AS array<string>)",
    "cast(struct(a.v) AS struct<v: array<string>>)", "a.j::array<struct<x: int, y: int>>", "a.j:k::map<string, int>",
    "repeat('x', 2000000000)", "space(1000 * 1000 * 1000)", "sequence(1, 2000000000)", "lpad(a.s, 2000000000)",
    "element_at(transform(a.v, x -> space(cast(x AS int))), 1)", "size(transform(a.v, x -> sequence(1L, x)))",
    "from_json(a.s, repeat('x', 2000000000))", "schema_of_json(space(2000000000))",
    "aggregate(sequence(1, 60), 'x', (acc, i) -> concat(acc, acc))",
    "reduce(sequence(1, 60), array(1), (acc, i) -> flatten(array(acc, acc)))",
    "hex(space(10000000))", "replace(space(9000000), ' ', 'ab')", "concat(space(9000000), space(9000000))",
    "format_string('%1$s%1$s', space(9000000))", "cast(a.v AS string)", "string(a.m)",
    "array_join(array_repeat('x', 100000), space(1000))", "regexp_replace(space(9000), '(?=(.*))', '$1')",
    "transform(a.v, x -> a.s)", "transform(a.v, x -> struct(x, x))", "zip_with(a.v, a.v, (x, y) -> a.s)",
    "transform_values(a.m, (k, v) -> k)", "to_json(a.p, map('timestampFormat', space(1000000)))",
    "from_csv('', 'x STRING', map('nullValue', 'x'))", "to_variant_object(a.p)", "schema_of_variant(a.j)",
    "concat(a.*)",
    "NOT " * 150 + "TRUE", "NOT " * 1500 + "TRUE", "(" * 5000 + "1" + ")" * 5000, "a.id" + " + 1" * 3000,
]  # fmt: skip


@pytest.mark.parametrize("text", one_in(3, EXPRESSIONS), ids=[text[:60] for text in EXPRESSIONS])
def test_no_way_out(define: Define, text: str) -> None:
    for statement in (f"SELECT {text} AS x FROM a, b", f"SELECT a.id FROM a, b WHERE ({text}) IS NOT NULL"):
        with pytest.raises(wm.DefinitionError) as caught:
            define(statement)
        assert str(caught.value).splitlines()[0].endswith("."), caught.value
        assert "\tat " not in str(caught.value) and "Py4J" not in str(caught.value)


STATEMENTS = [
    "SELECT a.id FROM a, b; DROP TABLE t",
    "SELECT a.id; SELECT 1 FROM a, b",
    "WITH c AS (SELECT 1) SELECT a.id FROM a, b",
    "EXECUTE IMMEDIATE 'SELECT 1'",
    "SELECT a.id FROM a, range(10)",
    "SELECT a.id FROM a, text.`/etc/passwd`",
    "SELECT a.id FROM a, (SELECT * FROM text.`/etc/passwd`)",
    "SELECT a.id FROM a, LATERAL (SELECT 1)",
    "SELECT a.id FROM a, b LATERAL VIEW explode(a.v) t AS x",
    "SELECT a.id FROM a, b UNION ALL SELECT value FROM text.`/etc/passwd`",
    "SELECT a.id FROM a, b WHERE a.id = b.id UNION SELECT 1",
    "SELECT TRANSFORM(a.id) USING 'cat' AS (x) FROM a, b",
    "SELECT a.id |> SELECT reflect('java.lang.System', 'getenv', 'PATH') FROM a, b",
    "SELECT /*+ BROADCAST(a) */ a.id FROM a, b",
    "SELECT DISTINCT a.id FROM a, b",
    "SELECT a.id AS x, x || reflect('java.lang.System', 'getenv', 'PATH') AS y FROM a, b",
    "SELECT 1 AS current_user_, current_user AS u FROM a, b",
    "SELECT a.* EXCEPT (id), reflect('java.lang.System', 'getenv', 'PATH') AS y FROM a, b",
    "SELECT * FROM a [ROWS reflect('java.lang.System', 'exit', 1)], b",
    "SELECT * FROM a, b WHERE near(a.id, reflect('java.lang.System', 'getenv', 'PATH'))",
    "SELECT near(a.id, b.id) AS x FROM a, b",
    "SELECT '\U0001f600' AS e, reflect('java.lang.System', 'getenv', 'PATH') AS y, a.id FROM a, b",
    "CREATE TABLE t AS SELECT 1",
    "SET spark.sql.ansi.enabled = false",
]


@pytest.mark.parametrize("text", STATEMENTS)
def test_nothing_but_a_join(define: Define, text: str) -> None:
    with pytest.raises(wm.DefinitionError) as caught:
        define(text)
    assert "\tat " not in str(caught.value)


ALLOWED = [
    "SELECT a.id, b.s AS other FROM a, b WHERE a.id < b.id AND near(a.id, b.id)",
    "SELECT * FROM a [RANGE 10 SECONDS], b [ROWS 5] WHERE lower(trim(a.s)) = b.s OR a.s LIKE concat(b.s, '%')",
    "SELECT upper(a.s) || '-' || b.s AS x, CASE WHEN a.id > 1 THEN 'many' ELSE 'few' END AS y, _time FROM a, b",
    "SELECT transform(a.v, x -> x * 2) AS v, aggregate(a.v, 0L, (n, x) -> n + x) AS n, a.m['k'] AS k FROM a, b",
    "SELECT a.p.x AS x, a.v[0] AS y, a.j:k::int AS z, cast(a.id AS decimal(10, 2)) AS d, `b`.id FROM a, b",
    "SELECT parse_url('http://a/b?c=d', 'HOST') AS h, from_json(a.s, 'x INT').x AS x, to_json(a.p) AS j FROM a, b",
    "SELECT date_trunc('HOUR', a.ts) AS h, a.ts + INTERVAL 1 DAY AS t, extract(YEAR FROM a.ts) AS y FROM a, b",
    "SELECT lpad(a.s, 5, '0') AS l, repeat(a.s, cast(b.id AS int)) AS r, substring(a.s FROM 1 FOR 2) AS u FROM a, b",
    "SELECT a.id FROM a, b WHERE a.id BETWEEN b.id - 1 AND b.id + 1 AND NOT a.s IN ('x', 'y') AND a.s IS NOT NULL",
    "SELECT a.* EXCEPT (j), levenshtein(a.s, b.s) AS d FROM a, b WHERE a.id <=> b.id AND a.s RLIKE '^[0-9]+$'",
    "SELECT a.id AS n, n + 1 AS m, position('a' IN a.s) AS q, trim(BOTH '0' FROM a.s) AS t, (a.id, 1) AS z FROM a, b",
    "SELECT a.s || b.s || '!' AS x, hex(a.s) AS h, upper(b.s), array(a.s, b.s) AS v, (a.s, b.s) AS p FROM a, b",
    "SELECT to_json(struct(a.*)) AS j, concat_ws(',', a.s, array(b.s)) AS c, replace(a.s, '1', 'one') AS r FROM a, b",
    "SELECT split(a.s, ',')[0] AS s, regexp_replace(a.s, '([0-9])', '<$1>') AS r, printf('%s', b.s) AS f FROM a, b",
    "SELECT timestamp '2020-01-01' AS t, date '2020-01-01' AS d, unix_timestamp(a.ts), date 'epoch' AS e FROM a, b",
    "SELECT variant_get(a.j, '$.k', 'int') AS k, try_variant_get(a.j, '$', 'map<string, int>') AS m FROM a, b",
    "SELECT cast(a.v AS array<int>) AS v, map_entries(map(a.s, a.id)) AS e, try_cast(array(a.s) AS array<int>) AS i "
    "FROM a, b",
    "SELECT timestampadd(DAY, 1, a.ts) AS t, timestampdiff(DAY, a.ts, b.ts) AS d, a.s COLLATE UNICODE AS c FROM a, b",
]


@pytest.mark.parametrize("text", one_in(3, ALLOWED))
def test_what_computes_is_taken(define: Define, text: str) -> None:
    assert define(text).schema is not None


def test_types_that_pyspark_does_not_know_are_refused_in_a_sentence(spark: SparkSession, define: Define) -> None:
    nanos = "timestamp_nanos(a.id)"
    if not is_allowed(spark, "timestamp_nanos"):
        pytest.skip("this Spark has no such function")
    for item in (nanos, f"size(array({nanos}))", f"concat({nanos}, a.s)", f"hex(cast({nanos} AS string))"):
        with pytest.raises(wm.SqlError, match=r"PySpark doesn't know the type|can't be limited here"):
            define(f"SELECT {item} AS x FROM a, b")


def test_shapes_are_measured_as_bytes(spark: SparkSession, define: Define) -> None:
    if not is_allowed(spark, "st_geomfromwkb"):
        pytest.skip("this Spark has no such function")
    shape = "st_geomfromwkb(unhex(concat(left(a.s, 0), '0101000000000000000000F03F0000000000000040')))"
    found = define(f"SELECT size(array({shape})) AS n FROM a, b WHERE a.id = b.id").toDF().toArrow()
    assert found.column("n").to_pylist() == [1, 1, 1]


def test_sizes_are_limited_in_select_too(define: Define) -> None:
    small, large = (f"SELECT repeat(a.s, cast(b.id * {n} AS int)) AS r FROM a, b" for n in (2, 100_000_000))
    assert sorted(row.r for row in define(small).toDF().collect())[-1] == "2222"
    with pytest.raises(Exception, match="repeat would make a value of more than 16,777,216 bytes"):
        define(large).toDF().collect()


def test_growing_values_are_tested_before_they_are_made_and_mean_what_they_do_in_spark(define: Define) -> None:
    items = {
        "upper(a.s)": "upper(s)", "hex(a.s) AS h": "hex(s)", "a.s || '-' || b.s AS c": "s || '-' || s",
        "concat(a.v, b.v) AS w": "concat(v, v)", "array(a.s, b.s) AS x": "array(s, s)", "(a.s, b.id) AS y": "(s, id)",
        "to_json(struct(a.s, b.m)) AS z": "to_json(struct(s, m))", "map(a.s, b.id) AS k": "map(s, id)",
        "array_join(array(a.s, b.s), ', ') AS l": "array_join(array(s, s), ', ')",
        "lpad(a.s, 3, '*') AS o": "lpad(s, 3, '*')",
        "concat_ws('/', a.s, array(b.s, NULL)) AS q": "concat_ws('/', s, array(s, NULL))",
        "format_string('%s %d', a.s, b.id) AS r": "format_string('%s %d', s, id)",
        "from_json('[{\"x\": 1}]', 'array<struct<x: int>>') AS t": "from_json('[{\"x\": 1}]', 'array<struct<x: int>>')",
        "date_format(a.ts, 'yyyy') AS u": "date_format(ts, 'yyyy')",
        "nullif(upper(a.s), '1') AS n": "nullif(upper(s), '1')",
        "variant_get(a.j, '$', 'map<string, int>') AS g": "variant_get(j, '$', 'map<string, int>')",
        "map_entries(map(a.s, b.id)) AS e": "map_entries(map(s, id))",
    }  # fmt: skip
    made = define(f"SELECT {', '.join(items)} FROM a, b WHERE a.id = b.id").toDF()
    frame = define("SELECT a.* FROM a, b WHERE a.id = b.id").toDF().selectExpr(*items.values())
    assert made.columns[0] == "upper(a.s)"
    assert sorted(repr([*row]) for row in made.collect()) == sorted(repr([*row]) for row in frame.collect())


TOO_LARGE = [
    "a.id AS x FROM a, b WHERE replace(a.s, b.s, repeat(b.s, 100)) = 'x'",
    "hex(repeat(a.s, 60)) AS x FROM a, b",
    "a.s || repeat(b.s, 100) AS x FROM a, b",
    "array(repeat(a.s, 90), b.s) AS x FROM a, b",
    "array_join(split(repeat(a.s, 5), ''), repeat(b.s, 30)) AS x FROM a, b",
    "variant_get(parse_json('[1,1,1,1,1,1]'), '$', 'array<string>') AS x FROM a, b",
    "map_entries(map(a.s, repeat(b.s, 70))) AS x FROM a, b",
]


@pytest.mark.parametrize("text", one_in(4, TOO_LARGE))
def test_what_would_be_too_large_is_never_made(define: Define, text: str) -> None:
    said = "replace" if "replace" in text else r"\w+"
    with limited(value_bytes=100), pytest.raises(Exception, match=f"{said} would make a value of more than 100 bytes"):
        define(f"SELECT {text}").toDF().toArrow()


def test_the_program_itself_may_do_what_spark_does(spark: SparkSession) -> None:
    frame = spark.range(1).selectExpr("id", "timestamp_seconds(id) AS ts")
    text = "SELECT reflect('java.lang.String', 'valueOf', 1) AS x FROM a, b"
    found: Any = wm.sql(text, {"a": frame, "b": frame}, time="ts").toDF().first()
    assert found.x == "1"


def test_a_function_that_hides_a_built_in_is_not_called(spark: SparkSession) -> None:
    own = spark.newSession()  # in Spark 4.1, nobody can take back what hides a function of Spark's
    frame = own.range(3).selectExpr("timestamp_seconds(id) AS ts", "cast(id AS string) AS s")
    own.udf.register("soundex", lambda text: "mine")
    try:
        join = wm.sql("SELECT soundex(a.s) AS x FROM a, b", {"a": frame, "b": frame}, time="ts", untrusted=True)
        found: Any = join.toDF().first()
        assert found.x != "mine"
    except wm.SqlError as error:
        assert "soundex" in str(error)
    assert is_allowed(spark, "soundex") and is_allowed(spark, "SOUNDEX")


@pytest.mark.slow
def test_a_small_driver_survives_whatever_people_write(tmp_path: Path) -> None:
    """A session of its own, with 1 GB."""
    with program(tmp_path, "small_driver") as process:
        ended = {line["select"]: line["ended"] for line in map(json.loads, lines(process))}
    assert ended.pop(SMALL) == "2 rows", (tmp_path / "log").read_text()[-2000:]
    assert ended == dict.fromkeys(LARGE, "refused")
