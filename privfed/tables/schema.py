"""A schema of a table: what each column means, in a small TOML file that parties exchange before a fit.

A schema is public. It says of each column its kind, unit, range, categories and codes for missing values, and
of each file how it is written. Trust: a draft is made from one table and stays with its owner until it is
passed on.
"""

from __future__ import annotations

import datetime
import difflib
import json
import math
import os
import tomllib
from collections.abc import Collection, Mapping, Set
from itertools import count, islice
from pathlib import Path
from typing import Any, Final, Literal, get_args, get_origin

import msgspec

from privfed.core.values.origin import Origin
from privfed.data.table import LEAVE_OUT
from privfed.errors import ArgumentError, PrivacyError
from privfed.tables.dates import is_format, is_short

Kind = Literal["number", "category", "ordinal", "date", "id", "label"]

ERROR = "error"
NUMBER: Final[Kind] = "number"
CATEGORY: Final[Kind] = "category"
ORDINAL: Final[Kind] = "ordinal"
DATE: Final[Kind] = "date"
ID: Final[Kind] = "id"
LABEL: Final[Kind] = "label"
FEATURES: Final = (NUMBER, CATEGORY, ORDINAL, DATE)
"""Kinds of columns by which rows are clustered."""
_LONG: Final = ("id", "name", "value", "date", "take")
WEIGHT = math.sqrt(0.5)
"""Value of a row's own category: two rows of different ones have distance 1, as the ends of a scaled number.

Source: Gower, A General Coefficient of Similarity and Some of Its Properties, Biometrics 27, 1971."""


