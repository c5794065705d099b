"""Makes one schema of the drafts of several sites: pairs of names, categories and units, and what is open.

A pair is a proposal. It stands in the merged schema, is said in one line, and stays marked (`Column.guessed`)
until someone takes the mark out. What no rule decides is a conflict (`Column.conflicts`), and no table is
read before it is settled. Names and categories alone are compared: drafts hold no counts.
"""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec.structs import asdict, replace

from privfed.core.values.origin import joined
from privfed.errors import ArgumentError
from privfed.tables.schema import CATEGORY, DATE, ERROR, ID, NUMBER, Column, File, Schema

_SAME: Final = tuple(
    frozenset(one.split())
    for one in (
        "age alder alter alterinjahren ageyears",
        "sex gender køn koen geschlecht kon",
        "height højde hoejde größe groesse",
        "weight vægt vaegt gewicht bodyweight kropsvægt körpergewicht",
        "ward afdeling station abteilung department dept klinik",
        "smoker smoking ryger rygning raucher rauchen smokingstatus rygestatus",
        "diagnosis diagnose dx",
        "glucose glukose blodsukker blutzucker bloodglucose",
        "creatinine kreatinin creatinin serumcreatinine",
        "cholesterol kolesterol cholesterin",
        "hemoglobin haemoglobin hæmoglobin hb hgb",
        "temperature temp temperatur bodytemperature kropstemperatur körpertemperatur",
        "pulse puls heartrate hr herzfrequenz hjertefrekvens",
        "systolicbp sbp systolisk systolic systolisch systolischerblutdruck systolicbloodpressure",
        "diastolicbp dbp diastolisk diastolic diastolisch diastolicbloodpressure",
        "sodium natrium",
        "potassium kalium",
        "platelets plt thrombocytes trombocytter thrombozyten",
        "leukocytes wbc leukocytter leukozyten",
        "hypertension bluthochdruck forhøjetblodtryk",
        "stay los lengthofstay liggetid verweildauer liegedauer",
        "admitted admission admit indlagt indlæggelse indlæggelsesdato aufnahme aufnahmedatum admissiondate",
        "discharged discharge dischargedate udskrevet udskrivelse entlassung entlassungsdatum",
        "born birth birthdate dateofbirth dob fødselsdato fødselsdag geburtsdatum geburtstag",
        "male m man mand mann männlich maennlich",
        "female f w k woman kvinde frau weiblich",
        "yes y j ja true",
        "no n nej nein false",
        "unknown ukendt unbekannt",
        "never aldrig nie",
        "former tidligere ehemals ehemalig ex",
        "current nuværende aktuell",
        "mild let leicht",
        "moderate moderat mäßig mittel",
        "severe svær schwer",
        "surgery surg kirurgi chirurgie surgical",
        "medicine med medicin medizin innere medical",
        "cardiology card heart kardiologi kardiologie kard hjerte herz",
        "oncology onc onkologi onkologie onk",
        "neurology neuro neurologi neurologie",
        "orthopedics orthopaedics ortho ortopædi ortopædkirurgi orthopädie",
        "gastroenterology gastro gastroenterologi gastroenterologie",
        "pediatrics paediatrics pædiatri børneafdeling kinderheilkunde pädiatrie",
    )
)
"""Words that mean the same in English, Danish and German tables, as `_plain` writes them or with accents."""

