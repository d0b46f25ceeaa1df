"""Random conditions and SELECT lists over random streams, in Spark's SQL."""

import random
from collections.abc import Callable, Sequence

from tests.fuzz.data import PLAIN_NAMES, Column, Shape, is_simple, quoted
from tests.fuzz.kinds import Family
from tests.versions import there

COMPARISONS = ("=", "=", "<", "<=", ">", ">=", "<>", "<=>", "!=", "==")
DURATIONS = ("INTERVAL '1' HOUR", "INTERVAL 3 DAYS", "INTERVAL '1 02:03:04.5' DAY TO SECOND", "INTERVAL -5 MINUTES",
             "INTERVAL '0' SECOND", "INTERVAL '0.000001' SECOND")  # fmt: skip
NUMBERS = ("0", "1", "-1", "2", "3", "2.5", "0.5D", "7L", "1e2", "10", "-0.0D", "9007199254740993L", "1.005", "5S")
LITERALS = ("'a'", "''", "'abc'", "'é'", "'it''s'", r"'a\\%'", '"ab"', "'👍'", r"'a\u0000'", "r'a\\b'")
PATTERNS = ("'a%'", "'%b%'", "'_'", r"'%\\%%'", "'%'", "'a_c'", "'👍%'", "'%\u0301'", "'ab%b'", r"'a\\_c'")
PYTHON = ("py_near", "py_less", "py_first", "py_no_value")
"""Predicates in Python; for Spark each has a namesake in SQL, `sq_` for `py_`."""


