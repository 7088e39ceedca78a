"""Check what a Spark job needs on the machine that starts it."""

from importlib.util import find_spec

from redrive.errors import ConfigurationError
from redrive.spark_reprocess.java import check_java

_LIBRARIES = ("pyspark", "pyarrow", "duckdb")


def check_libraries() -> None:
    """Check that the libraries of the extra `spark` are installed, without importing them."""
    for name in _LIBRARIES:
        if find_spec(name) is None:
            raise ConfigurationError(
                f"this needs {name}, which is not installed", "pip install 'redrive[spark]'"
            )


def check_prerequisites() -> None:
    """Check that the libraries and Java are installed. Call it before starting a broker, opening an
    archive, or touching a message."""
    check_libraries()
    check_java()
