"""Writing a file so that, whatever happens, either the old or the new one is there, whole.

    write  name.tmp        a crash here leaves the old file, and a leftover
    fsync  name.tmp        else the name may reach the disk before the bytes
    rename name.tmp name   one step for the file system: atomic (POSIX rename)
    fsync  folder          else the old name may come back after a power cut

Writing straight to the final name is how a job that is killed while it saves loses both
checkpoints: the old one is gone and the new one is a stump.
"""

import os
from pathlib import Path


def replace_file(path: Path, data: bytes) -> None:
    """Put `data` at `path`, atomically and durably, over any leftover of an earlier crash."""
    temporary = path.with_name(path.name + ".tmp")
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Have the names in a folder on the disk: what was renamed there has its new name for good."""
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
