#!/usr/bin/env python3
"""A list of what a release is made of (SPDX 2.3, JSON): its crates and all that they are built of, from Cargo.lock.

    packaging/sbom.py          in a checkout; SOURCE_DATE_EPOCH is the date that it bears

Crates of tests and of other platforms are not in it.
"""
import json
import os
import subprocess
import sys
import time
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# What is shipped: the rest are their parts.
SHIPPED = ["prezero-cli", "prezerod", "prezero-bench", "prezero-preload", "prezero-lease-shim", "prezero-pinned",
           "prezero-numpy"]
PLATFORMS = ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"]


def metadata():
    command = [os.environ.get("CARGO", "cargo"), "metadata", "--locked", "--format-version", "1"]
    command += [word for each in PLATFORMS for word in ("--filter-platform", each)]
    return json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout)


def edges(node):
    """What is built into a package, or builds it; not what tests it."""
    return [each["pkg"] for each in node["deps"] if any(kind["kind"] != "dev" for kind in each["dep_kinds"])]


def reached(nodes, start):
    found, ahead = set(), list(start)
    while ahead:
        if (package := ahead.pop()) not in found:
            found.add(package)
            ahead += edges(nodes[package])
    return found


def document(said, sums, epoch):
    packages = {package["id"]: package for package in said["packages"]}
    nodes = {node["id"]: node for node in said["resolve"]["nodes"]}
    shipped = [package for package in said["workspace_members"] if packages[package]["name"] in SHIPPED]
    inside = sorted(reached(nodes, shipped), key=lambda each: (packages[each]["name"], packages[each]["version"]))
    name = {each: f"SPDXRef-{packages[each]['name']}-{packages[each]['version']}".replace("_", "-").replace("+", "-") for each in inside}
    version = packages[shipped[0]]["version"]

    def entry(each):
        package = packages[each]
        key = package["name"], package["version"]
        made = {"SPDXID": name[each], "name": key[0], "versionInfo": key[1], "downloadLocation": "NOASSERTION",
                "licenseConcluded": "NOASSERTION", "copyrightText": "NOASSERTION", "filesAnalyzed": False,
                "licenseDeclared": (package["license"] or "NOASSERTION").replace("/", " OR "),
                "externalRefs": [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl",
                                  "referenceLocator": f"pkg:cargo/{key[0]}@{key[1]}"}]}
        if sum_ := sums.get(key):
            made["checksums"] = [{"algorithm": "SHA256", "checksumValue": sum_}]
        return made

    def relation(of, kind, to):
        return {"spdxElementId": of, "relationshipType": kind, "relatedSpdxElement": to}

    return {"spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": f"prezero-{version}",
            "documentNamespace": f"urn:prezero:{version}:{epoch}",
            "creationInfo": {"created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(epoch)),
                             "creators": ["Tool: packaging/sbom.py"]},
            "packages": [entry(each) for each in inside],
            "relationships": [relation("SPDXRef-DOCUMENT", "DESCRIBES", name[each]) for each in inside if each in shipped]
            + [relation(name[each], "DEPENDS_ON", name[to]) for each in inside for to in sorted(edges(nodes[each]), key=name.get)]}


def main():
    lock = tomllib.loads((ROOT / "Cargo.lock").read_text())
    sums = {(package["name"], package["version"]): package.get("checksum") for package in lock["package"]}
    epoch = int(os.environ.get("SOURCE_DATE_EPOCH") or time.time())
    json.dump(document(metadata(), sums, epoch), sys.stdout, indent=1, sort_keys=True)
    print()


if __name__ == "__main__":
    sys.exit(__doc__ if sys.argv[1:] else main())
