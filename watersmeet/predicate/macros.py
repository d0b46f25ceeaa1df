"""DuckDB macros for Spark semantics that DuckDB has no function for; each new database creates them.

Every macro is NULL for a NULL argument unless noted otherwise. Where DuckDB might answer differently from Spark for a
value, the expression carries a condition for it (`Expr.unsure`), and Spark decides.
"""

_BLANKS = " || ".join(f"chr({code})" for code in (*range(1, 33), 127))
_NUMBER = "-?[0-9]+([.][0-9]+)?([eE]-?[0-9]+)?"
_DATE = "([0-9]{4})(?:-([0-9]{1,2})(?:-([0-9]{1,2})(?:[ T].*)?)?)?"

# Letters that Unicode has cased since DuckDB's tables were made; then those whose other case is more than one letter
# (ß, ŉ, ligatures, Greek with iota) or depends on the letters around them (Σ).
_YOUNG = r"\x{19B}\x{264}\x{1C89}\x{1C8A}\x{A7CB}-\x{A7DC}\x{10D50}-\x{10D85}\x{16EA0}-\x{16ED3}"
SPECIAL_UPPER = (
    rf"[{_YOUNG}ßŉǰ\x{{390}}\x{{3B0}}\x{{587}}\x{{1E96}}-\x{{1E9A}}\x{{1F50}}\x{{1F52}}\x{{1F54}}\x{{1F56}}"
    r"\x{1F80}-\x{1FAF}\x{1FB2}-\x{1FFC}\x{FB00}-\x{FB17}]"
)
SPECIAL_LOWER = rf"[{_YOUNG}İΣ]"

