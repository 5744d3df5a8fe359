"""Compares miss-ratio curves of `terrace profile` with libCacheSim, on the traces of its source package. Called by test-plan.sh.

    plan-curves.py FOLDER PROGRAM...

FOLDER has the traces, PROGRAM... is the command to which `import` and `show` are added. For each trace: our sampled curve against LRU caches
that libCacheSim simulates, and against our exact distances. Prints a table and `N passed, N failed`.
"""

import json
import os
import subprocess
import sys
import tempfile

import libcachesim

PAGE = 4096
KEYS = 16384
BOUND = 0.01
# Our format, libCacheSim's kind, the file.
TRACES = [
    ("oracle-general", "oracle", "cloudPhysicsIO.oracleGeneral.bin"),
    ("vscsi", "vscsi", "cloudPhysicsIO.vscsi"),
    ("cloudphysics", "csv 2 5 4", "cloudPhysicsIO.csv"),
    ("csv", "csv 1 2 3", "twitter_cluster52.csv"),
]


def reader(kind, file, same_size):
    """libCacheSim's reader of a trace."""
    options = libcachesim.ReaderInitParam(ignore_obj_size=same_size)
    kinds = libcachesim.TraceType
    if kind == "oracle":
        type_ = kinds.ORACLE_GENERAL_TRACE
    elif kind == "vscsi":
        type_ = kinds.VSCSI_TRACE
    else:
        type_ = kinds.CSV_TRACE
        time, key, size = (int(number) for number in kind.split()[1:])
        options.time_field, options.obj_id_field, options.obj_size_field = time, key, size
        options.has_header = options.has_header_set = True
        options.obj_id_is_num = options.obj_id_is_num_set = True
        options.delimiter = ","
    return libcachesim.TraceReader(trace=file, trace_type=type_, reader_init_params=options)


def ran(command, *arguments):
    """What the program prints, as JSON."""
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(arguments)}: exit code {done.returncode}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def compared(command, folder, trace, same_size):
    """The largest mean errors of one trace: against LRU caches, against exact distances; and what it has."""
    format_, kind, name = trace
    file = os.path.join(folder, name)
    with tempfile.TemporaryDirectory() as out:
        profile = os.path.join(out, "x.tprof")
        sizes = ["--same-size"] if same_size else []
        imported = ran(command, "import", format_, file, "--out", profile, "--objects", *sizes, "--page", str(PAGE),
                       "--keys", str(KEYS), "--seed", "1", "--exact", "--json")
        total = imported["touched_bytes"]
        at = sorted({max(PAGE, total * part // 1000 // PAGE * PAGE) for part in
                     [1, 3, 10, 30, 100, 200, 300, 400, 500, 600, 700, 800, 900, 1000]})
        shown = ran(command, "show", profile, "--json", "--at", ",".join(str(size) for size in at))
    points = {point["bytes"]: point["miss_ratio"] for point in shown["curves"][0]["points"]}
    trace_reader = reader(kind, file, same_size)
    errors = []
    for size in at:
        cache = libcachesim.LRU(size // PAGE if same_size else size)
        errors.append(abs(cache.process_trace(trace_reader)[0] - points[size]))
    return {
        "requests": imported["requests"],
        "keys": imported["touched_keys"],
        "lru": sum(errors) / len(errors),
        "largest": max(errors),
        "exact": imported["mean_absolute_error"],
    }


def main():
    folder, command = sys.argv[1], sys.argv[2:]
    passed = failed = 0
    print(f"{'trace':<34} {'sizes':<8} {'requests':>9} {'keys':>8} {'against LRU':>12} {'largest':>9} {'against exact':>14}")
    for trace in TRACES:
        for same_size in (True, False):
            try:
                row = compared(command, folder, trace, same_size)
            except (RuntimeError, KeyError, ValueError) as error:
                print(f"FAILED {trace[2]}: {error}")
                failed += 1
                continue
            good = row["lru"] < BOUND and row["exact"] < BOUND
            passed, failed = passed + good, failed + (not good)
            print(f"{trace[2]:<34} {'same' if same_size else 'own':<8} {row['requests']:>9} {row['keys']:>8} {row['lru']:>12.5f} "
                  f"{row['largest']:>9.5f} {row['exact']:>14.5f} {'passed' if good else 'FAILED'}", flush=True)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


sys.exit(main())
