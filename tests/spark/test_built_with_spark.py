"""The built package with [spark], in an environment that has nothing else."""

from pathlib import Path

import pytest

from clean_environment import CleanEnvironment, build


@pytest.mark.nightly("installs Spark once more")
def test_the_extra_is_all_that_spark_needs(tmp_path: Path) -> None:
    environment = CleanEnvironment(
        tmp_path / "environment",
        build(tmp_path / "dist").wheel,
        "spark",
        borrowed=("pyspark", "py4j"),
    )
    wanted = environment.python("import importlib.metadata as m; print(*m.requires('redrive'))")
    assert "pyspark>=4" in wanted.stdout
    imported = environment.python(
        "import redrive.spark_reprocess.reprocess, redrive.spark_reprocess.writer,"
        "redrive.spark_reprocess.session, redrive.cli.spark, redrive.cli.spark_demo"
    )
    assert (imported.returncode, imported.stderr) == (0, "")
    # It gets as far as the archive, so nothing that it imports is missing.
    verified = environment.run("redrive", "spark", "verify", "--archive", str(tmp_path / "archive"))
    assert verified.returncode == 2
    assert verified.stderr.startswith("Error: nothing has been drained into the archive ")
