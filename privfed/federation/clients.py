"""Conversion of the data that users pass to `fit` into named clients with checked rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import issparse
from sklearn.utils import check_array

from privfed.core.agreed.policy import ClientPolicy
from privfed.core.asking.data import Stack
from privfed.core.asking.question import ClientData
from privfed.core.connection import Engine, Members
from privfed.core.values.domain import Box, Domain, FloatArray, frozen, frozen_array
from privfed.core.values.origin import Origin, check_origins, joined, origin_of
from privfed.data.table import ClientTables, warn_of_many
from privfed.errors import ArgumentError, DataError, PrivacyError
from privfed.federation.passed import as_passed, check_given, is_client_list
from privfed.federation.simulation import KeptGroups, MappedGroups, answering


@dataclass(frozen=True, slots=True)
class Clients:
    """Named clients and their data.

    Args:
        names: name of each client, by position; by default its position or its group id, as text.
        data: data of each client, by position; None where the rows lie with clients elsewhere.
        rows: row numbers of each client in the table that was passed, by position; None for a list of
            arrays.
        columns: names of the columns, where all clients' tables have names.
        width: number of columns, where the rows lie elsewhere.
        groups: groups of the rows, which the object keeps that the user passed; None where that was arrays.
        seen: size of groups -> what questions see of the rows, so that all sums of a fit see the same.
        scaling: how the rows were scaled, a `privfed.estimators.scaling.Scaling`; None if they were not.
        blocks: columns that are one together (`ClientTables`).
        leaves_out: whether the number of rows depends on what they hold (`ClientTables`).
        changed: rows that were left out, filled or clipped (`ClientTables`).
        prepared: where the numbers come from by which rows were scaled or filled (`ClientTables`).
    """

    names: tuple[str, ...]
    data: tuple[ClientData, ...] | None
    rows: tuple[npt.NDArray[np.intp], ...] | None
    columns: tuple[str, ...] | None = None
    width: int = 0
    groups: KeptGroups | MappedGroups | None = None
    seen: dict[int, tuple[ClientData, ...]] = field(default_factory=dict, repr=False)
    scaling: Any = None
    blocks: tuple[tuple[int, ...], ...] = ()
    leaves_out: bool = False
    changed: Mapping[str, int] = field(default_factory=dict)
    prepared: Origin = Origin.DECLARED

    @classmethod
    def elsewhere(cls, members: Members) -> Clients:
        """Return clients whose rows lie elsewhere."""
        return cls(members.names, None, None, members.columns, members.n_features)

    @property
    def here(self) -> tuple[ClientData, ...]:
        """The data, where it lies in this process.

        Raises:
            ArgumentError: it lies elsewhere.
        """
        if self.data is None:
            raise ArgumentError(
                "the rows lie with the engine's clients, and this needs them here: pass the rows, without "
                "engine=."
            )
        return self.data

    def answering(self, policy: ClientPolicy | None) -> tuple[ClientData, ...] | None:
        """Return what questions see of the rows: the rows, or their groups' means, once for each row.

        The data is by position; None where the rows lie elsewhere. The policy is the clients'.

        Warns:
            UserWarning: arrays are grouped, whose groups no later call knows; or rows are read that were
                grouped; or a client has too few rows for a group.
        """
        m = 1 if policy is None else policy.group_size
        if self.data is None:
            return None
        if m not in self.seen:
            self.seen[m] = answering(self.data, self.groups, m)
        return self.seen[m]

    @property
    def n_features(self) -> int:
        """Number of columns, the same for all."""
        return self.width if self.data is None else self.data[0].n_features


def gather(
    X: Any,
    groups: Any = None,
    y: Any = None,
    *,
    names: Iterable[Any] | None = None,
    domain: Domain | None = None,
    private: bool = False,
) -> Clients:
    """Return the clients of a list of tables, or of one table and the client of each row.

    Args:
        X: a list of tables, a dict of them by the clients' names, or one table; or
            `privfed.data.ClientTables`, or clients, with all they have.
        groups: with one table: the client of each row, or the name of the column with it.
        y: labels, integer codes: a list or dict for a list or dict of tables.
        names: names of all clients, in the order of their positions: those of the tables in a list, or all
            that `groups` may contain. A client that is not in `groups` holds no rows.
        domain: domain in which rows must lie.
        private: whether differential privacy is claimed. A client may then hold no rows, and rows may lie
            outside the domain, since an error would depend on rows. So would a list of clients that is found
            in the rows: with `groups`, `names` are required.

    Raises:
        DataError: no clients, a client without rows, NaN or infinity, text, other columns, repeated names,
            or rows outside the declared domain; the message names the client.
        ArgumentError: `names` are not names, or `X` is one table without `groups`.
        PrivacyError: `names` are missing with `groups` and `private`; or codes of labels follow from rows.
    """
    if isinstance(X, ClientTables | Clients):
        if private and isinstance(X, ClientTables) and X.label_names is not None and not X.private:
            raise PrivacyError(
                "under differential privacy one row of another label would change the codes of all: load the "
                "tables with private=True and classes=[...], or without labels."
            )
        if isinstance(X, ClientTables):
            if private:
                check_origins(clients=X.listed)
            for one in X.tables:
                _check_finite(one.features, X.columns, one.name)
            own = _clients(
                Stack.of(X.arrays), [one.labels for one in X.tables], [one.ids for one in X.tables]
            )
            X = Clients(
                X.names,
                own,
                None,
                X.columns,
                groups=KeptGroups.of(X),
                blocks=X.blocks,
                leaves_out=X.leaves_out,
                changed=X.changed,
                prepared=X.prepared,
            )
        clients: Clients = X
        if any(one is not None for one in (groups, y, names)):
            raise ArgumentError(
                "these clients have names and labels of their own: leave y, groups and names out."
            )
        if not private:
            _check_rows(clients, domain)
        return clients
    X, groups, y, names = as_passed(X, groups, y, names)
    check_given(X)
    prepared = joined(*map(origin_of, X if is_client_list(X) else [X]))
    if names is not None and (isinstance(names, str) or not isinstance(names, Iterable)):
        raise ArgumentError(
            f"client_names must be a list of names, got client_names={names!r}.", parameters=["client_names"]
        )
    # Names are text, as those in rows: the number 3 and the text "3" are the same client.
    known = None if names is None else tuple(map(str, names))
    if is_client_list(X):
        if groups is not None:
            raise DataError("groups goes with one table, not with a list of tables; pass one of the two.")
        clients = _from_list(X, y, known)
    elif groups is None:
        if known is not None:
            raise ArgumentError(
                "client_names goes with groups, or with a list of tables; pass one of them.",
                parameters=["client_names"],
            )
        table = _whole_table(X, private)
        clients = Clients(("0",), (ClientData(table, times=True),), (np.arange(len(table)),))
    elif known is None and private:
        raise PrivacyError(
            "under differential privacy the clients must be declared: a list of those that have rows would "
            "show whose only row is in the data. Pass client_names=[...], all of them, with groups, or a "
            "list of tables, one a client."
        )
    else:
        clients = _from_table(_whole_table(X, private), groups, y, known)
    if repeated := sorted(name for name, times in Counter(clients.names).items() if times > 1):
        raise DataError(f"client names must differ; repeated: {', '.join(repeated)}.")
    if not private:
        _check_rows(clients, domain)
    return replace(clients, prepared=prepared)


def gathered(engine: Engine | None, X: Any, groups: Any = None, y: Any = None, **options: Any) -> Clients:
    """Return the clients of what was passed; or an engine's, where their rows lie elsewhere.

    Args:
        engine: of the federation that is to be opened, or None.
        X: as for `gather`; None for an engine's own clients.
        groups: as for `gather`.
        y: as for `gather`.
        **options: of `gather`.

    Raises:
        ArgumentError: rows are passed to an engine whose clients have their own, or none to one that needs
            them.
    """
    members = None if engine is None else engine.members
    if members is None:
        if X is None:
            raise ArgumentError(
                "X is missing: pass a list with one array a client, or an engine= whose clients have rows."
            )
        return gather(X, groups, y, **options)
    if any(one is not None for one in (X, groups, y, options.get("names"))):
        raise ArgumentError(
            f"this engine's {len(members.names)} clients have their rows and names: leave X, y, groups and "
            "client_names out.",
            parameters=["client_names"],
        )
    return Clients.elsewhere(members)


def table_of(X: Any, name: str) -> FloatArray:
    """Return one client's table, float64 of shape (n_rows, n_features), in which NaN and infinity may be.

    Args:
        X: array, frame, sparse table, or list of rows.
        name: of the client.

    Raises:
        DataError: it is masked, no table, or holds other values; the message names the client.
    """
    # This replaces scikit-learn's check, whose messages quote values.
    if np.ma.is_masked(X):
        # numpy would take what is masked for values.
        raise DataError(f"client {name}: the data holds masked values; drop or impute these rows.")
    try:
        table = np.asarray(X.toarray() if issparse(X) else X)
        rows = np.asarray(table, dtype=np.float64) if table.dtype.kind in "buifO" else None
    except (ValueError, TypeError, OverflowError):
        rows = None
    if rows is None:
        odd = [str(one) for one in _named(X) or () if np.asarray(X[one]).dtype.kind not in "buif"]
        raise DataError(
            f"client {name}: all values must be numbers; encode or drop the other columns"
            + f" ({', '.join(odd)})" * bool(odd)
            + "."
        )
    if rows.ndim != 2 or rows.shape[1] == 0:
        raise DataError(f"client {name}: the data needs rows and columns, got shape {rows.shape}.")
    return rows


def _check_finite(rows: FloatArray, names: Sequence[Any], name: str) -> None:
    if (gaps := ~np.isfinite(rows)).any():
        where = ", ".join(str(names[j]) for j in np.flatnonzero(gaps.any(axis=0)).tolist())
        raise DataError(
            f"client {name}: the data holds NaN or infinity in {np.count_nonzero(gaps.any(axis=1))} rows, in "
            f"columns {where}; drop or impute these rows (FederatedImputer)."
        )


def _named(X: Any) -> tuple[Any, ...] | None:
    """Return a frame's columns, as it calls them; None for an array."""
    columns = getattr(X, "columns", None)
    return None if columns is None else tuple(columns)