_FILLING: Final = (
    r"(?i)(?<![^\W_])(date|dato|datum|of|the|patients?)(?![^\W_])[\W_]*|[\W_]+(date|dato|datum)$"
)
_BY_COLUMN: Final = ("units", "dates", "values")
_GLUCOSE, _HB, _TEMP = (
    "glu[ck]|zucker|sukker",
    "h[aæ]?e?moglobin|(^|[^a-z])(hb(?!a1c)|hgb)",
    "(?<!at)temp|fieber",
)
_WEIGHT, _HEIGHT = "weight|vægt|vaegt|gewicht|^wt$", "height|højde|hoejde|größe|groesse"
UNITS: Final = (
    (_TEMP, "°F", "°C", 5 / 9, -160 / 9, 35.5, 39.0),
    (_TEMP, "K", "°C", 1.0, -273.15, 35.5, 39.0),
    ("a1c", "%", "mmol/mol", 10.929, -23.5, 28.0, 90.0),
    (_GLUCOSE, "mg/dl", "mmol/l", 1 / 18.016, 0.0, 3.5, 16.0),
    ("chol(?!in)|kolest", "mg/dl", "mmol/l", 1 / 38.67, 0.0, 2.5, 8.0),
    ("trigly", "mg/dl", "mmol/l", 1 / 88.57, 0.0, 0.6, 4.0),
    ("[ck]reat", "mg/dl", "µmol/l", 88.42, 0.0, 40.0, 250.0),
    ("bilir", "mg/dl", "µmol/l", 17.1, 0.0, 4.0, 40.0),
    (_HB, "g/dl", "mmol/l", 0.6206, 0.0, 6.4, 10.2),
    (_HB, "g/l", "mmol/l", 0.06206, 0.0, 6.4, 10.2),
    (_WEIGHT, "lb", "kg", 0.45359, 0.0, 60.0, 100.0),
    (_HEIGHT, "in", "cm", 2.54, 0.0, 145.0, 190.0),
    (_HEIGHT, "m", "cm", 100.0, 0.0, 145.0, 190.0),
    ("", "g/dl", "g/l", 10.0, 0.0),
    ("", "lb", "kg", 0.45359, 0.0),
    ("", "lbs", "kg", 0.45359, 0.0),
    ("", "in", "cm", 2.54, 0.0),
    ("", "m", "cm", 100.0, 0.0),
    ("", "mm", "cm", 0.1, 0.0),
    ("", "g", "kg", 0.001, 0.0),
    ("", "mmhg", "kpa", 0.13332, 0.0),
    ("", "months", "years", 1 / 12, 0.0),
    ("", "days", "years", 1 / 365.25, 0.0),
)
"""What a column's name says, two usual units of it, and the factor that makes the second of the first; what
is added then; and between which ends a median of many patients lies in the second, where that tells it."""

Conversion = tuple[float, float]
"""The factor that makes one unit of another, and what is added then."""


def inverse(given: Conversion) -> Conversion:
    """Return the conversion back."""
    return 1.0 / given[0], 0.0 - given[1] / given[0]


def conversion_of(name: str, of: str, to: str) -> Conversion | None:
    """Return what makes one unit of another in a column of this name; None for no usual one."""
    if _bare(of) == _bare(to):
        return 1.0, 0.0
    for pattern, first, second, *given in UNITS:
        if {_bare(of), _bare(to)} == {_bare(first), _bare(second)} and re.search(pattern, name.casefold()):
            return (given[0], given[1]) if _bare(of) == _bare(first) else inverse((given[0], given[1]))
    return None


def usual_unit(name: str, median: float) -> str | None:
    """Return the one unit in which a median of many patients is usual for what a column's name says."""
    found = {
        unit
        for pattern, first, second, factor, offset, *ends in UNITS
        for unit, value in ((first, median * factor + offset), (second, median))
        if ends and re.search(pattern, name.casefold()) and ends[0] <= value <= ends[1]
    }
    return found.pop() if len(found) == 1 else None


def _bare(unit: str) -> str:
    """Return a unit in one spelling: degrees are written as °F, deg F and Fahrenheit."""
    text = unit.casefold().replace("μ", "µ")
    return re.sub(r"[ °]|^deg(rees?)?|(?<=f)ahrenheit$|(?<=c)elsius$|(?<=k)elvin$", "", text)


def in_unit(own: Column, unit: str, given: Conversion) -> Column:
    """Return a column of numbers in another unit."""
    factor, offset = given

    def to(value: Any) -> Any:
        return value * factor + offset if isinstance(value, int | float) else value

    units = {one: own.conversion(one) for one in own.units if one != unit}
    known = {one: (a * factor, to(b)) for one, (a, b) in units.items()} | {str(own.unit): given}
    return replace(
        own,
        unit=unit,
        units={one: both if both[1] else both[0] for one, both in known.items()},
        **{key: to(value) for key, value in asdict(own).items() if key in ("low", "high", "missing")},
        # Without these a column is not scaled.
        **(
            {"shift": to(own.shift), "spread": own.spread * factor}
            if (own.shift, own.spread) != (0.0, 1.0)
            else {}
        ),
    )


def pairs_of(own: Sequence[str], known: Sequence[str], *, names: bool = False) -> dict[str, str]:
    """Return which of some texts mean which known ones; a text that both have is no pair.

    Args:
        own: names or categories of one site.
        known: those of the others.
        names: whether they name columns: no two then mean one, and beginnings have four letters or more.
    """
    found, plain = dict[str, str](), {one: _plain(one) for one in (*own, *known)}
    for rule in (_equal, _near, lambda a, b: _begins(a, b, 4 if names else 1)):
        for one in own:
            taken = {*own, *found.values()} if names or rule is not _equal else ()
            free = [other for other in known if other not in taken]
            fits = [other for other in free if rule(plain[one], plain[other])]
            if one not in known and one not in found and len(fits) == 1:
                found[one] = fits[0]
    return found


