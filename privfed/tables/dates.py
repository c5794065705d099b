"""Reads days as files write them: a text is a day only if that day, written in the same format, is that text.

A leading zero of a day or month may be missing, and months may be in capitals, in Danish or in German. The
time of day and the offset from UTC are left out: a day is the one that stands in the file.
"""

from __future__ import annotations

import datetime
import re
from itertools import product
from typing import Final

import polars as pl

_ORDERS: Final = (
    "%Y-%m-%d",
    "%d.%m.%Y",
    "%d-%m-%Y",
    "%d/%m/%Y",
    "%m/%d/%Y",
    "%m-%d-%Y",
    "%Y/%m/%d",
    "%Y.%m.%d",
)
_WORDS: Final = (
    "%d%b%Y",
    "%d-%b-%Y",
    "%d %b %Y",
    "%b %d %Y",
    "%b %d, %Y",
    "%d. %b %Y",
)
_SHORT: Final = tuple(one.replace("%Y", "%y") for one in (*_ORDERS, *_WORDS))
_MONTHLY: Final = ("%Y-%m", "%Y/%m", "%m/%Y", "%b %Y", "%b-%Y")
_DAYS: Final = (*_ORDERS, "%Y%m%d", *_WORDS, *_SHORT, *_MONTHLY)
_CLOCKS: Final = ("%H:%M", "%H:%M:%S%.f", "%I:%M %p", "%I:%M:%S %p")
_TIMES: Final = tuple(map("".join, product((" ", "T", ":"), _CLOCKS, ("", "%#z"))))
_TIME: Final = r"[T: ]\d{1,2}:\d\d.*$"
_NAMES: Final = (
    "januar january januari janvier jan",
    "februar february februari février feb",
    "marts märz march mars mär mrz mar",
    "april avril apr",
    "maj mai may",
    "juni june juin jun",
    "juli july juillet jul",
    "augusti august août aug",
    "september septembre sept sep",
    "oktober october octobre okt oct",
    "november novembre nov",
    "desember december dezember décembre des dez dec",
)
"""Months in the languages of exports; the last one is what is read."""
_MONTHS: Final = {
    one + dot: names.split()[-1]
    for names in _NAMES
    for one in sorted(names.split(), key=len, reverse=True)
    for dot in (".", "")
}


def is_short(form: str) -> bool:
    """Say whether a format has years of two digits."""
    return re.search("%[-_0]?[yDxgC]", form) is not None


def days_in(text: pl.Series, form: str, pivot: int | None = None) -> pl.Series:
    """Return the days that texts are in a format; null where one is none.

    Args:
        text: what stands in the file.
        form: how days are written, as chrono's strftime says it. A month without a day is its first day.
        pivot: first of the hundred years that two digits may mean; without it, such a text is none.
    """
    if is_short(form) and pivot is None:
        return pl.Series(text.name, [None] * len(text), dtype=pl.Date)
    if re.search("%[bB]", form):
        text, form = (
            text.str.to_lowercase().str.replace_many(_MONTHS, leftmost=True),
            form.replace("%B", "%b"),
        )
    if re.search("%[-_0]?[dejDFxvcs]", form) is None:
        text, form = text + " 01", f"{form} %d"
    found, day = text.str.to_date(form, strict=False), re.sub("[T: ]%[HI].*$", "", form)
    try:
        written = found.dt.to_string(day)
    except pl.exceptions.PolarsError:  # It has what no day has, such as a zone.
        return found.clear(len(found))
    same = _plain(written) == _plain(text if day == form else text.str.replace(_TIME, ""))
    if is_short(form) and pivot is not None:
        found = (
            (pivot + (found.dt.year() - pivot) % 100).cast(pl.String) + found.dt.to_string("-%m-%d")
        ).str.to_date("%Y-%m-%d", strict=False)
    return pl.select(pl.when(same).then(found)).to_series()


def _plain(text: pl.Series) -> pl.Series:
    """Return texts without what two spellings of one day may differ in."""
    return text.str.to_lowercase().str.replace_all(r"(^|[^0-9])[0 ]?([0-9])", "${1}${2}")


def is_format(form: str) -> bool:
    """Say whether days that are written in a format can be read back."""
    try:
        text = pl.Series([datetime.datetime(2004, 2, 29)]).dt.to_string(re.sub("%#?z", "Z", form))
    except pl.exceptions.PolarsError:
        return False
    return days_in(text, form, 2000)[0] in (datetime.date(2004, 2, 29), datetime.date(2004, 2, 1))


def formats_of(text: pl.Series, pivot: int = 2000) -> list[str]:
    """Return the formats in which nearly all of some texts are days."""
    few, times = text.head(20), text.str.contains(_TIME).all()
    found = [one for one in _DAYS if _nearly(days_in(few.str.replace(_TIME, ""), one, pivot))]
    found = (
        [one + time for one in found for time in _TIMES if _nearly(days_in(few, one + time, pivot))]
        if times
        else found
    )
    return [one for one in found if _nearly(days_in(text, one, pivot))]


def _nearly(days: pl.Series) -> bool:
    return len(days) > 0 and days.null_count() <= 0.05 * len(days)
