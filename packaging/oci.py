#!/usr/bin/env python3
"""An OCI image layout (image-spec 1.1) without a daemon: `oci.py make ROOT LAYOUT ARCH VERSION`, `oci.py check LAYOUT`.

    LAYOUT/oci-layout, index.json          --> blobs/sha256/MANIFEST --> CONFIGURATION, one layer (tar, gzip)
    LAYOUT.tar                             the same as one file, for `skopeo copy oci-archive:` and `podman load`

`make` packs the folder ROOT as the layer, with root as owner, or number 65532 below /data and /etc/terrace; names in order and times of
SOURCE_DATE_EPOCH, so that the same folder gives the same digests. `check` reads it back: every digest, size and diff id, the program, the
user. Standard library only.
"""

import datetime
import gzip
import hashlib
import io
import json
import os
import sys
import tarfile

USER = 65532
EPOCH = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))
CONFIG, LAYER = "application/vnd.oci.image.config.v1+json", "application/vnd.oci.image.layer.v1.tar+gzip"
MANIFEST, INDEX = "application/vnd.oci.image.manifest.v1+json", "application/vnd.oci.image.index.v1+json"


def pack(root):
    """The folder as a tar, uncompressed."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for folder, folders, files in os.walk(root):
            folders.sort()
            for name in sorted(folders + files):
                path = os.path.join(folder, name)
                entry = tar.gettarinfo(path, os.path.relpath(path, root))
                entry.mtime, entry.uname, entry.gname = EPOCH, "", ""
                owned = entry.name.split("/")[0] == "data" or entry.name.startswith("etc/terrace")
                entry.uid = entry.gid = USER if owned else 0
                if entry.isreg():
                    with open(path, "rb") as file:
                        tar.addfile(entry, file)
                else:
                    tar.addfile(entry)
    return out.getvalue()


def put(layout, content, kind):
    """A blob; its descriptor."""
    digest = hashlib.sha256(content).hexdigest()
    with open(os.path.join(layout, "blobs", "sha256", digest), "wb") as file:
        file.write(content)
    return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(content)}


def text(value):
    return json.dumps(value, indent=1, sort_keys=True).encode()


def of_nobody(entry):
    """Without what differs from one run to the next."""
    entry.mtime, entry.uid, entry.gid, entry.uname, entry.gname = EPOCH, 0, 0, "", ""
    return entry


def make(root, layout, arch, version):
    os.makedirs(os.path.join(layout, "blobs", "sha256"))
    tar = pack(root)
    created = datetime.datetime.fromtimestamp(EPOCH, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    labels = {
        "org.opencontainers.image.title": "terrace",
        "org.opencontainers.image.version": version,
        "org.opencontainers.image.licenses": "Apache-2.0 OR MIT",
        "org.opencontainers.image.created": created,
    }
    configuration = {
        "created": created,
        "architecture": arch,
        "os": "linux",
        "config": {
            "User": f"{USER}:{USER}",
            "Entrypoint": ["/usr/bin/terrace"],
            "Cmd": ["serve", "--config", "/etc/terrace/terrace.toml"],
            "WorkingDir": "/data",
            "Env": ["PATH=/usr/bin", "TERRACE_LOG_FORMAT=json"],
            "ExposedPorts": {"2575/tcp": {}},
            "Volumes": {"/data": {}},
            "StopSignal": "SIGTERM",
            "Labels": labels,
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(tar).hexdigest()}"]},
        "history": [{"created": created, "created_by": "scripts/package-oci.sh"}],
    }
    layer = put(layout, gzip.compress(tar, compresslevel=6, mtime=0), LAYER)
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": put(layout, text(configuration), CONFIG),
        "layers": [layer],
        "annotations": labels,
    }
    described = put(layout, text(manifest), MANIFEST)
    described["platform"] = {"architecture": arch, "os": "linux"}
    described["annotations"] = {"org.opencontainers.image.ref.name": version}
    with open(os.path.join(layout, "index.json"), "wb") as file:
        file.write(text({"schemaVersion": 2, "mediaType": INDEX, "manifests": [described]}))
    with open(os.path.join(layout, "oci-layout"), "w", encoding="utf-8") as file:
        file.write('{"imageLayoutVersion": "1.0.0"}')
    with tarfile.open(layout + ".tar", "w") as tar:
        for name in ("oci-layout", "index.json", "blobs"):
            tar.add(os.path.join(layout, name), name, filter=of_nobody)


def blob(layout, descriptor):
    kind, digest = descriptor["digest"].split(":")
    with open(os.path.join(layout, "blobs", kind, digest), "rb") as file:
        content = file.read()
    assert kind == "sha256" and hashlib.sha256(content).hexdigest() == digest, f"{digest}: another digest"
    assert len(content) == descriptor["size"], f"{digest}: another size"
    return content


def check(layout):
    with open(os.path.join(layout, "oci-layout"), encoding="utf-8") as file:
        assert json.load(file)["imageLayoutVersion"] == "1.0.0"
    with open(os.path.join(layout, "index.json"), encoding="utf-8") as file:
        index = json.load(file)
    (described,) = index["manifests"]
    manifest = json.loads(blob(layout, described))
    configuration = json.loads(blob(layout, manifest["config"]))
    (layer,) = manifest["layers"]
    tar = gzip.decompress(blob(layout, layer))
    assert configuration["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(tar).hexdigest()}"], "another diff id"
    assert configuration["config"]["User"] == f"{USER}:{USER}"
    with tarfile.open(fileobj=io.BytesIO(tar)) as entries:
        names = {entry.name: entry for entry in entries}
    program = names[configuration["config"]["Entrypoint"][0].lstrip("/")]
    assert program.isreg() and program.mode & 0o111, "no program"
    assert names["data"].uid == USER and names["etc/terrace/terrace.toml"].uid == USER
    assert not any(entry.mode & 0o6000 for entry in names.values()), "a file runs as its owner"
    blobs = os.listdir(os.path.join(layout, "blobs", "sha256"))
    assert len(blobs) == 3, "a blob that nothing names"
    print(f"{described['digest']}: {len(names)} entries, layer {layer['size']} bytes")


if __name__ == "__main__":
    if sys.argv[1:2] == ["make"] and len(sys.argv) == 6:
        make(*sys.argv[2:])
    elif sys.argv[1:2] == ["check"] and len(sys.argv) == 3:
        check(sys.argv[2])
    else:
        sys.exit(__doc__)
