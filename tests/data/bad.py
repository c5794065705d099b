"""Files for tests of what is wrong with a file, and the check of its error."""

import io
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from privfed.data import load_clients
from privfed.errors import PrivFedError

# A value that no message may show.
SECRET = 31337


def npz(**arrays: Any) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def npy(array: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def parquet(**columns: Any) -> bytes:
    buffer = io.BytesIO()
    pl.DataFrame(columns, strict=False).write_parquet(buffer)
    return buffer.getvalue()


def fails(path: Path, kind: type[PrivFedError], message: str, **options: Any) -> None:
    with pytest.raises(kind, match=message) as caught:
        load_clients(path, **options)
    assert "\n" not in str(caught.value)
    assert str(SECRET) not in "".join(traceback.format_exception(caught.value, limit=0))


CSV = f"g,y,a,b\nq,u,{SECRET},2\nr,v,3,4\n".encode()
ROWS = np.full((3, 2), SECRET)
