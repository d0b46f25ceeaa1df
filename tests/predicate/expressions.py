"""Expressions to compare: a hand-written list of traps, and a seeded generator."""

import random
from collections.abc import Callable

TRAPS = r"""
a.i / b.i > 0.5
a.i / 0 = 1
a.l / b.l = 1
a.x / b.x > 1
1 / a.x > 2
a.x = 0 OR 1 / a.x > 2
a.x <> 0 AND 1 / a.x > 2
a.i = 0 OR 10 div a.i > 2
NOT (a.i = 0 OR 10 div a.i > 2)
a.i div b.i = 0
a.l div -1 = 0
a.l div b.l > 1
a.i % b.i = 1
a.i % -1 = 0
a.l % -1 = 0
a.t % b.t = 1
a.x % 0.7D < 0.3
a.x % b.x = 0
a.d % b.d = 0
a.d % 3 = 1
mod(a.i, 3) = -1
pmod(a.i, 3) = 2
pmod(a.i, b.i) >= 0
pmod(a.l, b.l) >= 0
pmod(a.t, b.t) >= 0
pmod(a.x, 2.5D) > 1
a.i + b.i > 0
a.i - b.i > 0
a.i * b.i > 0
a.t + b.t > 0
a.t + 1 > 0
a.t * b.h > 0
a.h - b.h > 0
a.l + b.l > 0
a.l * 2 > 5
a.l - a.i > 0
-a.i > 0
-a.l > 0
-a.t > 0
-a.x > 0
-a.d > 0
abs(a.i) > 3
abs(a.t) > 3
abs(a.x) > 1
abs(a.d) > 1
abs(a.x - b.x) < 0.3
abs(a.d - b.d) <= 2.5
abs(a.i - b.i) < 5
abs(a.t - b.i) < 5
a.f + b.f > 1
a.f * b.f > 1
a.f + b.i > 1
a.f = 0.1
a.f = b.x
a.f < b.i
a.i = b.l
a.i < b.x
a.l = b.x
a.l = b.f
a.d = b.i
a.d < b.x
a.d = b.g
a.d > 2.5
a.g > 12345678901234.5678915
a.d + b.d > 1.005
a.d - b.g > 0
a.d * b.d > 2.25
a.d * 3 = 7.5
a.d / 3 > 0.33333
a.d / b.d = 1
a.d / b.i > 1
a.i / 3.0 > 0.33333
a.g + 1 > b.d
a.d + b.x > 1
a.d * b.i > 3
a.x = b.x
a.x < b.x
a.x <= b.x
a.x <> b.x
a.x <=> b.x
a.x > 1e308
a.f > b.f
a.f = b.f
a.x = 'NaN'
a.x = double('inf')
a.x IS NULL
a.x IS NOT NULL
a.x IS DISTINCT FROM b.x
a.i IS NOT DISTINCT FROM b.i
a.b
NOT a.b
a.b AND b.b
a.b OR b.b
a.b = b.b
a.b < b.b
a.b IS TRUE
a.b IS NOT FALSE
a.b IS UNKNOWN
a.b <=> NULL
NULL
NULL AND a.b
NULL = a.i
TRUE
a.i = NULL
a.i IN (1, 2, 3)
a.i IN (1, NULL)
a.i NOT IN (1, NULL)
a.i NOT IN (1, 2)
a.x IN (0, 1, 2.5)
a.d IN (1, 2.5)
a.s IN ('a', 'abc', '')
a.i IN (b.i, b.i - 1)
a.day IN (DATE '1970-01-01', DATE '2024-02-29')
a.i BETWEEN 0 AND 10
a.i NOT BETWEEN 0 AND b.i
a.x BETWEEN b.x AND 1
a.s BETWEEN 'a' AND 'b'
a.s = b.s
a.s < b.s
a.s >= 'a'
a.s <> ''
a.s = "abc"
a.s = 'it\'s'
a.s = 'it' 's'
a.s = 'a\\c'
a.s = r'a\c'
a.s = '\u00e9'
a.s = '\tabc '
a.y < b.y
a.y = X'80'
a.y >= X'7f'
length(a.y) > 0
a.s LIKE 'a%'
a.s LIKE '%c'
a.s LIKE '_'
a.s LIKE '__'
a.s LIKE 'a\_c'
a.s LIKE '%\%'
a.s LIKE '\%'
a.s LIKE 'a\\\\c'
a.s LIKE 'a/%' ESCAPE '/'
a.s LIKE '%/_%' ESCAPE '/'
a.s NOT LIKE '%a%'
a.s LIKE ''
a.s LIKE '%'
a.s LIKE b.s
a.s NOT LIKE b.s
a.s LIKE concat(b.s, '%')
a.s LIKE b.s ESCAPE '/'
like(a.s, b.q)
a.s ILIKE 'A%'
a.s ILIKE '%C'
a.s NOT ILIKE 'abc'
a.s RLIKE 'a.c'
a.s RLIKE '^a'
a.s RLIKE 'c$'
a.s RLIKE '^[a-c]+$'
a.s RLIKE '(an)+'
a.s RLIKE '\\d+'
a.s RLIKE '^\\w*$'
a.s RLIKE 'a|b'
a.s RLIKE 'x\\.y'
a.s RLIKE 'ab.c'
a.s RLIKE '[^a]'
a.s RLIKE 'a{2,3}|b{1}'
regexp_like(a.s, 'b.n')
length(a.s) = 3
char_length(a.s) > 1
octet_length(a.s) > length(a.s)
lower(a.s) = 'abc'
upper(a.s) = 'ABC'
lower(a.s) = lower(b.s)
trim(a.s) = 'abc'
ltrim(a.s) = 'abc  '
rtrim(a.s) = '  abc'
btrim(a.s, 'ac') = 'b'
concat(a.s, b.s) = 'aa'
concat(a.s, NULL) = 'a'
a.s || 'x' = 'ax'
concat_ws(',', a.s, b.s) = 'a,a'
concat_ws(',', a.s, b.s, 'z') > 'b'
concat_ws(a.s, 'x', b.s) <> ''
instr(a.s, 'c') > 0
instr(a.s, '') = 1
instr(a.s, b.s) > 0
locate('b', a.s) = 2
startswith(a.s, 'a')
endswith(a.s, b.s)
contains(a.s, 'b')
contains(a.s, b.s)
replace(a.s, 'a', 'bb') > 'bb'
replace(a.s, '', 'x') = a.s
replace(a.s, 'a') = 'bc'
left(a.s, 2) = 'ab'
left(a.s, 0) = ''
left(a.s, -1) = ''
right(a.s, 2) = 'bc'
right(a.s, -1) = ''
left(a.s, b.i) = a.s
right(a.s, b.t) = a.s
lpad(a.s, 5, '*') > '**'
lpad(a.s, 2, '') = 'ab'
rpad(a.s, 4, 'xy') = 'abcx'
rpad(a.s, 3) = 'a  '
lpad(a.s, 0, 'x') = ''
reverse(a.s) = 'cba'
reverse(a.s) = b.s
repeat(a.s, 2) = 'abcabc'
repeat(a.s, 0) = ''
repeat(a.s, -1) = ''
levenshtein(a.s, 'abd') <= 1
ascii(a.s) = 97
ascii(a.s) > 200
substring(a.s, 1, 2) = 'ab'
substring(a.s, 0, 2) = 'ab'
substring(a.s, -2, 1) = 'b'
substring(a.s, -5, 3) = 'a'
substring(a.s, 2) = 'bc'
substring(a.s, 2, -1) = ''
substring(a.s, b.t, 2) <> ''
substr(a.s, b.i, b.t) <> ''
translate(a.s, 'abc', 'xy') = 'xy'
coalesce(a.i, b.i, 0) > 0
coalesce(a.i, b.x) > 0
coalesce(a.s, 'none') = 'none'
nvl(a.x, 0) = 0
ifnull(a.i, -1) = -1
nvl2(a.i, b.i, 5) = 5
nullif(a.i, 1) IS NULL
nullif(a.x, 0D) IS NULL
nullif(a.s, '') IS NULL
if(a.i > 0, a.i, 1.5) > 1
if(a.b, a.s, b.s) = 'a'
if(a.i = 0, 0, 10 div a.i) > 1
CASE WHEN a.i > 0 THEN 1 WHEN a.i = 0 THEN 10 / a.i ELSE -1 END > 0
CASE a.i WHEN 1 THEN 'one' WHEN 2 THEN 'two' END = 'one'
CASE WHEN a.i = 0 THEN TRUE ELSE 1 / a.i > 0 END
CASE WHEN a.b THEN a.i ELSE a.d END > 1
greatest(a.i, b.i) > 5
least(a.x, b.x) < 0
greatest(a.x, b.x) = a.x
greatest(a.i, b.x, 3) > 3
least(a.s, b.s) = a.s
greatest(a.day, b.day) > DATE '2000-01-01'
coalesce(a.i, 1 div b.i) > 0
isnan(a.x)
isnan(a.f)
isnull(a.i)
isnotnull(a.s)
sqrt(a.x) > 1
sqrt(a.i) > 1
cbrt(a.x) < 1
exp(a.x) > 2
ln(a.x) > 0
ln(a.i) IS NULL
log10(a.x) >= 0
log2(a.x) < 1
pow(a.x, 2) > 1
pow(a.x, b.x) > 1
pow(a.i, 0.5) > 1
sign(a.x) = 1
sign(a.i) = -1
sign(a.d) = 0
sin(a.x) > 0.5
cos(a.x) < 0.5
tan(a.x) > 0.3
asin(a.x) > 0.3
acos(a.x) IS NULL
atan(a.x) > 0.3
atan2(a.x, b.x) > 0.5
sinh(a.x) > 2
tanh(a.x) > 0.3
degrees(a.x) > 57
radians(a.x) < 0.1
pi() > a.x
floor(a.x) = 2
ceil(a.x) = 3
floor(a.x) = b.l
floor(a.d) = -3
ceil(a.d) = 3
floor(a.i) = a.i
round(a.x) = 3
round(a.x) = -3
round(a.d) = 3
round(a.d, 1) = 0.1
round(a.i) = a.i
round(a.f) = 2
a.i & 3 = 1
a.i | 1 = a.i
a.i ^ b.i > 0
~a.i < 0
a.t & b.l = 1
cast(a.x AS int) = 2
cast(a.x AS bigint) > 5
cast(a.f AS int) = -2
cast(a.x AS tinyint) = 2
cast(a.i AS tinyint) = 1
cast(a.l AS int) = 1
cast(a.d AS int) = -2
cast(a.d AS tinyint) = 1
cast(a.d AS decimal(3, 1)) = 2.5
cast(a.d AS decimal(9, 1)) = 0.1
cast(a.g AS double) > 1
cast(a.g AS float) > 1
cast(a.i AS decimal(4, 1)) = 1
cast(a.i AS string) = '42'
cast(a.d AS string) = '2.50'
cast(a.b AS string) = 'true'
cast(a.b AS int) = 1
cast(a.i AS boolean)
cast(a.x AS boolean)
cast(a.day AS string) = '2024-02-29'
cast(a.ts AS string) > '2024'
cast(a.ntz AS string) = '1970-01-01 00:00:00'
cast(a.s AS int) = 1
cast(a.s AS bigint) = 12
cast(a.s AS tinyint) = 127
cast(a.s AS double) = 1000
cast(a.s AS float) = 12.7
cast(a.s AS boolean)
cast(a.s AS date) = DATE '2024-02-29'
cast(a.s AS binary) = a.y
try_cast(a.s AS int) = 1
try_cast(a.s AS double) > 1
try_cast(a.s AS date) IS NULL
try_cast(a.x AS int) IS NULL
try_cast(a.i AS tinyint) IS NULL
int('12') = 12
double(a.i) / 2 > 0.6
a.s = 1
a.s > 0.5
a.s = a.i
a.s = a.x
a.s = a.d
a.s = a.b
a.s = a.day
a.day = '2024-02-29'
a.day > '1970-01-01'
a.ts > '2024-03-10 02:30:00'
a.ts = TIMESTAMP '2024-11-03 01:30:00'
a.ts = TIMESTAMP '2024-11-03 06:30:00+00:00'
a.ntz = TIMESTAMP_NTZ '2024-03-10 02:30:00'
a.ts < b.ts
a.ntz < b.ntz
a.day < b.day
a.ts = a.ntz
a.ts < b.ntz
a.ts < b.day
a.ntz >= b.day
cast(a.ts AS date) = a.day
cast(a.ntz AS timestamp) = b.ts
cast(a.day AS timestamp) <= a.ts
cast(a.ts AS timestamp_ntz) = b.ntz
year(a.day) = 2024
year(a.ts) = 2023
quarter(a.day) = 1
month(a.ts) = 3
day(a.ts) = 10
dayofmonth(a.day) = 29
dayofyear(a.day) > 60
dayofweek(a.day) = 1
weekday(a.day) = 6
weekofyear(a.day) = 52
hour(a.ts) = 2
hour(a.ntz) = 2
minute(a.ts) = 30
second(a.ts) = 59
extract(year FROM a.ts) = 2024
extract(hour FROM a.ts) = 1
datediff(a.day, b.day) > 0
datediff(a.ts, b.day) = 0
date_add(a.day, 1) > b.day
date_sub(a.day, b.t) > b.day
date_add(a.day, a.t) = b.day
a.day + 1 > b.day
a.day - 1 = b.day
a.day - b.day > INTERVAL 1 DAY
last_day(a.day) = a.day
unix_timestamp(a.ts) > 0
unix_micros(a.ts) = -1
unix_millis(a.ts) = -1
unix_seconds(a.ts) = -1
unix_date(a.day) = 0
date_trunc('HOUR', a.ts) = a.ts
date_trunc('day', a.ts) < a.ts
date_trunc('WEEK', a.ts) < b.ts
date_trunc('MONTH', a.ts) = b.ts
to_date(a.ts) = a.day
a.ts + INTERVAL 1 HOUR > b.ts
a.ts - INTERVAL 5 SECONDS < b.ts
a.ts + INTERVAL 1 DAY > b.ts
a.ts + INTERVAL 24 HOURS > b.ts
a.ts + INTERVAL 1 DAY 2 HOURS >= b.ts
a.ts - INTERVAL 1 MONTH < b.ts
a.ntz + INTERVAL 1 MONTH > b.ntz
a.ntz - INTERVAL 90 MINUTES = b.ntz
a.ntz + INTERVAL '2' DAYS > b.ntz
a.day + INTERVAL 1 MONTH > b.day
a.day - INTERVAL 2 DAYS > b.day
a.day + INTERVAL 1 YEAR = b.day
a.ts - b.ts < INTERVAL 1 HOUR
a.ntz - b.ntz BETWEEN INTERVAL -1 HOUR AND INTERVAL 1 HOUR
abs(a.ntz - b.ntz) < INTERVAL 1 DAY
a.ts BETWEEN b.ts - INTERVAL 1 HOUR AND b.ts + INTERVAL 1 HOUR
size(a.xs) = 2
size(a.xs) > 0
cardinality(a.ws) = 3
array_size(a.xs) = 0
array_contains(a.xs, 2)
array_contains(a.xs, a.i)
array_contains(a.zs, double('NaN'))
array_contains(a.zs, 0.0D)
array_contains(a.ws, 'A')
array_position(a.xs, 2) = 2
array_position(a.xs, a.i) = 0
element_at(a.xs, 1) = 1
element_at(a.xs, -1) = 2
element_at(a.xs, b.t) = 7
element_at(a.xs, 0) = 1
a.xs[0] = 1
a.xs[1] = 2
a.xs[a.t] = 1
a.xs[-1] = 1
size(a.xs) > 0 AND a.xs[0] = 1
array_max(a.xs) = 5
array_min(a.zs) < 0.5
array_max(a.zs) > 2
a.p.x = 1
a.p.name = 'abc'
a.p.`in`.y > 0.1
a.P.X + 1 > 1
A.I = B.I
a.`i` = b.`I`
1 + 1 = 2
2147483647 + a.i > 0
-2147483648 = a.i
9223372036854775807 > a.l
1.0 = 1
1.50 = 1.5
5 / 2 = 2.5
7 div 2 = 3
-7 % 3 = -1
1e3 = 1000
1.5D = 1.5
a.x + NULL > 1
a.i + (1 div b.i) > 0
(1 div b.i) + a.i > 0
(a.i IS NULL) = (b.i IS NULL)
a.i > 0 AND (b.i > 0 OR 1 div b.i < 0)
(a.i > 0) = (b.i > 0)
(a.x < 1) IS NULL
a.x = b.x IS NULL
NOT a.i = b.i
NOT (a.i < b.i AND a.x < b.x)
a.i = 1 OR a.i = 2 AND a.b
"""