class Conditions:
    """Makes conjuncts over the columns of some streams."""

    def __init__(self, rng: random.Random, shapes: Sequence[Shape]) -> None:
        self.rng, self.shapes = rng, shapes

    def conjuncts(self) -> list[str]:
        """One to four conjuncts; at times none. Some are guards of others that raise."""
        rng = self.rng
        made: list[str] = []
        for _ in range(rng.choice([0, 1, 1, 1, 2, 2, 2, 3])):
            made += self._guarded() if rng.random() < 0.08 else [self.conjunct()]
        rng.shuffle(made)
        return made

    def conjunct(self, depth: int = 2) -> str:
        """A condition that is no AND."""
        simple: list[Callable[[], str]] = [
            self._compared, self._compared, self._compared, self._band, self._band, self._time_band, self._equal,
            self._equal, self._text, self._text, self._listed, self._cast, self._one_stream, self._between_streams,
            self._between_streams, self._python, self._alone, self._raising,
        ]  # fmt: skip
        nested = [self._either, self._negated, self._cased, self._choice]
        return self.rng.choice(simple + (nested if depth > 0 else []))()

    # Columns and values

    def ref(self, at: int, column: str) -> str:
        """A column as somebody might write it."""
        rng, shape = self.rng, self.shapes[at]
        plain = is_simple(column) and (column in PLAIN_NAMES or rng.random() < 0.6)
        name = column if plain else quoted(column)
        if plain and column.isascii() and rng.random() < 0.05:
            name = name.swapcase()
        stream = shape.name if shape.name in PLAIN_NAMES else quoted(shape.name)
        return f"{stream}.{name}"

    def column(self, families: Sequence[Family], at: int | None = None, *, whole: bool = False) -> str | None:
        """A column of some families, of one stream or any; None if there is none."""
        found = [
            (position, column)
            for position, shape in enumerate(self.shapes)
            for column in shape.columns
            if column.kind.family in families and at in (None, position) and (column.kind.whole or not whole)
        ]
        if not found:
            return None
        position, chosen = self.rng.choice(found)
        return self.ref(position, chosen.name)

    def two(self, count: int = 2) -> list[int]:
        """The positions of two streams."""
        return self.rng.sample(range(len(self.shapes)), count)

    def number(self, at: int | None = None, depth: int = 1) -> str:
        """A number of one stream, or of any."""
        rng = self.rng
        found = self.column(("number",), at)
        if depth > 0 and rng.random() < 0.3:
            return self._expression(at, depth)
        if found is None or rng.random() < 0.08:
            return self._number_of_other(at) or rng.choice(NUMBERS)
        return found

    def _expression(self, at: int | None, depth: int) -> str:
        one, other = self.number(at, depth - 1), self.number(at, depth - 1)
        forms = [
            f"({one} + {self.rng.choice(NUMBERS[:6])})", f"({one} * 2)", f"({one} - {other})", f"abs({one})",
            f"coalesce({one}, {other})", f"greatest({one}, {other})", f"-{one}", f"round({one}, 1)", f"({one} % 5)",
            f"try_add({one}, {other})", f"nullif({one}, {other})", f"sqrt(abs({one}))", f"({one} / 2)",
            f"if({one} > {other}, {one}, {other})", f"try_divide({one}, {other})", f"cast({one} AS double)",
            f"exp({one})", f"cbrt({one})", f"floor({one})", f"sign({one})", f"try_cast({one} AS int)",
        ]  # fmt: skip
        return self.rng.choice(forms)

    def _number_of_other(self, at: int | None) -> str | None:
        """A number that comes of something else."""
        forms: list[tuple[tuple[Family, ...], str]] = [
            (("text",), "length({})"), (("text",), "instr({}, 'a')"), (("text",), "levenshtein({}, 'ab')"),
            (("text",), "try_cast({} AS int)"), (("text",), "ascii({})"), (("text",), "octet_length({})"),
            (("text",), "crc32({})"), (("date", "time"), "year({})"), (("date", "time"), "dayofweek({})"),
            (("time",), "hour({})"), (("time",), "minute({})"), (("numbers", "texts", "map"), "size({})"),
            (("numbers",), "array_max({})"), (("numbers",), "aggregate({}, 0D, (s, x) -> s + x)"),
            (("numbers",), "try_element_at({}, 1)"), (("struct",), "{}.x"), (("map",), "{}['a']"),
            (("map",), "try_element_at({}, 'b')"), (("binary",), "length({})"), (("boolean",), "cast({} AS int)"),
            (("number", "text", "date"), "hash({})"), (("interval",), "extract(DAY FROM {})"),
            (("date",), "unix_date({})"), (("numbers",), "size(filter({}, x -> x > 1))"),
        ]  # fmt: skip
        families, form = self.rng.choice(forms)
        found = self.column(families, at)
        return form.format(found) if found else None

    def text(self, at: int | None = None, depth: int = 1) -> str:
        """A text of one stream, or of any."""
        rng = self.rng
        found = self.column(("text",), at) or rng.choice(LITERALS)
        if depth <= 0 or rng.random() < 0.55:
            return found
        forms = [
            "lower({})", "trim({})", "substring({}, 2, 3)", "left({}, 1)", "concat({}, 'x')", "reverse({})",
            "regexp_extract({}, '([a-z]+)', 1)", "replace({}, 'a', 'b')", "coalesce({}, 'none')", "lpad({}, 4, '*')",
            "translate({}, 'ab', 'ba')", "initcap({})", "md5({})", "upper({})", "soundex({})", "rtrim('b', {})",
            "array_join(transform(split({}, ''), x -> concat(x, '.')), '')", "to_json(struct({} AS v))",
            "repeat({}, 2)",
        ]  # fmt: skip
        return rng.choice(forms).format(found)

    def moment(self, at: int | None = None) -> str:
        """A date or time of one stream, or of any; the event time is always there."""
        rng = self.rng
        position = at if at is not None else rng.randrange(len(self.shapes))
        found = self.column(("date", "time"), at) if rng.random() < 0.7 else None
        found = found or self.ref(position, self.shapes[position].time)
        forms = [
            "date_trunc('HOUR', {})", "date_trunc('DAY', {})", "cast({} AS date)", "{} + INTERVAL '1' DAY",
            "cast({} AS timestamp)", "last_day({})", "date_add({}, 3)", "{} - INTERVAL '2' HOUR",
        ]  # fmt: skip
        return rng.choice(forms).format(found) if rng.random() < 0.25 else found

    def _same_family(self, one: int, other: int) -> tuple[str, str]:
        """Two values of two streams that can be compared."""
        shared = sorted(
            {c.kind.family for c in self.shapes[one].columns} & {c.kind.family for c in self.shapes[other].columns}
            - {"map"}
        )  # fmt: skip
        family = self.rng.choice([*shared, "number", "text", "moment"])
        if family == "number":
            return self.number(one), self.number(other)
        if family == "text":
            return self.text(one), self.text(other)
        if family == "moment":
            return self.moment(one), self.moment(other)
        return self.column((family,), one) or "NULL", self.column((family,), other) or "NULL"  # type: ignore[arg-type]

    # Conditions

    def _compared(self) -> str:
        one, other = self._same_family(*self.two())
        return f"{one} {self.rng.choice(COMPARISONS)} {other}"

    def _equal(self) -> str:
        one, other = self.two()
        shared = [
            (mine, its)
            for mine in self.shapes[one].columns
            for its in self.shapes[other].columns
            if mine.kind.family == its.kind.family and mine.kind.family != "map"
        ]
        if not shared:
            return f"{self.number(one)} = {self.number(other)}"
        mine, its = self.rng.choice(shared)
        sign = self.rng.choice(["=", "=", "=", "<=>"])
        return f"{self.ref(one, mine.name)} {sign} {self.ref(other, its.name)}"

    def _band(self) -> str:
        rng, (one, other) = self.rng, self.two()
        x, y, far = self.number(one), self.number(other), rng.choice(["1", "3", "0.5D", "2.5", "0", "100"])
        forms = [
            f"abs({x} - {y}) <= {far}", f"{x} BETWEEN {y} - {far} AND {y} + {far}", f"{x} - {y} < {far}",
            f"{x} > {y} + {far}", f"{x} * 2 < {y} + {far}", f"{x} NOT BETWEEN {y} AND {far}", f"abs({y}) <= {x}",
            f"{x} + {y} < {far}", f"{far} < {x} - {y}", f"-{x} >= {y}", f"{x} / 2 <= {y}", f"abs({y} - {x}) > {far}",
        ]  # fmt: skip
        return rng.choice(forms)

    def _time_band(self) -> str:
        rng, (one, other) = self.rng, self.two()
        x, y, far = self.moment(one), self.moment(other), rng.choice(DURATIONS)
        forms = [
            f"{x} - {y} >= {far}", f"{x} - {y} BETWEEN -{far} AND {far}", f"{x} > {y} + {far}", f"{x} < {y}",
            f"datediff({x}, {y}) < 2", f"{x} + {far} <= {y} - {far}", f"{x} >= {y} - {far}", f"abs({x} - {y}) < {far}",
            f"months_between({x}, {y}) > 1", f"timestampdiff(HOUR, {x}, {y}) < 5", f"{x} = {y}",
        ]  # fmt: skip
        interval = self.column(("interval",))
        if interval:
            forms += [f"{x} - {y} < {interval}", f"{x} > {y} + {interval}", f"{interval} * 2 > {far}"]
        months = self.column(("months",))
        if months:
            forms += [f"{x} > {y} + {months}", f"{months} < INTERVAL '1' YEAR"]
        return rng.choice(forms)

    def _text(self) -> str:
        rng, (one, other) = self.rng, self.two()
        s, t = self.text(one), self.text(other)
        forms = [
            f"{s} LIKE {rng.choice(PATTERNS)}", f"{s} LIKE concat({t}, '%')", f"startswith({s}, {t})",
            f"contains({t}, {s})", f"levenshtein({s}, {t}) < 3", f"lower({s}) = lower({t})", f"{s} ILIKE {t}",
            f"concat({s}, {t}) NOT LIKE {rng.choice(PATTERNS)}",
            f"soundex({s}) = soundex({t})", f"endswith({s}, {t})", f"{s} RLIKE '^[a-c]'", f"locate({s}, {t}) > 0",
            f"{s} || {t} = 'aa'", f"length({s}) + length({t}) > 4", f"find_in_set({s}, {t}) > 0",
            f"levenshtein({s}, {t}, 2) = -1", f"regexp_count({s}, 'a') = length({t})", f"{s} < {t}",
            f"overlay({s} PLACING {t} FROM 1) = {t}", f"{s} LIKE ANY ('a%', {t})",
            f"jaro_winkler_similarity({s}, {t}) > 0.8",
        ]  # fmt: skip
        return rng.choice(there(forms))

    def _listed(self) -> str:
        rng, (one, other) = self.rng, self.two()
        negated = rng.choice(["", "NOT "])
        if rng.random() < 0.5:
            extra = rng.choice(["", ", NULL"])
            return f"{self.number(one)} {negated}IN ({self.number(other)}, 1, {rng.choice(NUMBERS)}{extra})"
        return f"{self.text(one)} {negated}IN ({self.text(other)}, 'a', {rng.choice(LITERALS)})"

    def _cast(self) -> str:
        rng, (one, other) = self.rng, self.two()
        forms = [
            f"cast({self.number(one)} AS string) = {self.text(other)}",
            f"try_cast({self.text(one)} AS double) < {self.number(other)}",
            f"cast({self.number(one)} AS double) = {self.number(other)}",
            f"cast({self.moment(one)} AS string) LIKE '20%'",
            f"cast({self.moment(one)} AS date) = cast({self.moment(other)} AS date)",
            f"try_cast({self.number(one)} AS decimal(10,2)) = {self.number(other)}",
            f"typeof({self.number(one)}) <> {self.text(other)}",
            f"{self.number(one)} = {self.text(other)}",
        ]
        return rng.choice(forms)

    def _one_stream(self) -> str:
        rng, (one, other) = self.rng, self.two()
        found = self._number_of_other(one) or self.number(one)
        return f"{found} {rng.choice(COMPARISONS)} {self.number(other)}"

    def _between_streams(self) -> str:
        """Functions of two streams, most of which no engine but Spark's has."""
        rng, (one, other) = self.rng, self.two()
        x, y, s = self.number(one), self.number(other), self.text(other)
        xs = self.column(("numbers",), one) or f"array({x}, 1)"
        ys = self.column(("numbers",), other) or f"array({y}, 2)"
        words = self.column(("texts",), one) or f"array({self.text(one)}, 'a')"
        mapped = self.column(("map",), one) or "map('a', 1, '', 2)"
        forms = [
            f"greatest({x}, {y}) = {x}", f"array_contains({xs}, {y})", f"arrays_overlap({xs}, {ys})",
            f"array_contains({words}, {s})", f"size(filter({xs}, e -> e > {y})) > 0", f"exists({xs}, e -> e = {y})",
            f"try_element_at({mapped}, {s}) > 1", f"struct({x}, 1) <= struct({y}, 2)", f"coalesce({x}, {y}) > 1",
            f"size(array_intersect({xs}, {ys})) > 0", f"{xs} = {ys}", f"hash({x}, {y}) % 2 = 0",
            f"forall({xs}, e -> e IS NULL OR e < {y})", f"array_position({xs}, {y}) > 0",
            f"concat_ws('-', {s}, {x}) > 'a'",
            f"size(array_union({xs}, {ys})) < 4", f"nvl2({x}, {y} > 1, {y} < 1)", f"atan2({x}, {y}) > 0.5",
            f"hypot({x}, {y}) < 5", f"equal_null({x}, {y})", f"map_contains_key({mapped}, {s})",
            f"zip_with({xs}, {ys}, (p, q) -> p + q)[0] > 1", f"bit_count(cast({x} AS int) ^ cast({y} AS int)) < 3",
            f"pow({x}, 2) + pow({y}, 2) < 30", f"xxhash64({x}) = xxhash64({y})", f"format_string('%s', {s}) <> ''",
        ]  # fmt: skip
        return rng.choice(forms)

    def _python(self) -> str:
        one, other = self.two()
        name = self.rng.choice(PYTHON)
        if name in ("py_first", "py_no_value"):
            return f"{name}({self.text(one)}, {self.text(other)})"
        return f"{name}(cast({self.number(one)} AS double), cast({self.number(other)} AS double))"

    def _alone(self) -> str:
        """A condition on one stream, or on none."""
        rng, at = self.rng, self.rng.randrange(len(self.shapes))
        boolean = self.column(("boolean",))
        forms = [
            f"{self.number(at)} > {rng.choice(NUMBERS)}", f"{self.text(at)} IS NOT NULL", f"{self.number(at)} IS NULL",
            f"isnan({self.number(at)})", f"{self.text(at)} <> {rng.choice(LITERALS)}", "1 = 1", "TRUE", "NULL",
            f"{self.moment(at)} > TIMESTAMP '2000-01-01 00:00:00'", f"{self.text(at)} LIKE {rng.choice(PATTERNS)}",
            *([boolean, f"NOT {boolean}", f"{boolean} IS NOT TRUE"] if boolean else []),
        ]  # fmt: skip
        return rng.choice(forms)

    def _raising(self) -> str:
        """In ANSI mode it raises for some values."""
        one, other = self.two()
        x, y, s = self.number(one), self.number(other), self.text(one)
        xs = self.column(("numbers",), one) or f"array({x})"
        forms = [
            f"{x} / {y} > 1", f"cast({s} AS int) < {y}", f"{x} + {y} < 5", f"{x} * {y} > 3", f"{x} % {y} = 0",
            f"{xs}[cast({y} AS int)] > 0", f"element_at({xs}, cast({y} AS int)) = 1", f"cast({x} AS int) = {y}",
            f"cast({s} AS date) < {self.moment(other)}", f"{x} - {y} >= 0", f"cast({x} AS tinyint) = {y}",
            f"py_near(cast(1 / {x} AS double), cast({y} AS double))",
            f"to_date({s}, 'yyyy-MM-dd') = {self.moment(other)}",
        ]  # fmt: skip
        return self.rng.choice(forms)

    def _guarded(self) -> list[str]:
        """A condition that raises for some values, and the one that rules those out, in either order."""
        rng, (one, other) = self.rng, self.two()
        x, y, s = self.number(one, 0), self.number(other, 0), self.text(one, 0)
        pairs = [
            [f"{y} <> 0", f"{x} / {y} > 1"],
            [f"try_cast({s} AS int) IS NOT NULL", f"cast({s} AS int) <= {y}"],
            [f"{x} BETWEEN -100 AND 100", f"abs({y}) < 100", f"cast({x} AS int) + cast({y} AS int) < 5"],
            [f"{y} <> 0", f"py_near(cast(1 / {y} AS double), cast({x} AS double))"],
            [f"({y} = 0 OR {x} / {y} > 1)"],
            [f"CASE WHEN {y} = 0 THEN FALSE ELSE {x} % {y} = 0 END"],
            [f"NOT ({y} <> 0 AND py_near(cast(1 / {y} AS double), cast({x} AS double)))"],
        ]
        chosen = rng.choice(pairs)
        return rng.sample(chosen, len(chosen))

    def _either(self) -> str:
        return f"({self.conjunct(0)} OR {self.conjunct(1)})"

    def _negated(self) -> str:
        return f"NOT ({self.conjunct(1)})"

    def _cased(self) -> str:
        return f"CASE WHEN {self.conjunct(0)} THEN {self.conjunct(0)} ELSE {self.conjunct(1)} END"

    def _choice(self) -> str:
        forms = [
            "coalesce({}, {})",
            "if({}, {}, FALSE)",
            "({}) = ({})",
            "({} AND {}) IS NOT FALSE",
            "({}) IS NULL OR {}",
        ]
        return "(" + self.rng.choice(forms).format(self.conjunct(0), self.conjunct(0)) + ")"


def select_list(rng: random.Random, shapes: Sequence[Shape]) -> list[str]:
    """The items of a SELECT list: the ids, the time, and anything."""
    make = Conditions(rng, shapes)
    items = [f"{make.ref(at, 'id')} AS id{at}" for at in range(len(shapes))] + ["_time"]
    for number in range(rng.randint(0, 4)):
        at = rng.randrange(len(shapes))
        columns: Sequence[Column] = shapes[at].columns
        forms = [
            f"{make.ref(at, shapes[at].time)}",
            f"hash({make.ref(at, 'id')})",
            f"coalesce({make.text(at)}, 'it''s')",
        ]
        forms += [make.ref(at, column.name) for column in columns] * 2
        items.append(f"{rng.choice(forms)} AS o{number}")
    if rng.random() < 0.25:
        at = rng.randrange(len(shapes))
        left = [quoted(column.name) for column in shapes[at].columns if rng.random() < 0.4]
        stream = quoted(shapes[at].name)
        items.append(f"{stream}.*" + (f" EXCEPT ({', '.join(left)})" if left else ""))
    return items
