"""Processor counts, as llama.cpp takes them (`common/common.cpp`, `common_cpu_get_num_math`)."""

from __future__ import annotations

import os
from pathlib import Path

_SYSTEM = Path("/sys/devices/system/cpu")


def hardware_threads() -> int:
    """CPUs this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def physical_cores(system: Path = _SYSTEM) -> int:
    """Distinct cores among the CPUs this process may use; where the system is silent, half of more than four CPUs."""
    if hasattr(os, "sched_getaffinity"):
        files = [system / f"cpu{cpu}/topology/thread_siblings" for cpu in os.sched_getaffinity(0)]
        siblings = {file.read_text() for file in files if file.is_file()}
        if siblings:
            return len(siblings)
    n = hardware_threads()
    return n // 2 if n > 4 else n
