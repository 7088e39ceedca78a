"""Name files in DuckDB's SQL, whatever characters their names have."""

import re
from collections.abc import Iterable
from pathlib import Path

_PATTERN = re.compile(r"[*?\[]")
"""What DuckDB takes for a pattern in the name of a file to read. In brackets it stands for
itself: https://duckdb.org/docs/stable/sql/functions/pattern_matching#globbing"""


def quoted(path: Path) -> str:
    """Quote a path as an SQL string."""
    return "'" + str(path).replace("'", "''") + "'"


def rows_of_parquet(files: Iterable[Path]) -> str:
    """Return the rows of Parquet files as SQL."""
    return f"read_parquet([{', '.join(quoted(_itself(file)) for file in files)}])"


def paths_allowed(paths: Iterable[Path]) -> str:
    """Return paths as the list that DuckDB's settings of what may be read take."""
    forms = dict.fromkeys(form for path in paths for form in (path, _itself(path)))
    return f"[{', '.join(map(quoted, forms))}]"


def _itself(path: Path) -> Path:
    """Return the pattern that only this path matches."""
    return Path(_PATTERN.sub(r"[\g<0>]", str(path)))
