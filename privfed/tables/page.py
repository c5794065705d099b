"""One page on what the clusters of a run are, for people who sign it: HTML by itself, which prints well."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any, Final, NamedTuple

from privfed.cli.result import claim_from
from privfed.cli.run_folder import Run
from privfed.metrics.profiles import Profiles
from privfed.privacy.claim import facts_of, one_line
from privfed.tables.checking import Check
from privfed.tables.profiled import Line, apart_lines
from privfed.tables.schema import DATE, Schema
from privfed.version import __version__

_WORKS: Final = {
    "dwf": (
        "dynamically weighted federated k-means",
        "Holzer, Jacob and Kavane. Dynamically Weighted Federated k-Means. 2023.",
    ),
    "ewf": (
        "equally weighted federated k-means",
        "Holzer, Jacob and Kavane. Dynamically Weighted Federated k-Means. 2023.",
    ),
    "lloyd": (
        "k-means",
        "Lloyd. Least Squares Quantization in PCM. IEEE Trans. Information Theory 28, 1982.",
    ),
    "minibatch": (
        "federated mini-batch k-means",
        "Triebe and Rajagopal. Federated K-Means: Clustering Algorithm and Proof of Concept. 2019.",
    ),
    "fkm": ("FKM", "Garst and Reinders. Federated K-Means Clustering. arXiv:2310.01195, 2024."),
    "kfed": (
        "k-FED",
        "Dennis, Li and Smith. Heterogeneity for the Win: One-Shot Federated Clustering. ICML 2021.",
    ),
    "fuzzy": (
        "federated fuzzy c-means",
        "Stallmann and Wilbik. On a Framework for Federated Cluster Analysis. Appl. Sci. 12, 2022.",
    ),
    "dp": (
        "k-means under differential privacy",
        "Dong, Roth and Su. Gaussian Differential Privacy. J. R. Stat. Soc. B 84, 2022.",
    ),
    "masked": (
        "masked secure sums",
        "Bonawitz et al. Practical Secure Aggregation for Privacy-Preserving Machine Learning. 2017.",
    ),
    "ckks": (
        "sums under homomorphic encryption (CKKS)",
        "Cheon, Kim, Kim and Song. Homomorphic Encryption for Arithmetic of Approximate Numbers. 2017.",
    ),
    "category": (
        "",
        "Gower. A General Coefficient of Similarity and Some of Its Properties. Biometrics 27, 1971.",
    ),
    "survival": (
        "",
        "Kaplan and Meier. Nonparametric Estimation from Incomplete Observations. J. Am. Stat. Assoc. 53, "
        "1958. Mantel. Evaluation of Survival Data and Two New Rank Order Statistics. Cancer Chemother. Rep. "
        "50, 1966.",
    ),
    "between": (
        "",
        "Austin. Balance Diagnostics for Comparing the Distribution of Baseline Covariates. Statistics in "
        "Medicine 28, 2009. Yang and Dalton. A Unified Approach to Measuring the Effect Size Between Two "
        "Groups Using SAS. SAS Global Forum, 2012.",
    ),
}
"""What methods are called in a paper, and the works that describe them."""

_SHORT: Final = ("differential privacy", "protected", "against readers of the model")
_TIED: Final = "\u00a0"
_STYLE: Final = """
:root { color-scheme: light dark; --text: #1a1a1a; --page: #fff; --faint: #555; --rule: #ddd }
@media (prefers-color-scheme: dark) {
  :root { --text: #e4e4e4; --page: #161616; --faint: #aaa; --rule: #444 } }
body { font: 15px/1.5 Georgia, serif; color: var(--text); background: var(--page); max-width: 72rem;
  margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.6rem; margin: 0 0 .3rem } h2 { font-size: 1.1rem; margin: 1.6rem 0 .3rem }
.wide { overflow-x: auto } table { border-collapse: collapse; font: 13px/1.35 sans-serif; width: 100% }
th, td { padding: .28rem .55rem; text-align: right; border-bottom: 1px solid var(--rule) }
th:first-child, td:first-child { text-align: left } td:nth-child(n + 2) { min-width: 5.6rem }
thead th { border-bottom: 2px solid var(--text) }
td small { display: block; color: var(--faint); font-size: .78em }
p, li { max-width: 46rem } .note { color: var(--faint) }
figure { background: #fff; margin: 0; max-width: 34rem } figure svg { width: 100%; height: auto }
@media print { body { margin: 0; max-width: none; font-size: 10pt } table { font-size: 8pt; width: 100% }
  th, td { padding: .15rem .3rem } tr, figure { break-inside: avoid } .wide { overflow: visible } }
@page { margin: 15mm }
"""


class Facts(NamedTuple):
    """What a page is made of: `result.json` in the columns' units, the run, and what became of rows.

    `known` is the exact profile, None where noised totals were released; `checked` is None where nobody may
    say what became of the rows; `between` has standardised differences, or nothing.
    """

    result: Any
    run: Run
    schema: Schema | None
    known: Profiles | None
    checked: Check | None
    between: dict[str, float]
    curves: str = ""


def page(facts: Facts, lines: Sequence[Line], head: Sequence[str], what: str, title: str) -> str:
    """Return the page.

    Args:
        facts: what is known of the run.
        lines: of the profile.
        head: heads of its columns.
        what: says what the figures are.
        title: of the page.
    """
    checked, known = facts.checked, facts.known
    share = (
        {}
        if checked is None
        else {name: f"{n / max(checked.rows, 1):.1%}" for name, n in checked.changed.items()}
    )
    heads = "".join(f"<th>{escape(one)}</th>" for one in [*head, *["not as written"] * bool(share)])
    body = "".join(
        f"<tr><td>{escape(one.name)}</td>{_cells(one)}"
        f"{''.join(f'<td>{escape(text)}</td>' for text in (one.all, *one.between))}"
        f"{f'<td>{share.get(one.column) or str()}</td>' if share else ''}</tr>"
        for one in lines
    )
    apart = [] if known is None else apart_lines(known, facts.result.columns, facts.schema, head[1:-1])
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body><h1>{escape(title)}</h1>"
        f"<h2>Who is in it</h2>{_listed(_who(facts))}"
        f"<h2>The clusters</h2>{_listed(apart)}"
        f'<div class="wide"><table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>'
        f'<p class="note">{escape(_legend(what, facts))}</p>'
        f"{f'<h2>Survival</h2><figure>{facts.curves}</figure>' if facts.curves else ''}"
        f"<h2>What was protected, and from whom</h2><p>{escape(_protected(facts.result))}</p>"
        f"<h2>Methods</h2><p>{escape(_methods(facts))}</p>{_listed(_references(facts))}</body></html>\n"
    )


def _cells(line: Line) -> str:
    return "".join(
        f'<td style="background: rgba({"178,60,40" if d > 0 else "40,90,170"},{min(abs(d) / 4, 0.4):.2f})">'
        f"{escape(one if len(one) > 20 else one.replace(' ', _TIED))}"
        f"{f'<small>{round(d, 1) + 0.0:+.1f}</small>' if line.apart and one else ''}</td>"
        for one, d in zip(line.cells, line.apart or (0.0,) * len(line.cells), strict=True)
    )


def _listed(lines: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{escape(one)}</li>' for one in lines)}</ul>" if lines else ""


def _who(facts: Facts) -> list[str]:
    """Return who is in the clusters, and who is not and why."""
    result, checked = facts.result, facts.checked
    of = {} if facts.schema is None else {a: b for a, b in facts.schema.columns.items() if b.is_feature}
    days = {} if checked is None else {name: f"days from {a} to {b}" for name, (a, b) in checked.days.items()}
    left = ", ".join(name for name, own in of.items() if own.missing == "leave-out")
    guessed = ", ".join(name for name, own in of.items() if own.guessed)
    lost = "" if checked is None else f"{checked.left_out:,} of {checked.rows:,} rows are left out"
    said = [
        f"{len(result.clients)} sites ({', '.join(result.clients)}) with "
        f"{'a number of rows that was not asked' if result.rows is None else f'{result.rows:,.0f} rows'}.",
        "" if of else "No schema says what the columns mean, so that figures have no units.",
        *(
            f"{name}: {days.get(name) or f'days are declared from {own.low} to {own.high}'}."
            for name, own in of.items()
            if own.kind == DATE and (name in days or own.low is not None)
        ),
        left and f"Rows without a value in {left} are left out.",
        lost and f"{lost}, counted in the tables at hand.",
        "How many rows are left out is not said: under differential privacy that would tell of rows."
        if result.privacy is not None
        else "",
        guessed and f"Nobody has confirmed what a draft guessed of {guessed}.",
    ]
    return [one for one in said if one]


def _legend(what: str, facts: Facts) -> str:
    """Return what the figures of the table are."""
    exact = "Below each is its difference from all rows in standard deviations, which colours the cell."
    if facts.between:
        exact += (
            " Between: standardised difference of two clusters (Austin 2009; of categories Yang and Dalton "
            "2012), in the mean over all pairs. These columns found the clusters, so that it tests nothing."
        )
    noised = "Noise was added to sizes and means, and the intervals say what it leaves open."
    read = (
        "Not as written: share of rows with this value missing, filled, clipped or a bound. Filled ones make"
    )
    return (
        f"Figures are {what}, of {facts.result.of}; categories are percent. "
        f"{noised if facts.known is None else exact}"
        f"{'' if facts.checked is None else f' {read} spreads smaller.'}"
    )


def _protected(result: Any) -> str:
    """Return what was protected from whom, in two sentences."""
    claim = "; ".join(
        f"{name}: {one}" for name, one in facts_of(claim_from(result.privacy)).items() if name in _SHORT
    )
    return (
        f"The server saw {result.server_saw}. "
        + (
            "No differential privacy is claimed, so that totals and this page can reveal rows."
            if result.privacy is None
            else f"Of what was released this is claimed: {claim}."
        )
        + "".join(
            f" A profile has a claim of its own: {one_line(claim_from(one))}." for one in claims_of(result)
        )
    )


def claims_of(result: Any) -> list[dict[str, Any]]:
    """Return what is claimed of profiles that were asked with noise of their own, as `result.json` has it."""
    each = (result.profile, result.beside and result.beside["profile"])
    return [one["claim"] for one in each if one and "claim" in one]


def _methods(facts: Facts) -> str:
    """Return a paragraph for the methods of a paper."""
    result, schema = facts.result, facts.schema
    rounds = "round" if result.n_iter == 1 else "rounds"
    scale = "not scaled" if result.scaling is None else f"scaled over all sites ({result.scaling['kind']})"
    scale = "mapped to [0, 1] by declared ranges" if schema is not None and schema.scale == "range" else scale
    asked = "Sizes, means and spreads of the clusters are secure sums over all sites, asked after the fit."
    noised = "Sizes and means are those of the noised totals of the fit."
    return (
        f"Rows of {len(result.clients)} sites were clustered into {len(result.centroids)} clusters by "
        f"{_WORKS.get(result.algorithm, (result.algorithm,))[0]}, in {result.n_iter} {rounds}"
        f"{'' if result.converged else ', without converging'}. "
        f"Columns were {scale}{', and each category is its own column' if schema and schema.blocks else ''}. "
        f"Sites answered by {_WORKS.get(result.protocol, (result.protocol,))[0]} and kept rows. "
        f"{noised if facts.known is None else asked} The program was privfed {__version__}, "
        f"with seed {facts.run.parameters.values.get('random_state', 0)}."
    )


def _references(facts: Facts) -> list[str]:
    """Return the works that the methods rest on."""
    protocol = "masked" if "masked" in facts.result.protocol else facts.result.protocol
    used = (facts.result.algorithm, protocol, "category" if facts.schema and facts.schema.blocks else "")
    return [
        _WORKS[one][1]
        for one in (*used, "between" * bool(facts.between), "survival" * bool(facts.curves))
        if one in _WORKS
    ]