def _plain(text: str) -> str:
    """Return a text without case, accents, blanks, signs, and words that a name may have or lack."""
    text = re.sub(_FILLING, "", text) or text
    for sign, letters in (("ø", "oe"), ("æ", "ae"), ("å", "aa")):
        text = text.casefold().replace(sign, letters)
    return "".join(one for one in unicodedata.normalize("NFKD", text) if one.isalnum())


def _equal(a: str, b: str) -> bool:
    return a == b != "" or not _GROUPS.get(a, set()).isdisjoint(_GROUPS.get(b, set()))


_WORDS: Final = [{*map(_plain, words)} for words in _SAME]
_GROUPS: Final = {one: {i for i, words in enumerate(_WORDS) if one in words} for one in set().union(*_WORDS)}


def _near(a: str, b: str) -> bool:
    """Say whether words without digits differ in little, and not as hypo and hyper do."""
    if not (a.isalpha() and b.isalpha()) or ("hypo" in a) != ("hypo" in b):
        return False
    return difflib.SequenceMatcher(None, a, b).ratio() >= 0.8


def _begins(a: str, b: str, shortest: int) -> bool:
    return (
        a.isalpha()
        and b.isalpha()
        and min(len(a), len(b)) >= shortest
        and (a.startswith(b) or b.startswith(a))
    )


def merge(schemas: Sequence[tuple[str, Schema]], *, common: bool = False) -> tuple[Schema, list[str]]:
    """Return one schema of those of several sites, and what was guessed and is left to settle, in lines.

    Args:
        schemas: name of each schema's file, which is its table's where it names none; and the schema.
        common: whether columns that not all sites have are left out.

    Raises:
        ArgumentError: there are fewer than two, their scales differ, or one file is written in two ways.
    """
    if len(schemas) < 2:
        raise ArgumentError("one schema alone is merged with nothing; name two files or more.")
    (first, whole), *others = schemas
    said, has, columns, files = list[str](), {first: {*whole.columns}}, dict(whole.columns), dict(whole.files)
    for site, one in others:
        if one.scale != whole.scale:
            raise ArgumentError(
                f"the schemas differ in scale: {whole.scale!r} and {one.scale!r}; agree on one."
            )
        renamed, own_files = _renamed(site, one, columns, said)
        has[site] = {*renamed}
        for name, own in renamed.items():
            columns[name] = (
                _Pair(site, name, own_files, said).of(columns[name], own) if name in columns else own
            )
        for name in files.keys() & own_files.keys():
            if files[name] != own_files[name]:
                raise ArgumentError(f"the schemas differ in file {name!r}; agree on how it is written.")
        files |= own_files
    for name, own in list(columns.items()):
        without = [site for site in has if name not in has[site]]
        if without and common:
            del columns[name]
            said.append(f"column {name!r} is left out: it is not in {', '.join(without)}.")
        elif without and own.is_feature:
            columns[name] = replace(
                own,
                conflicts=(
                    *own.conflicts,
                    f"it is not in {', '.join(without)}: name it there (names), or take it out",
                ),
            )
    for name, file in files.items() if common else ():
        kept = {*columns, *file.long.values()}
        files[name] = replace(
            file,
            names={a: b for a, b in file.names.items() if b in kept},
            **{key: {one: v for one, v in asdict(file)[key].items() if one in kept} for key in _BY_COLUMN},
        )
    said += [f"column {name!r}: {one}." for name, own in columns.items() for one in own.conflicts]
    return Schema(scale=whole.scale, columns=columns, files=files), said


def _renamed(
    site: str, one: Schema, known: Mapping[str, Column], said: list[str]
) -> tuple[dict[str, Column], dict[str, File]]:
    """Return a site's columns and files under the names that the others have."""
    pairs = {
        old: new
        for old, new in pairs_of([*one.columns], [*known], names=True).items()
        if (known[new].kind == DATE) == (one.columns[old].kind == DATE)
    }
    ids = [
        [name for name in a if a[name].kind == ID and name not in b]
        for a, b in ((one.columns, known), (known, one.columns))
    ]
    if len(ids[0]) == len(ids[1]) == 1:
        pairs[ids[0][0]] = ids[1][0]
    said += [f"{site}: column {old!r} is taken for {new!r}." for old, new in pairs.items()]
    columns = {
        pairs.get(name, name): replace(own, guessed=(*own.guessed, "names")) if name in pairs else own
        for name, own in one.columns.items()
    }
    files = {
        name: replace(
            file,
            names={a: pairs.get(b, b) for a, b in file.names.items()}
            | {a: b for a, b in pairs.items() if a not in file.names.values()},
            **{key: {pairs.get(a, a): b for a, b in asdict(file)[key].items()} for key in _BY_COLUMN},
        )
        for name, file in (one.files or {site: File()}).items()
    }
    return columns, files


