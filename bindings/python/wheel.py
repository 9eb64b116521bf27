"""What makes the wheel more than its modules: the programs, the libraries, for which machines they are, and where the
project is, which Cargo.toml alone says."""

import os
import re
from pathlib import Path

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

# The keys of Cargo.toml, by the names that PyPI shows.
URLS = {"Homepage": "homepage", "Repository": "repository", "Issues": "issues"}


class About(MetadataHookInterface):
    def update(self, metadata):
        cargo = (Path(self.root).parents[1] / "Cargo.toml").read_text()
        found = {name: re.search(rf'(?m)^{key} = "(.+)"$', cargo) for name, key in URLS.items()}
        metadata["urls"] = {name: value[1] for name, value in found.items() if value}


class Built(BuildHookInterface):
    def initialize(self, version, build_data):
        files = Path(os.environ.get("PREZERO_WHEEL_FILES", Path(self.root).parents[1] / "target/wheel/files"))
        if not (files / "bin/prezero").exists():
            raise FileNotFoundError(f"{files}: nothing was built there; packaging/wheel.sh does it, and calls this")
        build_data["pure_python"] = False
        # No module of Python's own interface: one wheel for all versions.
        build_data["tag"] = f"py3-none-{os.environ['PREZERO_WHEEL_PLATFORM']}"
        build_data["shared_scripts"] = {str(each): each.name for each in sorted((files / "bin").iterdir())}
        build_data["shared_data"] = {str(each): f"lib/prezero/{each.name}" for each in sorted((files / "lib").iterdir())}
        build_data["force_include"][str(files / "libprezero_numpy.so")] = "prezero/libprezero_numpy.so"