MACROS: dict[str, str] = {
    "ws_trim(x)": f"trim(x, {_BLANKS})",
    # Casts of text: NULL where the text is not a valid value; the cast turns that into an error where Spark raises one.
    "ws_integer_text(x)": "CASE WHEN regexp_full_match(ws_trim(x), '[+-]?[0-9]+') THEN ws_trim(x) END",
    "ws_number_text(x)": f"CASE WHEN regexp_full_match(x, '{_NUMBER}') THEN x END",
    "ws_boolean(x)": (
        "CASE WHEN lower(ws_trim(x)) IN ('t', 'true', 'y', 'yes', '1') THEN TRUE "
        "WHEN lower(ws_trim(x)) IN ('f', 'false', 'n', 'no', '0') THEN FALSE END"
    ),
    "ws_date_part(x, part)": (
        f"CAST(coalesce(nullif(regexp_extract(ws_trim(x), '^{_DATE}$', part), ''), '1') AS BIGINT)"
    ),
    "ws_date(x)": (
        f"CASE WHEN regexp_full_match(ws_trim(x), '{_DATE}') "
        "THEN TRY(make_date(ws_date_part(x, 1), ws_date_part(x, 2), ws_date_part(x, 3))) END"
    ),
    # Dates and timestamps are formatted as in Spark in these years only; days are counted alike in more.
    "ws_strange_year(x)": "year(x) NOT BETWEEN 1 AND 9999",
    "ws_far(x)": "year(x) NOT BETWEEN -100000 AND 100000",
    "ws_as_float(x)": (
        "CASE WHEN isinf(x) OR isnan(x) OR abs(x) < 3.4028235677973366e38::DOUBLE THEN CAST(x AS FLOAT) "
        "WHEN x > 0 THEN CAST('inf' AS FLOAT) WHEN x < 0 THEN CAST('-inf' AS FLOAT) END"
    ),
    "ws_whole(x)": (
        "CASE WHEN isnan(x) THEN 0 WHEN x >= 9223372036854775807 THEN 9223372036854775807 "
        "WHEN x <= -9223372036854775808 THEN -9223372036854775808 ELSE CAST(x AS BIGINT) END"
    ),
    "ws_long(x)": (
        "CASE WHEN isnan(x) OR x > 9223372036854775807 OR x < -9223372036854775808 THEN NULL ELSE ws_whole(x) END"
    ),
    "ws_instant_before(x, later)": (
        "make_timestamptz(epoch_us(x) - (epoch_us(CAST(later - INTERVAL 24 HOURS AS TIMESTAMP)) "
        "- epoch_us(later - INTERVAL 24 HOURS)))"
    ),
    # Of the two instants with this local time when clocks go back, Java takes the earlier and DuckDB the later.
    "ws_instant(x)": (
        "CASE WHEN CAST(ws_instant_before(x, CAST(x AS TIMESTAMPTZ)) AS TIMESTAMP) = x "
        "THEN ws_instant_before(x, CAST(x AS TIMESTAMPTZ)) ELSE CAST(x AS TIMESTAMPTZ) END"
    ),
    "ws_not_below_0(x)": "CASE WHEN x < 0 THEN 0 ELSE x END",
    "ws_substring_from(x, start, size)": (
        "CASE WHEN start IS NULL THEN NULL WHEN start >= 0 THEN substring(x, start + 1, ws_not_below_0(size)) "
        "ELSE substring(x, 1, ws_not_below_0(start + size)) END"
    ),
    "ws_substring(x, start, size)": (
        "ws_substring_from(x, CASE WHEN start > 0 THEN start - 1 WHEN start < 0 THEN length(x) + start ELSE start END, "
        "size)"
    ),
    "ws_strange_upper(x)": f"regexp_matches(x, '{SPECIAL_UPPER}')",
    "ws_strange_lower(x)": f"regexp_matches(x, '{SPECIAL_LOWER}')",
    "ws_beyond_ascii(x)": "strlen(x) > length(x)",
    "ws_within(x, most)": "CASE WHEN x IS NULL OR most IS NULL THEN NULL WHEN x > most THEN -1 ELSE x END",
    # The first six bytes as a number, padded with the smallest or the largest byte; see `predicate.numbers`.
    "ws_text_filled(x, digits)": "CAST(CAST('0x' || left(hex(left(x, 6)) || digits, 12) AS BIGINT) AS DOUBLE)",
    "ws_text(x)": "ws_text_filled(x, '000000000000')",
    "ws_text_last(x)": "ws_text_filled(x, 'FFFFFFFFFFFF')",
    "ws_floor_divide(x, y)": "x // y - CAST(x % y < 0 AS BIGINT)",
    "ws_position(xs, x)": "CASE WHEN xs IS NULL OR x IS NULL THEN NULL ELSE coalesce(list_position(xs, x), 0) END",
    "ws_contains(xs, x)": (
        "CASE WHEN xs IS NULL OR x IS NULL THEN NULL WHEN list_contains(xs, x) THEN TRUE "
        "WHEN len(xs) > list_count(xs) THEN NULL ELSE FALSE END"
    ),
    # Faster than list_has_any and list_intersect, which build a table for each row.
    "ws_common(xs, ys)": "list_filter(xs, lambda ws_x: list_contains(ys, ws_x))",
    "ws_holds_null(xs)": "len(xs) > list_count(xs)",
    "ws_overlap(xs, ys)": (
        "CASE WHEN xs IS NULL OR ys IS NULL THEN NULL WHEN len(ws_common(xs, ys)) > 0 THEN TRUE "
        "WHEN len(xs) > 0 AND len(ys) > 0 AND (ws_holds_null(xs) OR ws_holds_null(ys)) THEN NULL ELSE FALSE END"
    ),
    "ws_intersect(xs, ys)": (
        "CASE WHEN xs IS NULL OR ys IS NULL THEN NULL WHEN ws_holds_null(xs) AND ws_holds_null(ys) "
        "THEN list_append(list_distinct(ws_common(xs, ys)), NULL) ELSE list_distinct(ws_common(xs, ys)) END"
    ),
}

PRELUDE: tuple[str, ...] = tuple(f"CREATE OR REPLACE MACRO {head} AS ({body})" for head, body in MACROS.items())
"""DuckDB statements to run once on a new database, before any conjunct: its cursors share them."""
