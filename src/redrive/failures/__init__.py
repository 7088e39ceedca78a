"""Everything about failed queues: what is in them, why, and how it is sent back.

`message` is pure. Each of `message`, `store`, `queue`, `jobs`, `failed_queue.py` and `aio` may
import those before it; `rehearsal` may import all.
"""

import importlib
import sys
import types
import warnings

_FORMER_PATHS = {
    "approval": "jobs",
    "cause_remark": "jobs",
    "job_record": "jobs",
    "journal": "jobs",
    "journal_entry": "jobs",
    "look": "store",
    "plan": "queue",
}
"""Modules that programs may still import by their path of before, and the folder of each."""


class _FormerPath(types.ModuleType):
    """A module that has moved. It stands at its former path for one more release."""

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        parent, _, module = self.__name__.rpartition(".")
        path = f"{parent}.{_FORMER_PATHS[module]}.{module}"
        warnings.warn(
            f"{self.__name__} is now {path}, and its former path will be removed in the next "
            "release",
            DeprecationWarning,
            stacklevel=2,
        )
        return getattr(importlib.import_module(path), name)


for _name in _FORMER_PATHS:
    sys.modules[f"{__name__}.{_name}"] = _FormerPath(f"{__name__}.{_name}")