class _Pair:
    """Merges one column of a site into that of the others, and writes into the site's files what differs."""

    def __init__(self, site: str, name: str, files: dict[str, File], said: list[str]) -> None:
        self._site, self._name, self._files, self._said = site, name, files, said

    def of(self, a: Column, b: Column) -> Column:
        """Return the column of both."""
        conflicts, guessed = [*a.conflicts, *b.conflicts], [*a.guessed, *b.guessed]
        kinds, changed = {a.kind, b.kind}, dict[str, Any]()
        if len(kinds) == 2 and ID in kinds:
            # What is an id at one site is none of the features of the others.
            a, b = (one if one.kind == ID else Column(kind=ID) for one in (a, b))
            guessed.append("kind")
        elif kinds == {NUMBER, CATEGORY} and re.fullmatch("[0-9.]+", "".join((*a.categories, *b.categories))):
            a, b = (one if one.kind == NUMBER else Column(kind=NUMBER) for one in (a, b))
            guessed.append("kind")
        elif len(kinds) == 2:
            conflicts.append(f"it is {a.kind} at some sites and {b.kind} at {self._site}")
            return replace(a, conflicts=tuple(conflicts))
        if a.unit and b.unit and a.unit != b.unit and (given := self._conversion(a, b)) is not None:
            for file, one in self._files.items():
                self._files[file] = replace(one, units={self._name: b.unit} | one.units)
            self._said.append(
                f"{self._site}: {self._name}: {b.unit} times {given[0]:.6g}"
                + (f" plus {given[1]:.6g}" if given[1] else "")
                + f" is {a.unit}."
            )
            b = in_unit(b, a.unit, given)
            guessed.append("units")
        for key, own in asdict(a).items():
            other = asdict(b)[key]
            if key in ("unit", "pivot", "censored") and {own, other} & {None, ERROR}:
                changed[key] = other if own in (None, ERROR) else own
                if key == "unit" and own != other:
                    guessed.append(key)
                    which = f"{self._site} has none" if own else "sites before have none"
                    self._said.append(f"{self._name}: {which}, and is taken to be in {own or other}.")
            elif key == "unit" and own != other:
                conflicts.append(
                    f"its unit is {own!r}, and {other!r} at {self._site}: give units and its factor"
                )
            elif (
                key
                in ("low", "high", "weight", "missing", "outside", "format", "origin", "shift", "spread")
                + (("categories",) if a.kind == "ordinal" else ())
                and own != other
            ):
                if key in ("low", "high") and own is not None and other is not None:
                    changed[key] = (min if key == "low" else max)(own, other)
                else:
                    conflicts.append(f"its {key} is {own!r}, and {other!r} at {self._site}")
        if a.kind == CATEGORY:
            changed["categories"] = self._categories(a, b, guessed, conflicts)
        return replace(
            a,
            **{"units": {**b.units, **a.units}, **changed},
            codes=tuple(dict.fromkeys((*a.codes, *b.codes))),
            provenance=joined(a.provenance, b.provenance),
            guessed=tuple(dict.fromkeys(guessed)),
            conflicts=tuple(conflicts),
        )

    def _conversion(self, a: Column, b: Column) -> Conversion | None:
        """Return what makes the unit of `a` of that of `b`, as one of them says or as is usual."""
        own, other = str(a.unit), str(b.unit)
        if other in a.units:
            return a.conversion(other)
        return inverse(b.conversion(own)) if own in b.units else conversion_of(self._name, other, own)

    def _categories(self, a: Column, b: Column, guessed: list[str], conflicts: list[str]) -> tuple[str, ...]:
        """Return the categories of both, once those that mean the same are one."""
        pairs = pairs_of(b.categories, a.categories)
        alone = [one for one in b.categories if one not in pairs and one not in a.categories]
        for file, one in self._files.items() if pairs else ():
            known = {text: pairs.get(meant, meant) for text, meant in one.values.get(self._name, {}).items()}
            self._files[file] = replace(one, values=one.values | {self._name: known | pairs})
        guessed += ["values"] if pairs else []
        self._said += [
            f"{self._site}: {self._name}: {one!r} is taken for {other!r}." for one, other in pairs.items()
        ]
        if len(alone) == len(b.categories) and a.categories:
            conflicts.append(
                f"say in [files.{self._site}.values] what {', '.join(map(repr, alone))} mean beside "
                f"{', '.join(map(repr, a.categories))}"
            )
            return a.categories
        self._said += [
            f"{self._site}: {self._name}: {one!r} is like no other, and stands by itself." for one in alone
        ]
        return tuple(dict.fromkeys((*a.categories, *alone)))
