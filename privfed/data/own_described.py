"""A party's own table that a schema describes, read row by row: no row makes the reading fail."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from privfed.data.conversion import any_codes, text_column
from privfed.data.described_tables import read_described
from privfed.data.own import OwnFile, ReadRows
from privfed.data.schema import Schema
from privfed.data.table import LEAVE_OUT


@dataclass(frozen=True, kw_only=True)
class DescribedFile(OwnFile):
    """Where a party's rows lie, and what their columns mean, in place of columns, separator and a rule.

    Args:
        schema: of its columns; the features are its.
    """

    schema: Schema

    def read(self, agreed: Sequence[str] | None = None) -> ReadRows:
        """Read the rows, as `OwnFile` does; what the schema does not read is missing."""
        roles, names = [one for one in (self.label, self.id) if one is not None], self.schema.features
        if agreed is not None:
            self._compare(names, agreed)
        found = read_described(self.path, self.schema, private=True, also=roles)
        # A row that the schema leaves out has no number, so that the one rule leaves it out.
        table = np.where(found.kept[:, None], found.features, np.nan)
        table = table[:, [names.index(name) for name in agreed or names]]
        frame, origin, labels, ids = found.frame, str(self.path), None, None
        if self.label is not None:
            labels = any_codes(frame[self.label], origin, self.n_classes)
        if self.id is not None:
            ids = np.array(text_column(frame[self.id], origin, "id", missing=True).to_list(), dtype=object)
        said = tuple(map(str, found.findings))
        return ReadRows(tuple(agreed or names), table, labels, LEAVE_OUT, ids, said)

    def check(self) -> None:
        """Check what the rows hold, for their owner alone.

        Raises:
            DataError: a row holds what the schema does not allow; a running node would leave it out.
        """
        read_described(self.path, self.schema).checked()
