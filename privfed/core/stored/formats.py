"""Formats of what is stored: each has a version, and what another version wrote is read or refused by name.

Bytes that are handed over (states, agreements) carry theirs in `privfed.core.stored.codec`.
"""

from __future__ import annotations

from dataclasses import dataclass

from privfed.errors import RunFolderError


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """The versions of one stored form.

    Args:
        name: of the file.
        version: that is written.
        oldest: that is read.
        again: what writes it anew, for messages about one that is too old.
    """

    name: str
    version: int
    oldest: int = 1
    again: str

    def check(self, found: object, where: object) -> int:
        """Return the version of a file.

        Args:
            found: as it stands in the file.
            where: the file.

        Raises:
            RunFolderError: it is of a newer privfed, or of one that is too old, or no version at all.
        """
        if not isinstance(found, int) or isinstance(found, bool) or found < 1:
            raise RunFolderError(f"{where} is damaged: it names no format; {self.again}.")
        if found > self.version:
            raise RunFolderError(
                f"{where} has format {found}, this privfed reads formats up to {self.version}; use the newer "
                f"privfed that wrote it, or {self.again}."
            )
        if found < self.oldest:
            raise RunFolderError(
                f"{where} has format {found}, of an older privfed; this one reads formats {self.oldest} to "
                f"{self.version}: use the older one, or {self.again}."
            )
        return found
