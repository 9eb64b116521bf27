"""`python3 -m prezero ...` becomes the command `prezero`: that of the wheel, whose folder may be missing in PATH; elsewhere PATH's."""

import os
import shutil
import sys
from importlib.metadata import PackageNotFoundError, files


def command():
    """Where the command is, or None."""
    try:
        installed = [str(file.locate()) for file in files("prezero") or [] if file.parts[-2:] == ("bin", "prezero")]
    except PackageNotFoundError:
        installed = []
    return next(filter(os.path.exists, installed), None) or shutil.which("prezero")


if __name__ == "__main__":
    found = command()
    if found is None:
        sys.exit("prezero: the command is neither in this wheel nor in PATH: pip install --force-reinstall prezero")
    os.execv(found, ["prezero", *sys.argv[1:]])
