"""A verifier in whole numbers of Python, as docs/protocols/valid.md has it: nothing of the product is in it.

It evaluates polynomials by Horner's rule and by Lagrange's formula where the product transforms, and weighs
every slot of every row on its own where the product groups rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256, shake_256
from itertools import chain, pairwise

P = 2**64 - 2**32 + 1
COLUMNS, RATE = 190, 8


def bound(tag: str, *parts: bytes | int) -> bytes:
    found = tag.encode().ljust(16, b"\0")
    for one in parts:
        found += one.to_bytes(8, "big") if isinstance(one, int) else len(one).to_bytes(8, "big") + one
    return found


def hashed(tag: str, *parts: bytes | int) -> bytes:
    return sha256(bound(tag, *parts)).digest()


def stream(seed: bytes, n: int) -> list[int]:
    """Return the first n words of SHAKE256 that are below p."""
    data = shake_256(seed).digest(8 * (n + 64))
    words = [int.from_bytes(data[at : at + 8], "little") for at in range(0, len(data), 8)]
    return [word for word in words if word < P][:n]


def listed(values: list[int]) -> bytes:
    return b"".join((one % 2**64).to_bytes(8, "little") for one in values)


@dataclass
class Stated:
    """A statement: `forms` are (digit -> coefficient, low, high), whose ends are drawn in already."""

    clients: int
    low: list[int]
    high: list[int]
    forms: list[tuple[dict[int, int], int, int]]

    @property
    def functionals(self) -> int:
        return max(8, (self.clients + 128 + 63) // 64)

    def digest(self) -> bytes:
        terms = [(q, i, a) for q, (one, _, _) in enumerate(self.forms) for i, a in one.items()]
        columns = [list(one) for one in zip(*terms, strict=True)] or [[], [], []]
        ends = [[low for _, low, _ in self.forms], [high for _, _, high in self.forms]]
        parts = self.low, self.high, *columns, *ends
        return hashed("valid statement", self.clients, *map(listed, parts))

    def implied(self) -> list[int]:
        """Return the digits whose range follows from forms in which their coefficient is 1 or -1."""
        found = []
        for i, (low, high) in enumerate(zip(self.low, self.high, strict=True)):
            least, most = -(2**63), 2**63
            for terms, start, stop in self.forms:
                sign = terms.get(i)
                if sign not in (1, -1):
                    continue
                rest = [sorted((a * self.low[j], a * self.high[j])) for j, a in terms.items() if j != i]
                a, b = start - sum(one[1] for one in rest), stop - sum(one[0] for one in rest)
                a, b = (a, b) if sign == 1 else (-b, -a)
                least, most = max(least, a), min(most, b)
            if low <= least and most <= high:
                found.append(i)
        together = [set(terms) & set(found) for terms, _, _ in self.forms]
        return [i for i in found if not any(i in one and len(one) > 1 for one in together)]


class Table:
    """Rows of the witness: what each slot of each row weighs, of which variable."""

    def __init__(self, stated: Stated) -> None:
        self.implied = stated.implied()
        own = [i for i in range(len(stated.low)) if i not in self.implied]
        ranges = [stated.high[i] - stated.low[i] for i in own] + [b - a for _, a, b in stated.forms]
        values = [("pad", h) for h in range(stated.functionals)] + [("digit", i) for i in self.implied]
        names = [("digit", i) for i in own] + [("form", q) for q in range(len(stated.forms))]
        items = [(name, most) for name, most in zip(names, ranges, strict=True) if most]
        items.sort(key=lambda one: -one[1].bit_length())
        self.own, sizes = own, {}
        for k in (1 << e for e in range(9, 15)):
            slots = k - COLUMNS
            rows = -(-len(values) // slots) + sum(one.bit_length() for _, one in items[::slots])
            hashes = sum(min(COLUMNS, 2**i) for i in range((RATE * k).bit_length() - 1))
            sizes[k] = 8 * k * 11 + 8 * COLUMNS * rows + 32 * hashes
        self.k = min(sizes, key=lambda k: sizes[k])
        self.slots = self.k - COLUMNS
        self.rows: list[list[tuple[object, int]]] = []
        for at in range(0, len(values), self.slots):
            self.rows.append([(one, 1) for one in values[at : at + self.slots]])
        self.n_values = len(self.rows)
        for at in range(0, len(items), self.slots):
            part = items[at : at + self.slots]
            for bit in range(part[0][1].bit_length() - 1):
                weights = [(name, 1 << bit if most.bit_length() - 1 > bit else 0) for name, most in part]
                self.rows.append(weights)
            below = [(name, most - (2 ** (most.bit_length() - 1) - 1)) for name, most in part]
            self.rows.append(below)


def horner(coefficients: list[int], x: int) -> int:
    value = 0
    for one in reversed(coefficients):
        value = (value * x + one) % P
    return value


def holds(stated: Stated, root: bytes, context: bytes, sigma: bytes, proof: bytes) -> list[int]:
    """Return v of a proof; an AssertionError says that it does not hold."""
    table = Table(stated)
    k, slots, m = table.k, table.slots, len(table.rows)
    n = RATE * k
    counts = [stated.functionals, *[k] * 3, *[2 * k] * 4, COLUMNS * (m + 7)]
    ends = [0]
    for one in counts:
        ends.append(ends[-1] + 8 * one)
    v, *polynomials, flat = [
        [int.from_bytes(proof[at : at + 8], "little") for at in range(a, b, 8)] for a, b in pairwise(ends)
    ]
    assert all(one < P for part in (v, *polynomials, flat) for one in part)
    shown = [flat[at : at + m + 7] for at in range(0, len(flat), m + 7)]
    salts = [proof[at : at + 32] for at in range(ends[-1], ends[-1] + 32 * COLUMNS, 32)]
    hashes = proof[ends[-1] + 32 * COLUMNS :]

    # Challenges.
    first = hashed("valid challenge", stated.digest(), context, sigma, root)
    code = stream(hashed("valid code", first), 3 * m)
    quadratic = stream(hashed("valid bits", first), 2 * (m - table.n_values))
    seed = hashed("valid answer", first, listed(v))
    width = stated.functionals + len(stated.forms)
    each = stream(seed, 2 * width)
    answer = [[*chain(*polynomials[a:b])] for a, b in ((0, 3), (3, 5), (5, 7))]
    data = shake_256(hashed("valid columns", seed, *map(listed, answer))).digest(4 * COLUMNS * 64)
    places: list[int] = []
    for at in range(0, len(data), 4):
        place = int.from_bytes(data[at : at + 4], "little") % n
        if place not in places and len(places) < COLUMNS:
            places.append(place)
    places.sort()

    # The tree.
    level = {
        place: sha256(salt + listed(column)).digest()
        for place, salt, column in zip(places, salts, shown, strict=True)
    }
    for _ in range(n.bit_length() - 1):
        for place in sorted({one ^ 1 for one in level} - set(level)):
            level[place], hashes = hashes[:32], hashes[32:]
        level = {
            one // 2: sha256(b"node" + level[one] + level[one + 1]).digest() for one in level if one % 2 == 0
        }
    assert level == {0: root} and not hashes

    # What each variable weighs in the two linear tests, and what these come to.
    n_digits = len(stated.low)
    factors = stream(hashed("valid functional", sigma), stated.functionals * n_digits)
    functional = [factors[at : at + n_digits] for at in range(0, len(factors), n_digits)]
    weights, sums = [], []
    for each_of in (each[:width], each[width:]):
        of: dict[object, int] = {("pad", h): one for h, one in enumerate(each_of[: stated.functionals])}
        right = sum(g * one for g, one in zip(each_of, v, strict=False))
        for i, low in enumerate(stated.low):
            weight = sum(g * one[i] for g, one in zip(each_of, functional, strict=False))
            weight += sum(
                g * form[0].get(i, 0)
                for g, form in zip(each_of[stated.functionals :], stated.forms, strict=True)
            )
            of["digit", i] = weight % P
            right -= 0 if i in table.implied else weight * low
        for q, (g, (_, low, _)) in enumerate(zip(each_of[stated.functionals :], stated.forms, strict=True)):
            of["form", q] = -g % P
            right += g * low
        weights.append(of)
        sums.append(right % P)

    # Columns. Place a k + s is the point 7 w^a z^s', with s' the bits of s reversed.
    z, w = pow(7, (P - 1) // k, P), pow(7, (P - 1) // n, P)
    bits = k.bit_length() - 1
    points = [pow(z, int(f"{s:0{bits}b}"[::-1], 2), P) for s in range(k)]
    for place, column in zip(places, shown, strict=True):
        x = 7 * pow(w, place // k, P) * points[place % k] % P
        front = (pow(x, k, P) - 1) * pow(k, -1, P) % P
        lagrange = [front * y * pow(x - y, -1, P) % P for y in points[:slots]]
        rows, blinds = column[:m], column[m:]
        for test in range(3):
            made = sum(r * one for r, one in zip(code[test * m : (test + 1) * m], rows, strict=True))
            assert horner(polynomials[test], x) == (made + blinds[test]) % P, "code"
        for test in range(2):
            made = blinds[3 + test]
            for value, slotted in zip(rows, table.rows, strict=True):
                factor = sum(
                    weight * weights[test][name] * at
                    for (name, weight), at in zip(slotted, lagrange, strict=False)
                )
                made += value * factor
            assert horner(polynomials[3 + test], x) == made % P, "linear"
            own = quadratic[test * (m - table.n_values) : (test + 1) * (m - table.n_values)]
            made = sum(r * b * (b - 1) for r, b in zip(own, rows[table.n_values :], strict=True))
            assert horner(polynomials[5 + test], x) == (made + blinds[5 + test]) % P, "quadratic"

    for test in range(2):
        assert sum(horner(polynomials[3 + test], y) for y in points) % P == sums[test], "linear"
        assert not any(horner(polynomials[5 + test], y) for y in points[:slots]), "quadratic"
    return v