class Column(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Says what one column means.

    Args:
        kind: "number"; "category", one feature for each category; "ordinal", one feature, the position among
            the categories, from 0; "date", a number of days; "id" and "label", which are no features.
        unit: unit of a number, for people.
        units: other units that files use, with the factor that makes the column's unit of them; or the
            factor and what is added then, as of degrees Fahrenheit.
        low: declared lowest value, in the unit; of a date as YYYY-MM-DD.
        high: declared highest value.
        categories: all categories, in the order of their features; of an ordinal from its low end.
        weight: value of the feature of a row's own category; the others are 0.
        codes: texts that stand for a missing value, besides an empty field.
        missing: what becomes of a row without a value: "error", "leave-out", or the value in its place.
        outside: what becomes of a value outside the range: "error", "clip", or "missing".
        format: how a date is written.
        origin: day 0 of a date.
        pivot: first of the hundred years that two digits may mean: with 1930, 29 is 2029 and 30 is 1930.
        censored: what becomes of a bound in place of a number, such as `<5` or `90+`: "error"; "bound", which
            takes the bound itself; or "missing". As texts they may be categories, too.
        shift: what is subtracted of a number, a date's days, or a position, once gaps are filled.
        spread: what the rest is divided by. Of a category it is `weight` that is scaled.
        provenance: where its `categories` and `codes`, its `missing`, `shift`, `spread` and `weight` come
            from: "declared"; "exact", from rows (a draft) or from sums over them without noise; or
            "claimed", under differential privacy. A claim refuses what is exact.
        guessed: keys that a draft or a merge guessed, and nobody confirmed. Take a key out to confirm it.
        conflicts: what parties still have to agree on, as a merge wrote it; until then no table is read.
    """

    kind: Kind
    unit: str | None = None
    units: dict[str, float | tuple[float, float]] = {}
    low: float | datetime.date | None = None
    high: float | datetime.date | None = None
    categories: tuple[str, ...] = ()
    weight: float = WEIGHT
    codes: tuple[str, ...] = ()
    missing: Any = ERROR
    outside: Literal["error", "clip", "missing"] = "error"
    format: str = "%Y-%m-%d"
    origin: datetime.date = datetime.date(2000, 1, 1)
    pivot: int | None = None
    censored: Literal["error", "bound", "missing"] = "error"
    shift: float = 0.0
    spread: float = 1.0
    provenance: Origin = Origin.DECLARED
    guessed: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()

    @property
    def is_feature(self) -> bool:
        """Whether rows are clustered by it."""
        return self.kind in FEATURES

    @property
    def named(self) -> bool:
        """Whether its values are texts that the schema names."""
        return self.kind in (CATEGORY, ORDINAL)

    @property
    def width(self) -> int:
        """Number of its features."""
        return len(self.categories) if self.kind == CATEGORY else int(self.is_feature)

    def titled(self, name: str) -> str:
        """Return its name with what its numbers mean: a unit, or the ends of an order."""
        if self.kind == ORDINAL:
            return f"{name} [0 {self.categories[0]} to {len(self.categories) - 1} {self.categories[-1]}]"
        return name if self.unit is None or self.kind == DATE else f"{name} [{self.unit}]"

    def number(self, value: str | float | datetime.date) -> float:
        """Return a declared value as a number: of a date the days since `origin`."""
        if isinstance(value, datetime.date):
            return float((value - self.origin).days)
        return float(value)

    def conversion(self, unit: str) -> tuple[float, float]:
        """Return the factor that makes its unit of another one, and what is added then."""
        given = self.units.get(unit, 1.0)
        return given if isinstance(given, tuple) else (given, 0.0)

    @property
    def range(self) -> tuple[float, float] | None:
        """The declared range as numbers, or None."""
        if self.kind == CATEGORY:
            return (0.0, self.weight)
        if self.kind == ORDINAL:
            return (0.0, len(self.categories) - 1.0)
        if self.low is None or self.high is None:
            return None
        return self.number(self.low), self.number(self.high)

    def wrong(self) -> str | None:
        """Return what is wrong with it and what helps, or None."""
        dated = [isinstance(one, datetime.date) for one in (self.low, self.high) if one is not None]
        if len(dated) == 1:
            return "declares one end of its range; give low and high, or none"
        if dated and (self.kind not in (NUMBER, DATE) or set(dated) != {self.kind == DATE}):
            return "has a range of another kind; give numbers for a number, YYYY-MM-DD for a date"
        ends = self.range
        if ends is not None and not (math.isfinite(ends[0]) and math.isfinite(ends[1]) and ends[0] < ends[1]):
            return "has a range that is empty or infinite; give a finite low below high"
        if self.named != bool(self.categories):
            return 'needs categories if its kind is "category" or "ordinal", and takes none otherwise'
        if len(set(self.categories)) < len(self.categories) or "" in self.categories:
            return "names an empty category, or one twice; name each once"
        if not (math.isfinite(self.weight) and self.weight > 0):
            return "has a weight that is not above 0; give a positive number"
        if not (math.isfinite(self.shift) and 0 < self.spread < math.inf):
            return "has an infinite shift, or a spread that is not above 0; let schema scale write both"
        if self.kind in (CATEGORY, ID, LABEL) and (self.shift, self.spread) != (0.0, 1.0):
            return "takes no shift and no spread; those of a category are its weight"
        if not all(
            math.isfinite(a) and a != 0 and math.isfinite(b) for a, b in map(self.conversion, self.units)
        ):
            return "has a factor in units that is 0 or infinite; give the number that makes its unit"
        if self.censored != ERROR and self.kind != NUMBER:
            return "has a rule for bounds, which only numbers have; take out censored"
        if self.conflicts:
            return f"has conflicts: {'; '.join(self.conflicts)}. Settle them, and take out the key conflicts"
        return self._wrong_rule()

    def _wrong_rule(self) -> str | None:
        if self.missing in (ERROR, LEAVE_OUT):
            return None
        if isinstance(self.missing, bool):
            return "has a truth value for missing; give a word, a number or a date"
        if self.named:
            fits = self.missing in self.categories
        else:
            wanted = datetime.date if self.kind == DATE else (int, float)
            fits = self.is_feature and isinstance(self.missing, wanted)
            ends = self.range
            if fits and ends is not None:
                fits = ends[0] <= self.number(self.missing) <= ends[1]
        return (
            None if fits else 'has a value for missing that it cannot take; give "leave-out", or one it can'
        )


class File(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Says how one file is written, which others may write in another way.

    Args:
        encoding: of its text; None for UTF-8, or UTF-16 with a byte order mark.
        separator: between its fields; None to find it in the header line.
        decimal: its decimal sign.
        thousands: its sign between thousands; "" for none.
        names: its name of a column -> the schema's.
        units: column -> the unit it has in this file, one of the column's `units`.
        dates: column -> how its dates are written in this file, where this is not the column's `format`.
        values: column -> this file's text -> the category, or the code for a missing value, that it means.
        long: for a file with one row for each value, as OMOP's: `id`, `name` and `value` are its columns of
            whose it is, of the columns' names, and of values. Each person becomes one row. Of several values
            the last in the order of the column `date`, or of the file, is taken; with `take = "first"` the
            first.
    """

    encoding: str | None = None
    separator: str | None = None
    decimal: Literal[".", ","] = "."
    thousands: Literal["", ".", ",", " ", "'"] = ""
    names: dict[str, str] = {}
    units: dict[str, str] = {}
    dates: dict[str, str] = {}
    values: dict[str, dict[str, str]] = {}
    long: dict[str, str] = {}

    def wrong(self, columns: Mapping[str, Column]) -> str | None:
        """Return what is wrong with it beside the columns of its schema, and what helps, or None."""
        if self.decimal == self.thousands:
            return "has one sign for decimals and thousands; give two"
        for column, unit in self.units.items():
            if column not in columns or unit not in columns[column].units:
                return (
                    f"has column {column!r} in {unit!r}; give that column units with this unit and its factor"
                )
        for column in self.dates:
            if column not in columns or columns[column].kind != DATE:
                return (
                    f"says how dates of {column!r} are written, which is no column of dates; correct its "
                    "name or kind"
                )
        for column, values in self.values.items():
            own = columns.get(column)
            if own is None or not own.named or not {*values.values()} <= {*own.categories, *own.codes}:
                return f"has values of {column!r} that mean no category or code of that column; correct them"
        if self.long and not {"id", "name", "value"} <= self.long.keys() <= {*_LONG}:
            return "is long and needs id, name and value; besides these it may have date and take"
        return None


class Schema(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Says what the columns of all clients' tables mean, and how each file is written.

    Args:
        scale: "range" to make numbers and dates 0 at their lowest and 1 at their highest declared value.
        columns: name -> column, in the order of the features.
        files: name of a file without its suffix -> how it is written.
    """

    scale: Literal["none", "range"] = "none"
    columns: dict[str, Column]
    files: dict[str, File] = {}

    @property
    def blocks(self) -> tuple[tuple[int, ...], ...]:
        """Positions of the features of each category's column."""
        return tuple(
            tuple(places) for name, places in self.places.items() if self.columns[name].kind == CATEGORY
        )

    @property
    def places(self) -> dict[str, list[int]]:
        """Positions of each column's features, of some columns none."""
        numbers = count()
        return {name: list(islice(numbers, own.width)) for name, own in self.columns.items()}

    @property
    def meanings(self) -> list[Column]:
        """The column of each feature."""
        return [own for own in self.columns.values() for _ in range(own.width)]

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the features: a number's own, and `column=category` for each category."""
        return tuple(
            one
            for name, own in self.columns.items()
            if own.is_feature
            for one in ([f"{name}={each}" for each in own.categories if own.kind == CATEGORY] or [name])
        )

    def of(self, kind: Kind) -> list[str]:
        """Return the names of the columns of a kind."""
        return [name for name, own in self.columns.items() if own.kind == kind]

    def domain(self) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
        """Return lowest and highest value of each feature, or None where a column declares no range."""
        known = [(own.range, *self.scaling(own)) for own in self.meanings]
        found = [((ends[0] - a) / b, (ends[1] - a) / b) for ends, a, b in known if ends is not None]
        both = tuple(low for low, _ in found), tuple(high for _, high in found)
        return both if len(found) == len(known) else None

    def scaling(self, own: Column) -> tuple[float, float]:
        """Return what is subtracted of a column's values, and what the rest is divided by."""
        ends = own.range
        if self.scale == "range" and ends is not None and own.kind != CATEGORY:
            return ends[0], ends[1] - ends[0]
        return own.shift, own.spread

    def check_private(self) -> None:
        """Check that no row can cause an error, as differential privacy needs it.

        Raises:
            PrivacyError: a column has no range, a rule that is an error, or numbers of exact sums.
        """
        features = {name: own for name, own in self.columns.items() if own.is_feature}
        lacking = {
            "low and high": [name for name, own in features.items() if own.range is None],
            'missing = "leave-out" or a value': [n for n, own in features.items() if own.missing == ERROR],
            'outside = "clip" or "missing"': [
                name for name, own in features.items() if own.outside == ERROR and not own.named
            ],
            "what --epsilon has learnt, not what rows or exact sums gave (or your word, by `privfed schema "
            "declare`),": [name for name, own in features.items() if own.provenance == Origin.EXACT],
        }
        if said := [f"{what} to {', '.join(map(repr, names))}" for what, names in lacking.items() if names]:
            raise PrivacyError(
                "under differential privacy no row may cause an error, and each feature needs a range: in "
                f"the schema give {'; '.join(said)}."
            )


def parse(text: str, origin: str = "the schema") -> Schema:
    """Return a schema from the text of its file.

    Raises:
        ArgumentError: it is no TOML, has an unknown key or a wrong value; the message names the place.
    """
    try:
        found = msgspec.convert(tomllib.loads(text), Schema)
    except tomllib.TOMLDecodeError as error:
        raise ArgumentError(f"{origin} is no TOML: {error}.") from None
    except msgspec.ValidationError as error:
        raise ArgumentError(f"{origin}: {_wrong(tomllib.loads(text), str(error))}.") from None
    if not found.features:
        raise ArgumentError(
            f"{origin} has no feature: give it a column of kind number, category, ordinal or date."
        )
    for name, own in found.columns.items():
        if wrong := own.wrong():
            raise ArgumentError(f"{origin}: column {name!r} {wrong}.")
        if found.scale == "range" and own.is_feature and own.range is None:
            raise ArgumentError(f'{origin}: column {name!r} needs low and high, as scale is "range".')
        if found.scale == "range" and (own.shift, own.spread) != (0.0, 1.0):
            raise ArgumentError(
                f'{origin}: column {name!r} has shift and spread, and scale is "range"; take one.'
            )
    if len(set(found.features)) < len(found.features):
        raise ArgumentError(f"{origin}: two features have one name; rename a column or a category.")
    for name, file in found.files.items():
        if wrong := file.wrong(found.columns):
            raise ArgumentError(f"{origin}: file {name!r} {wrong}.")
    for name in found.of(DATE):
        for form in {
            found.columns[name].format,
            *(one.dates.get(name, "%F") for one in found.files.values()),
        }:
            if not is_format(form):
                raise ArgumentError(
                    f"{origin}: column {name!r} has a format {form!r}, in which no day can be read back; "
                    'write one such as "%d-%m-%Y".'
                )
            if is_short(form) and found.columns[name].pivot is None:
                raise ArgumentError(
                    f"{origin}: column {name!r} has years of two digits; give pivot, the first of the "
                    "hundred years that they may mean: with pivot = 1930, 29 is 2029 and 30 is 1930."
                )
    return found


def _wrong(said: dict[str, Any], error: str) -> str:
    """Return which value of a file is wrong, and what it may be; msgspec names neither column nor file."""
    for part, kind in (("columns", Column), ("files", File)):
        for name, own in said[part].items() if isinstance(said.get(part), dict) else ():
            if isinstance(own, dict) and (wrong := _wrong_key(own, kind)):
                return f"{part[:-1]} {name!r} {wrong}"
    return f"it {wrong}" if (wrong := _wrong_key(said, Schema)) else error.split(" - at ")[0]


def _wrong_key(said: dict[str, Any], kind: type[msgspec.Struct]) -> str | None:
    """Return what is wrong with the first key that is unknown, missing or has a wrong value."""
    known = {one.name: one for one in msgspec.structs.fields(kind)}
    for key in said:
        if key not in known:
            near = difflib.get_close_matches(key, known, 1) or known
            return f"has {key!r}, which means nothing there; did you mean {' or '.join(map(repr, near))}"
    for name, one in known.items():
        literal = get_origin(one.type) is Literal
        value = "one of " + ", ".join(map(repr, get_args(one.type))) if literal else _VALUES.get(name)
        if name not in said:
            if one.required:
                return f"has no {name!r}; give {value}"
            continue
        try:
            msgspec.convert(said[name], one.type)
        except msgspec.ValidationError:
            return f"has {name} = {said[name]!r}; give {value}"
    return None


_VALUES: Final = {
    "unit": 'a text such as "mg/dl"',
    "units": 'units and factors such as {"mg/dl" = 0.0555}, or with an offset {"°F" = [0.5556, -17.778]}',
    **dict.fromkeys(("low", "high"), "a number, or a date, without quotation marks"),
    **dict.fromkeys(("categories", "codes"), 'a list of texts such as ["a", "b"]'),
    **dict.fromkeys(("weight", "shift", "spread"), "a number without quotation marks"),
    "format": 'a text such as "%d-%m-%Y"',
    "origin": "a date such as 2000-01-01, without quotation marks",
    **dict.fromkeys(("encoding", "separator"), 'a text such as "latin-1" or ";"'),
    "names": 'names such as {alder = "age"}',
    "dates": 'columns and formats such as {seen = "%d/%m/%Y"}',
    "values": 'columns and texts such as {sex = {K = "female"}}',
    "long": 'columns such as {id = "person_id", name = "concept", value = "value"}',
    "pivot": "a year such as 1930, without quotation marks",
    "provenance": "one of 'declared', 'exact', 'claimed'",
    **dict.fromkeys(("guessed", "conflicts"), "a list of texts, or take it out"),
    **dict.fromkeys(("columns", "files"), "a table for each, such as [columns.age] or [files.aarhus]"),
}


def schema_text(path: Path) -> str:
    """Return the text of a schema's file; raises `ArgumentError` where it is none."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = f" ({error.strerror})" if isinstance(error, OSError) else ""
        raise ArgumentError(
            f"{path} is no schema that can be read{why}; write one with privfed schema draft."
        ) from None
    parse(text, str(path))
    return text


def read_schema(path: str | os.PathLike[str]) -> Schema:
    """Read a schema's file.

    Raises:
        ArgumentError: it cannot be read, or is no schema; the message names the place.
    """
    return parse(schema_text(Path(path)), str(path))


def to_toml(schema: Schema) -> str:
    """Return the text of a schema's file; `parse` reads it back to an equal schema."""
    lines = [f"scale = {to_value(schema.scale)}"]
    for part, tables in (("columns", schema.columns), ("files", schema.files)):
        for name, own in tables.items():
            lines += ["", f"[{part}.{to_value(name)}]"]
            fields: Mapping[str, Any] = msgspec.structs.asdict(own)
            usual = msgspec.structs.asdict(Column(kind="id") if isinstance(own, Column) else File())
            lines += [
                f"{key} = {to_value(value)}"
                for key, value in fields.items()
                if value is not None and (key == "kind" or value != usual[key])
            ]
    return "\n".join(lines) + "\n"


def to_value(value: Any) -> str:
    """Return a text, number, date, truth value, list or table as TOML writes it; a set in its order."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, dict):
        return "{" + ", ".join(f"{to_value(key)} = {to_value(own)}" for key, own in value.items()) + "}"
    if isinstance(value, Collection):
        return "[" + ", ".join(map(to_value, sorted(value) if isinstance(value, Set) else value)) + "]"
    return str(value).lower()  # `repr` of numpy's numbers is no TOML.
