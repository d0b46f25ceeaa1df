"""Expressions to compare: the hand-written ones of traps.txt, and a seeded generator."""

import random
from collections.abc import Callable
from pathlib import Path


def traps() -> list[str]:
    """The hand-written expressions."""
    text = Path(__file__).with_name("traps.txt").read_text(encoding="utf-8")
    return [line for line in text.splitlines() if line]


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
        name = self.random.choice(["abs", "floor", "ceil", "round", "sign", "sqrt", "degrees", "radians", "negative"])
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
             "TIMESTAMP '2024-11-03 01:30:00'"]
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