def _columns(X: Sequence[Any], names: Sequence[str]) -> tuple[str, ...] | None:
    """Return the names of the columns, or None if some table has none, or not each column its own.

    Raises:
        DataError: two tables have other names, or these in another order.
    """
    found = [(name, _named(one)) for name, one in zip(names, X, strict=True)]
    named = [(name, tuple(map(str, columns))) for name, columns in found if columns is not None]
    for name, columns in named[1:]:
        if columns != named[0][1]:
            raise DataError(
                f"client {name} has columns {', '.join(columns)}; client {named[0][0]} has "
                f"{', '.join(named[0][1])}; all clients need the same columns in the same order."
            )
    return named[0][1] if len(named) == len(found) and len(set(named[0][1])) == len(named[0][1]) else None


def _codes(y: Any) -> npt.NDArray[np.int64] | None:
    if y is None:
        return None
    values = np.asarray(y)
    if values.size and not np.issubdtype(values.dtype, np.integer):
        raise DataError(
            "labels of clients must be integer codes, the same for all clients; encode them first."
        )
    return values.astype(np.int64)


def _from_list(X: Sequence[Any], y: Any, names: Sequence[str] | None) -> Clients:
    if not X:
        raise DataError("no clients: pass a list with at least one table of shape (n_rows, n_features).")
    if y is not None and len(y) != len(X):
        raise DataError(f"{len(y)} lists of labels do not fit {len(X)} clients; pass one list a client.")
    named = tuple(str(i) for i in range(len(X))) if names is None else tuple(names)
    if len(named) != len(X):
        raise DataError(f"{len(named)} names do not fit {len(X)} clients; pass one name a client.")
    labels = [None] * len(X) if y is None else list(y)
    tables = [table_of(one, name) for one, name in zip(X, named, strict=True)]
    for name, one, width, table in zip(named, X, [table.shape[1] for table in tables], tables, strict=True):
        _check_finite(table, _named(one) or range(width), name)
        if width != tables[0].shape[1]:
            here, there = (set(map(str, _named(each) or ())) for each in (one, X[0]))
            odd = f" ({', '.join(sorted(here ^ there))} of one alone)" if here and there else ""
            raise DataError(
                f"client {name} has {width} columns, client {named[0]} has {tables[0].shape[1]}{odd}; all "
                "clients need the same columns."
            )
    return Clients(named, _clients(Stack.of(tables), list(map(_codes, labels))), None, _columns(X, named))


