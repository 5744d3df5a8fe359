#!/usr/bin/env python3
"""Writes the copyright file of a package: `notices.py DIR` makes DIR/copyright and DIR/licences.

What is linked is what `cargo metadata` says for the package terrace, without dependencies of tests and of builds' tests. copyright
lists each crate with its licence as its author wrote it; licences has the text of each licence file in the sources of these crates,
once for each different text. Fails if a crate has no licence, or if its sources are not there. Standard library only.
"""

import hashlib
import json
import os
import subprocess
import sys

NAMES = ("LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE", "UNLICENSE")


def linked(metadata):
    """Packages that the program is made of, the program's own last."""
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    packages = {package["id"]: package for package in metadata["packages"]}
    root = next(package["id"] for package in packages.values() if package["name"] == "terrace" and not package["source"])
    seen, waiting = set(), [root]
    while waiting:
        this = waiting.pop()
        if this in seen:
            continue
        seen.add(this)
        for dependency in nodes[this]["deps"]:
            if any(kind["kind"] != "dev" for kind in dependency["dep_kinds"]):
                waiting.append(dependency["pkg"])
    return sorted((packages[one] for one in seen), key=lambda package: (package["name"], package["version"]))


def texts(package):
    """The licence files in the sources of a package."""
    folder = os.path.dirname(package["manifest_path"])
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        if name.upper().startswith(NAMES) and os.path.isfile(path):
            with open(path, encoding="utf-8", errors="replace") as file:
                yield name, file.read().strip() + "\n"


def main(target):
    command = ["cargo", "metadata", "--format-version", "1", "--locked", "--filter-platform"]
    told = subprocess.run(["rustc", "-vV"], check=True, capture_output=True, text=True).stdout
    host = next(line[len("host: "):] for line in told.splitlines() if line.startswith("host: "))
    metadata = json.loads(subprocess.run(command + [host], check=True, capture_output=True, text=True).stdout)
    packages = [package for package in linked(metadata) if package["source"]]
    missing = [package["name"] for package in packages if not (package["license"] or package["license_file"])]
    if missing:
        sys.exit(f"no licence is known of: {', '.join(missing)}")
    os.makedirs(target, exist_ok=True)
    found = {}
    for package in packages:
        for name, text in texts(package):
            key = hashlib.sha256(text.encode()).hexdigest()
            found.setdefault(key, (text, []))[1].append(f"{package['name']} {package['version']} ({name})")
    with open(os.path.join(target, "licences"), "w", encoding="utf-8") as out:
        out.write("The texts of the licences of the crates that Terrace is linked with, each once, with the crates that have it.\n")
        for text, users in sorted(found.values(), key=lambda entry: entry[1]):
            out.write("\n" + "=" * 100 + "\n" + "\n".join(users) + "\n" + "-" * 100 + "\n" + text)
    with open(os.path.join(target, "copyright"), "w", encoding="utf-8") as out:
        out.write("Terrace is licensed under Apache-2.0 or MIT, at your choice.\n\n")
        for name in ("LICENSE-APACHE", "LICENSE-MIT"):
            with open(name, encoding="utf-8") as file:
                out.write(f"{name}:\n\n{file.read().strip()}\n\n")
        out.write(f"It is linked with {len(packages)} crates of others. The texts of their licences are in licences.gz beside this file.\n\n")
        for package in packages:
            licence = package["license"] or f"see {package['license_file']}"
            authors = "; ".join(author.split(" <")[0] for author in package["authors"]) or "see its source"
            out.write(f"{package['name']} {package['version']}: {licence}\n  authors: {authors}\n  source: {package['repository'] or package['source']}\n")
    print(f"{len(packages)} crates, {len(found)} texts of licences")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