def traps() -> list[str]:
    """The hand-written expressions."""
    return [line for line in TRAPS.splitlines() if line]


class Generator:
    """Makes random conditions of bounded depth."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def condition(self, depth: int = 3) -> str:
        """A boolean expression."""
        makers: list[Callable[[int], str]] = [self._between, self._listed, self._null, self._like]
        makers += [self._compared] * 6
        if depth > 0:
            makers += [self._both] * 3 + [self._negated, self._cased]
        return self.random.choice(makers)(depth - 1)

    def _column(self, names: str) -> str:
        return f"{self.random.choice('ab')}.{self.random.choice(names.split())}"

    def number(self, depth: int) -> str:
        """A numeric expression."""
        if depth <= 0 or self.random.random() < 0.3:
            return self.random.choice([self._column("t h i l x x f d g i i x d"), self._constant()])
        return self.random.choice([self._sum, self._sum, self._numeric_call, self._choice, self._of_text, self._cast])(
            depth
        )

    def _constant(self) -> str:
        return self.random.choice(
            ["0", "1", "-1", "2", "3", "0.5", "2.5", "-0.1", "10", "1e2", "100", "0.25D", "7L", "1.005"]
        )

    def _sum(self, depth: int) -> str:
        sign = self.random.choice(["+", "-", "*", "/", "%", "+", "-", "*", "div"])
        if sign == "div":
            return f"({self._column('t h i l')} div {self._column('t h i l')})"
        return f"({self.number(depth - 1)} {sign} {self.number(depth - 1)})"

    def _numeric_call(self, depth: int) -> str:
        name = self.random.choice(["abs", "floor", "ceil", "round", "sign", "sqrt", "exp", "ln", "negative"])
        return f"{name}({self.number(depth - 1)})"

    def _choice(self, depth: int) -> str:
        name = self.random.choice(["coalesce", "greatest", "least", "nullif", "nvl"])
        return f"{name}({self.number(depth - 1)}, {self.number(depth - 1)})"

    def _cast(self, depth: int) -> str:
        to = self.random.choice(
            ["int", "bigint", "double", "float", "smallint", "tinyint", "decimal(12,3)", "decimal(5,1)"]
        )
        source = self._column("t h i l d g") if to.startswith("d") and to != "double" else self.number(depth - 1)
        return f"cast({source} AS {to})"

    def _of_text(self, depth: int) -> str:
        texts = [
            lambda: f"length({self.text(depth - 1)})",
            lambda: f"instr({self.text(depth - 1)}, {self.text(0)})",
            lambda: f"datediff({self.date()}, {self.date()})",
            lambda: f"{self.random.choice(['year', 'month', 'dayofweek'])}({self.date()})",
            lambda: f"{self.random.choice(['hour', 'minute', 'second'])}({self._column('ts ntz')})",
            lambda: f"size({self._column('xs zs ws')})",
            lambda: f"{self._column('xs')}[{self.random.choice(['0', '1', 'a.t'])}]",
            lambda: f"cast({self._column('s q')} AS {self.random.choice(['int', 'double'])})",
            lambda: f"{self._column('p')}.x",
        ]
        return self.random.choice(texts)()

    def text(self, depth: int) -> str:
        """A string expression."""
        if depth <= 0 or self.random.random() < 0.4:
            return self.random.choice([self._column("s q"), self._column("s q"), "'a'", "'abc'", "''", "'%'", "'é'"])
        inner, other = self.text(depth - 1), self.text(depth - 1)
        place = self.random.choice(["1", "2", "-2", "0", "a.t"])
        calls = [
            f"trim({inner})", f"substring({inner}, {place}, {self.random.randint(-1, 4)})", f"concat({inner}, {other})",
            f"left({inner}, {place})", f"right({inner}, {place})", f"replace({inner}, {other}, 'x')",
            f"reverse({inner})",
            f"lpad({inner}, 4, {other})", f"coalesce({inner}, {other})", f"if({self.condition(0)}, {inner}, {other})",
            f"concat_ws({other}, {inner}, 'z')", f"lower({inner})", f"cast({self._column('i t d b')} AS string)",
        ]  # fmt: skip
        return self.random.choice(calls)

    def date(self) -> str:
        """A date expression."""
        return self.random.choice(
            [self._column("day"), self._column("day"), f"cast({self._column('ts ntz')} AS date)", "DATE '2024-02-29'",
             f"date_add({self._column('day')}, {self.random.randint(-40, 40)})", f"last_day({self._column('day')})"]
        )  # fmt: skip

    def time(self) -> str:
        """A timestamp expression."""
        amount = self.random.choice(["1 DAY", "36 HOURS", "5 MINUTES", "1 MONTH", "-3 SECONDS", "2 YEARS"])
        return self.random.choice(
            [self._column("ts ntz"), self._column("ts ntz"), f"{self._column('ts ntz')} + INTERVAL {amount}",
             self.date(),
             "TIMESTAMP '2024-11-03 01:30:00'", f"date_trunc('DAY', {self._column('ts')})"]
        )  # fmt: skip

    def _pair(self, depth: int) -> tuple[str, str]:
        kind = self.random.choice(["number"] * 5 + ["text"] * 3 + ["date", "time", "mixed"])
        if kind == "mixed":
            return self.number(1), self._column("s q")
        if kind in {"number", "text"}:
            make = self.number if kind == "number" else self.text
            return make(depth), make(depth)
        return (self.date(), self.date()) if kind == "date" else (self.time(), self.time())

    def _compared(self, depth: int) -> str:
        left, right = self._pair(depth)
        return f"{left} {self.random.choice(['=', '<', '<=', '>', '>=', '<>', '<=>'])} {right}"

    def _between(self, depth: int) -> str:
        left, right = self._pair(depth)
        return f"{left} {self.random.choice(['', 'NOT '])}BETWEEN {right} AND {left}"

    def _listed(self, depth: int) -> str:
        left, right = self._pair(depth)
        return f"{left} {self.random.choice(['', 'NOT '])}IN ({right}, {left}, {self.random.choice(['NULL', right])})"

    def _null(self, depth: int) -> str:
        return f"{self._pair(depth)[0]} IS {self.random.choice(['', 'NOT '])}NULL"

    def _like(self, depth: int) -> str:
        pattern = self.random.choice([r"a%", r"%c", r"_", r"%\\_%", r"%b%", r"\\%", "%é%", "a_c"])
        return f"{self.text(depth)} {self.random.choice(['', 'NOT '])}LIKE '{pattern}'"

    def _both(self, depth: int) -> str:
        return f"({self.condition(depth)} {self.random.choice(['AND', 'OR'])} {self.condition(depth)})"

    def _negated(self, depth: int) -> str:
        return f"NOT ({self.condition(depth)})"

    def _cased(self, depth: int) -> str:
        return f"CASE WHEN {self.condition(depth)} THEN {self.condition(0)} ELSE {self.condition(0)} END"