def _clients(
    stack: Stack,
    labels: Sequence[npt.NDArray[np.int64] | None],
    users: Sequence[Sequence[str] | None] | None = None,
) -> tuple[ClientData, ...]:
    ids = [None] * len(labels) if users is None else users
    # Whoever passes the rows says with the estimator what they are used for.
    return tuple(
        ClientData(stack.part(i), own, stack=stack, place=i, times=True, users=ids[i])
        for i, own in enumerate(labels)
    )


def _whole_table(X: Any, private: bool) -> FloatArray:
    return np.asarray(check_array(X, dtype=np.float64, ensure_min_samples=not private), dtype=np.float64)


def _from_table(table: FloatArray, groups: Any, y: Any, names: tuple[str, ...] | None) -> Clients:
    labels, ids = _codes(y), np.asarray(groups)
    if ids.shape != (len(table),):
        raise DataError(f"groups of shape {ids.shape} do not name a client for each of {len(table)} rows.")
    missing = ids.dtype.kind == "f" and np.isnan(ids).any()
    try:
        unique, owner = np.unique(ids, return_inverse=True)
    except TypeError:
        missing = True
    if missing:
        raise DataError("groups must name a client for each row: texts or numbers, none missing.")
    found = tuple(str(one) for one in unique.tolist())
    if names is None:
        warn_of_many(len(found), len(table))
    names = found if names is None else names
    positions = {name: i for i, name in enumerate(names)}
    if unknown := [name for name in found if name not in positions]:
        raise DataError(
            f"groups names the client {unknown[0]!r}, which client_names does not; name all clients in it.",
            parameters=["client_names"],
        )
    # The position of each row's client in `names`, where some clients may have no rows.
    owner = np.array([positions[name] for name in found], dtype=np.intp)[owner]
    ends = np.cumsum(np.bincount(owner, minlength=len(names)))
    order = np.argsort(owner, kind="stable")
    rows = tuple(np.split(order, ends[:-1]))
    # Rows that lie client by client are not moved, and a table that nobody can write to is not copied.
    table = frozen_array(table if (np.diff(owner) >= 0).all() else frozen(table[order]))
    stack = Stack(table, np.concatenate([[0], ends]).astype(np.int64))
    return Clients(names, _clients(stack, [None if labels is None else labels[own] for own in rows]), rows)


def _check_rows(clients: Clients, domain: Domain | None) -> None:
    for name, data in zip(clients.names, clients.here, strict=True):
        if not data.n_rows:
            raise DataError(
                f"client {name}: the data needs rows, got shape {data.features.shape}; leave the client out, "
                "or claim differential privacy, under which it answers noise."
            )
        # The message names the client that must correct its data, but gives no number about its rows.
        if domain is not None and not domain.contains(data.features).all():
            low, high = domain.bounds(data.n_features)
            odd = np.flatnonzero(((data.features < low) | (data.features > high)).any(axis=0))
            listed = [clients.columns[j] for j in odd] if clients.columns and isinstance(domain, Box) else []
            raise DataError(
                f"client {name} has rows outside the domain; declare a larger one, or clip them"
                + f" (columns {', '.join(listed)})" * bool(listed)
                + "."
            )
        most = None if domain is None else domain.rows_of(name)
        if most is not None and data.n_rows > most:
            raise DataError(f"client {name} has more rows than the declared max_rows={most}; declare more.")
