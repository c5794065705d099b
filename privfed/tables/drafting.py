"""Drafts the schema of one table, and says each guess that could lose or change what the table holds.

Guesses are for the owner of the rows: they give counts and values. The schema itself keeps the keys that were
guessed (`Column.guessed`), until the owner takes them out.
"""

from __future__ import annotations

import codecs
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import polars as pl

from privfed.core.values.origin import Origin
from privfed.core.values.shown import as_table
from privfed.data.table_files import content_of, is_text, not_utf8, stem
from privfed.errors import DataError
from privfed.tables.dates import days_in, formats_of, is_short
from privfed.tables.described_tables import bounds_in, numbers_in, text_frame, wide, without_unit
from privfed.tables.merging import usual_unit
from privfed.tables.schema import DATE, NUMBER, Column, File, Schema, to_toml

_CODES: Final = ("?", ".", "n/a", "#n/a", "<na>", "nan", "null")
_NO_DAY: Final = "^0+[-./]0+[-./]0+$"
_WORDS: Final = ("na", "none")
"""Words that are a missing value beside numbers and days, and may be a category beside others."""
_NINES: Final = r"^(-?(9{2,}|8{3,}|7{3,})|-(1|7|8|9|77|88)|[09])([.,]9*0*)?$"
_MOST_CATEGORIES: Final = 300
_MANY: Final = 12
"""More categories than most columns have may be days, numbers or free text."""
_ROWS_LIKE_IDS: Final = 20
"""Fewer rows may differ by chance."""
_ID: Final = (
    r"(?i)(^|[^a-z])(id|ids|uid|uuid|guid|mrn|cpr|ssn|nhs|pnr|pid|pseudonym|hash|subject|participant|record|"
    r"(patient|fall|l(ø|oe)be|journal|studien?|person)[-_ ]?(nr|no|nummer|number))([^a-zø]|$)"
    r"|(?-i:[a-z]I[dD]$)"
)
_CODED: Final = (
    r"(?i)(^|[^a-z])(icd|zip|plz|post(al)?_?(code|nr)|atc|sks|snomed|loinc|ndc|cpt|drg|code)([^a-z]|$|\d)"
)
_LONG: Final = {
    "id": r"(?i)^(person|patient|subject)_?(id|nr)?$",
    "name": r"(?i)(concept|variable|parameter|analyte|measurement|test)(_?(name|code|id))?$",
    "value": r"(?i)^(value|result|wert|værdi)(_as_number|_num)?$",
    "date": r"(?i)(date|dato|datum|time)$",
}
_BEHIND: Final = r"^[<>≤≥=]*\s*[+-]?[0-9][0-9.,]*\s*(%|[a-zA-Zµμ°]+[0-9²³]?([/^][a-zA-Z0-9µμ°²³]*)*)$"
_COMMAS: Final = "^[+-]?[0-9]+,([0-9]{1,2}|[0-9]{4,})( ?[%a-zA-Zµ°/]+)?$"
"""A decimal comma: between thousands it would have three digits behind it."""
_WINDOWS: Final = (
    "the file is no UTF-8, and is read as cp1252, as spreadsheets write it (if letters look odd: --encoding)"
)
_DECIMALS: Final = (
    "has commas that are none between thousands, and the file's commas are read as decimal signs (if they "
    "are none: --decimal .)"
)
_NO_TEXT: Final = bytes([0x81, 0x8D, 0x8F, 0x90, 0x9D, 0xC3])
"""Bytes that text in cp1252 does not have; the last one begins most letters of UTF-8, as in a mix of both."""
_UNIT: Final = r"^(.+?)\s*[\[(]\s*([^\])]+?)\s*[\])]$"


class Guess(msgspec.Struct, frozen=True):
    """Says what a draft took a column for, where this may lose or change what it holds.

    Args:
        column: the column; None of the whole file.
        key: the key of the schema that was guessed; "" where the column is left out.
        what: what was found and what it was taken for, with what to do if that is wrong.
    """

    column: str | None
    key: str
    what: str

    def __str__(self) -> str:
        return self.what if self.column is None else f"column {self.column!r} {self.what}"


@dataclass(frozen=True)
class Draft:
    """A drafted schema, with the guesses in it; a notebook shows the guesses as a table.

    Args:
        schema: the draft, whose `Column.guessed` names what was guessed.
        guesses: what was guessed, for the owner of the rows alone.
    """

    schema: Schema
    guesses: tuple[Guess, ...]

    def to_toml(self) -> str:
        """Return the text of the schema's file."""
        return to_toml(self.schema)

    _repr_html_ = as_table(
        lambda self: [("column", "guess"), *((one.column or "", one.what) for one in self.guesses)]
    )


