"""One Spark session for all tests here: starting one costs as much as all that a test does with
it."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from redrive.spark_reprocess.archive import Archive
from redrive.spark_reprocess.session import session_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


FRUGAL = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    # Compiling a query costs more than running it over a few hundred rows.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # Else each step of a query notes in Java where in Python it was written.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
}
FRUGAL_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xmx1g"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.timeout(1800))


@pytest.fixture(scope="session", autouse=True)
def frugal_java() -> Iterator[None]:
    """Java that starts quickly, for the sessions of these tests and of the processes that they
    start."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JDK_JAVA_OPTIONS", FRUGAL_JAVA)
        yield


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory, frugal_java: None) -> Iterator["SparkSession"]:
    """A session on this machine with one task at a time: several of these tests run at once."""
    folder = tmp_path_factory.mktemp("spark")
    session = session_for(
        "local[1]",
        name="redrive tests",
        settings={
            **FRUGAL,
            "spark.ui.port": "0",
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
        },
        log=str(folder / "spark.log"),
    )
    yield session
    session.stop()


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    """A new archive."""
    return Archive(str(tmp_path / "archive"))
