"""What a job on Spark needs of the machine, told before anything starts."""

from importlib.machinery import ModuleSpec

import pytest

from redrive.errors import ConfigurationError
from redrive.spark_reprocess import prerequisites


@pytest.mark.parametrize("library", ["pyspark", "pyarrow", "duckdb"])
def test_the_library_that_is_missing_is_named_with_what_installs_it(
    library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def find_spec(name: str) -> ModuleSpec | None:
        return None if name == library else ModuleSpec(name, None)

    monkeypatch.setattr(prerequisites, "find_spec", find_spec)
    with pytest.raises(ConfigurationError) as refused:
        prerequisites.check_libraries()
    assert str(refused.value).splitlines() == [
        f"this needs {library}, which is not installed",
        "pip install 'redrive[spark]'",
    ]