def draft_schema(
    path: str | os.PathLike[str], *, date_format: str | None = None, pivot: int | None = None, **written: Any
) -> Draft:
    """Draft the schema of a table.

    Args:
        path: a CSV, TSV, Parquet or .xlsx file.
        date_format: how the file's days are written, where several formats read all of them.
        pivot: first of the hundred years that two digits may mean; without it such columns are left out.
        **written: fields of `File`: encoding, separator, decimal, thousands, long.

    Raises:
        DataError: the file cannot be read, or commas and points in it may mean two things.
    """
    path, guesses = Path(path), list[Guess]()
    given = {name: one for name, one in written.items() if one is not None}
    file = msgspec.convert(given, File)
    content = content_of(path)
    # Bytes below 9 are in no text, but in archives and in wider encodings.
    text = is_text(path) and min(content, default=0) > 8 and content.translate(None, _NO_TEXT) == content
    if "encoding" not in given and text and not_utf8(path, content.removeprefix(codecs.BOM_UTF8)):
        file = msgspec.structs.replace(file, encoding="cp1252")
        guesses.append(Guess(None, "", _WINDOWS))
    frame = text_frame(path, msgspec.structs.replace(file, long={}), content=content)
    if not len(frame):
        raise DataError(f"{path} has no rows; export it anew, or leave it out.")
    if not file.long and (roles := _long(frame)):
        file = msgspec.structs.replace(file, long=roles)
        guesses.append(
            Guess(
                roles["name"],
                "long",
                "names what each row has a value of, so that the file is long: each person becomes one row",
            )
        )
    if file.long:
        frame = wide(path, frame, file)
    commas = [one for one in frame.columns if (frame[one].str.contains(_COMMAS).mean() or 0.0) > 0.5]  # type: ignore[operator]
    if "decimal" not in given and commas:
        file = msgspec.structs.replace(file, decimal=",")
        guesses.append(Guess(commas[0], "", _DECIMALS))
    columns, names, dates = dict[str, Column](), dict[str, str](), dict[str, str]()
    for written_as in frame.columns:
        found = re.match(_UNIT, written_as)
        name, own = (found[1], found[2]) if found else (written_as, None)
        name = written_as if name in columns or name in frame.columns else name
        guess = _Guess(str(path), name, file, date_format, pivot)
        drafted = guess.column(frame[written_as])
        if drafted is not None and drafted.kind == NUMBER and drafted.unit is None and own is None:
            own = guess.usual(frame[written_as])
        guesses += guess.said
        if drafted is None:
            continue
        if drafted.kind == DATE:
            # Each site writes dates in its way: how stands with the file, so that drafts agree on the column.
            dates |= {} if guess.form == Column(kind=DATE).format else {name: guess.form}
        names |= {} if name == written_as else {written_as: name}
        columns[name] = msgspec.structs.replace(
            drafted,
            unit=own if drafted.kind == NUMBER and own else drafted.unit,
            provenance=Origin.EXACT if drafted.categories or drafted.codes else Origin.DECLARED,
            guessed=tuple(dict.fromkeys(one.key for one in guess.said if one.key)),
        )
    file = msgspec.structs.replace(file, dates=dates, names=names)
    return Draft(Schema(columns=columns, files={stem(path): file}), tuple(guesses))


def _long(frame: pl.DataFrame) -> dict[str, str]:
    """Return which columns make a table long, where they do."""
    found = {
        role: named[0]
        for role, pattern in _LONG.items()
        if (named := [one for one in frame.columns if re.search(pattern, one.strip())])
    }
    several = {"id", "name", "value"} <= found.keys() and frame[found["id"]].is_duplicated().any()
    return found if several and frame[found["name"]].n_unique() <= _MOST_CATEGORIES else {}


class _Guess:
    """Guesses what one column is."""

    def __init__(self, path: str, name: str, file: File, date_format: str | None, pivot: int | None) -> None:
        self._path, self._name, self._file = path, name, file
        self._date_format, self._pivot, self.form = date_format, pivot, ""
        self.said = list[Guess]()

    def _say(self, key: str, what: str) -> None:
        self.said.append(Guess(self._name, key, what))

    def column(self, text: pl.Series) -> Column | None:
        """Return what the column is; None where it is left out."""
        present = text.drop_nulls()
        lower = present.str.to_lowercase()
        known = lower.is_in(_CODES) | lower.str.contains(_NO_DAY)
        sure, words = present.filter(known), present.filter(lower.is_in(_WORDS))
        rest = present.filter(~known & ~lower.is_in(_WORDS))
        if not len(rest):
            return self._left_out("holds no value")
        forms = formats_of(rest, self._pivot or 2000)
        forms = [one for one in forms if one.startswith(self._date_format or "")] or forms
        if forms:
            own = self._day(rest, forms)
        else:
            own = self._number(rest)
            own = self._text(rest, words) if own is None else own
        if own is None:
            return None
        codes = sure if own.named else pl.concat([sure, words])
        for one in sorted(codes.unique()):
            self._say("codes", f"is {one!r} in {(codes == one).sum()} rows, taken for missing values (codes)")
        return msgspec.structs.replace(own, codes=(*sorted(codes.unique()), *own.codes))

    def _left_out(self, why: str) -> Column | None:
        self._say("", f"{why}; it is left out, add it if it matters")
        return None

    def _day(self, text: pl.Series, forms: list[str]) -> Column | None:
        self.form, short = forms[0], is_short(forms[0])
        if len(forms) > 1:
            return self._left_out(
                f"holds dates whose day may be a month or a year: {', '.join(forms)} read them (say which "
                "with --date-format)"
            )
        if short and self._pivot is None:
            return self._left_out(
                "holds years of two digits (say which they are: --pivot 1930 makes 29 2029, and 30 1930)"
            )
        days = days_in(text, self.form, self._pivot)
        known = days.drop_nulls().sort()
        span = f"from {known[0]} to {known[-1]}"
        if short:
            self._say("pivot", f"holds years of two digits: with pivot {self._pivot} its days are {span}")
        if self.form == "%Y%m%d":
            self._say(
                "kind", f'holds whole numbers that are taken for days {span}; if not, give kind = "number"'
            )
        if "%d" not in self.form:
            self._say("format", "holds months, which are taken for their first days")
        if "%H" in self.form or "%I" in self.form:
            self._say("format", "holds times of day, which are left out")
        if odd := days.null_count():
            self._say(
                "format", f"holds {odd} texts that are no day in {self.form}: correct them, or add codes"
            )
        far = text.filter(
            (days.dt.year() > 2100) | (days.dt.strftime("%Y%m%d").is_in(["19000101", "18000101"]))
        )
        if len(far):
            self._say(
                "",
                f"is {far[0]} or alike in {len(far)} rows; if it stands for a missing day, add it to codes",
            )
        return Column(kind="date", pivot=self._pivot if short else None)

    def _number(self, text: pl.Series) -> Column | None:
        """Return an id, a category of two numbers, or a number; None for texts and codes."""
        file = (self._file.decimal, self._file.thousands)
        if text.str.contains("^[+-]?0[0-9]+$").any() or re.search(_CODED, self._name):
            return None
        behind = text.str.extract(_BEHIND)
        unit = behind[0] if behind.n_unique() == 1 else None
        bare = without_unit(text, unit)
        read, bound = numbers_in(bare, *file), bounds_in(bare, *file)
        odd = text.filter(read.is_null() & bound.is_null())
        few, bounds = odd.n_unique() <= 3, text.filter(read.is_null() & bound.is_not_null())
        if 2 * len(odd) >= len(text) or not (few or len(odd) <= 0.05 * len(text)):
            return None
        whole = bool(text.str.contains("^[+-]?[0-9]+$").all())
        if whole and (why := self._is_id(text)):
            self._say("kind", f'{why}, and is taken for an id; if it is a number, give kind = "number"')
            return Column(kind="id")
        if whole and text.n_unique() == 2 and len(text) >= _ROWS_LIKE_IDS:
            known = sorted(text.unique(), key=int)
            self._say("kind", f"is {' or '.join(known)} in all rows, and is taken for two categories")
            return Column(kind="category", categories=tuple(known))
        self._hint_codes(text, read)
        self._hint_thousands(bare)
        if unit is not None:
            self._say("unit", f"has {unit!r} behind each number, which is taken for its unit")
        if len(bounds):
            self._say(
                "censored", f"is a bound such as {bounds[0]!r} in {len(bounds)} rows: the bound is taken"
            )
        for one in sorted(odd.unique()) if few else []:
            self._say("codes", f"is {one!r} in {(odd == one).sum()} rows, taken for missing values (codes)")
        if not few:
            self._say(
                "codes", f"is no number in {len(odd)} rows, such as {odd[0]!r}; correct them, or add codes"
            )
        codes = tuple(sorted(odd.unique())) if few else ()
        return Column(kind="number", unit=unit, codes=codes, censored="bound" if len(bounds) else "error")

    def usual(self, text: pl.Series) -> str | None:
        """Return the unit in which a column's median is usual, where its name says what it measures."""
        median = numbers_in(text, self._file.decimal, self._file.thousands).median()
        unit = None if median is None or len(text) < _ROWS_LIKE_IDS else usual_unit(self._name, float(median))  # type: ignore[arg-type]
        if unit is not None:
            self._say(
                "unit", f"has no unit, and its median is a usual one in {unit}, which is taken for its unit"
            )
        return unit

    def _text(self, text: pl.Series, words: pl.Series) -> Column | None:
        """Return an id or a category; None for free text."""
        signed = text.str.contains(r"^[+-]?[0-9]+([.,\s'][0-9]+)*[.,\s'][0-9]+$").sum()
        if 2 * signed > len(text) and not re.search(_CODED, self._name):
            raise DataError(
                f"{self._path}: column {self._name!r}: {signed} rows have commas, points or blanks that may "
                "stand before decimals or thousands; say which with --decimal and --thousands."
            )
        if why := self._is_id(text):
            self._say("kind", f"{why}, and is taken for an id")
            return Column(kind="id")
        if text.n_unique() > min(_MOST_CATEGORIES, max(len(text) // 2, 2)):
            return self._left_out("holds free text, or more codes than can be categories")
        if text.n_unique() > _MANY or text.str.contains("[0-9]").any():
            self._say(
                "kind",
                f"holds {text.n_unique()} texts such as {text[0]!r}, taken for categories without order; if "
                'they are numbers or days, correct them, and if they have an order, give kind = "ordinal"',
            )
        for one in sorted(words.unique()):
            self._say(
                "categories",
                f"is {one!r} in {(words == one).sum()} rows, taken for a category; if it is a missing value, "
                "move it to codes",
            )
        return Column(kind="category", categories=tuple(sorted({*text, *words})))

    def _is_id(self, text: pl.Series) -> str | None:
        """Return why a column of whole numbers or texts looks like an id, never because all differ alone."""
        rows, differ = len(text), text.n_unique()
        if re.search(_ID, self._name) and 5 * differ > rows > 2:
            return "has the name of an id"
        if differ < rows or rows < _ROWS_LIKE_IDS or re.search(_CODED, self._name):
            return None
        lengths = text.str.len_chars()
        if not text.str.contains("^[0-9]+$").all():
            alike = text.str.contains(r"^[^.,\s]*$").all() and text.str.contains("[0-9]").mean() > 0.9  # type: ignore[operator]
            return "holds words with digits that all differ" if alike else None
        if (text.str.contains("^0").any() and lengths.n_unique() == 1) or (
            lengths.min() == lengths.max() and lengths[0] > 7
        ):
            return "holds long numbers, or leading zeros, that all differ"
        ends = text.cast(pl.Float64).min(), text.cast(pl.Float64).max()
        return "counts the rows" if ends[0] <= 1 and ends[1] - ends[0] == rows - 1 else None  # type: ignore[operator]

    def _hint_codes(self, text: pl.Series, read: pl.Series) -> None:
        """Say which values look like codes for missing ones: nines or -1, in some rows, beyond all others."""
        coded = text.str.contains(_NINES) & read.is_not_null()
        others = read.filter(~coded).drop_nulls()
        low, high = (float(one or 0.0) for one in (others.min(), others.max()))  # type: ignore[arg-type]
        for value in sorted(text.filter(coded).unique()) if len(others) else []:
            rows, number = int((text == value).sum()), float(read.filter(text == value)[0])
            # A 9 stands for a missing answer among those up to 6, and a 0 where all others are far from it.
            far = {9.0: high < 7.0, 0.0: low > high - low}.get(number, True)
            if rows > 1 and far and not low <= number <= high:
                self._say(
                    "codes",
                    f"is {value} in {rows} rows, beyond all other values; if it stands for a missing one, "
                    "add it to codes",
                )

    def _hint_thousands(self, text: pl.Series) -> None:
        """Say where the decimal sign stands before three digits in all rows, as between thousands."""
        sign = self._file.decimal
        signed = text.filter(text.str.contains(sign, literal=True))
        if len(signed) and signed.str.contains(rf"^[+-]?[1-9][0-9]{{0,2}}[{sign}][0-9]{{3}}$").all():
            other = "," if sign == "." else "."
            self._say(
                "decimal",
                f"has {sign!r} before three digits in all {len(signed)} rows that have it, read as a decimal "
                f"sign; if it stands between thousands, give --decimal '{other}' --thousands '{sign}'",
            )
