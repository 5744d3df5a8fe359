#!/usr/bin/env python3
"""Measures searches of a large index at rest, then with indexing at full speed beside them, and the memory of the node.

    scripts/bench-search-large.py [DIR [DOCUMENTS [SECONDS]]]        default: ./large-data 10000000 60

The documents and the 15 queries are those of `terrace bench rally`. A node with `[search] memory` 1 GiB is loaded by two clients with
bulks of 5,000, durable before their response. Then one client runs the queries in turns: for SECONDS at rest, and for twice as long while
two clients index further documents into the same index. No merge by request: the index has the segments that it has. Beside both, one sender
sends HL7 messages to the same node, 100 a second, each after the acknowledgement of the one before; these are not indexed.

Memory is the peak of the resident memory of the process, mapped files included. DIR keeps the node's data: a second run over as many
documents measures at once. TERRACE names the program, else target/release/terrace. Exit code 1 after an error of any request.

Only the standard library is used.
"""

import http.client
import itertools
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time

BULK = 5000
CLIENTS = 2
SETTINGS = 'listen = "127.0.0.1:0"\n[search]\nlisten = "127.0.0.1:0"\ntrust = true\nmemory = "1GiB"\nmessages = false\n'


def program():
    repo = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    target = os.environ.get("CARGO_TARGET_DIR", repo + "/target")
    return os.path.abspath(os.environ.get("TERRACE", target + "/release/terrace"))


class Node:
    def __init__(self, folder):
        with open(folder + "/terrace.toml", "w") as file:
            file.write(SETTINGS)
        self.log = open(folder + "/log", "w+")
        self.folder = folder
        if not os.path.exists(folder + "/made"):
            subprocess.run([program(), "production", "new", "made"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        self.process = subprocess.Popen([program(), "serve", "--production", "made"], cwd=folder, stdout=subprocess.DEVNULL, stderr=self.log)
        for _ in range(6000):
            with open(folder + "/log") as log:
                found = re.search(r"search address=(\S+)", log.read())
            if found:
                host, port = found[1].split(":")
                self.address = (host, int(port))
                return
            if self.process.poll() is not None:
                break
            time.sleep(0.1)
        sys.exit("the node does not start: " + open(folder + "/log").read()[-2000:])

    def memory(self):
        with open(f"/proc/{self.process.pid}/status") as file:
            return {key: int(value) // 1024 for key, value in re.findall(r"(VmHWM|VmRSS|RssFile):\s+(\d+) kB", file.read())}

    def production(self):
        done = subprocess.run([program(), "status", "--json"], cwd=self.folder, capture_output=True, check=True)
        host, port = json.loads(done.stdout)["services"][0]["at"].rsplit(":", 1)
        return host, int(port)

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()


class Client:
    def __init__(self, address):
        self.connection = http.client.HTTPConnection(*address, timeout=600)
        self.connection.connect()

    def send(self, method, target, body=None, kind="application/json"):
        self.connection.request(method, target, body, {"Content-Type": kind})
        response = self.connection.getresponse()
        return response.status, response.read()


def index(node, lines, until, counts):
    """Sends bulks of `lines`, shared by the clients, until there are none or `until` says so."""
    lock, failed = threading.Lock(), []

    def work():
        client = Client(node.address)
        while not until():
            with lock:
                part = list(itertools.islice(lines, BULK))
            if not part:
                return
            body = "".join('{"index":{}}\n' + line for line in part).encode()
            while True:
                status, answer = client.send("PUT", "/large/_bulk", body, "application/x-ndjson")
                if status != 429:
                    break
                counts["429"] += 1
                time.sleep(0.2)
            if status != 200 or b'"errors":false' not in answer[:100]:
                failed.append((status, answer[:300]))
                return
            counts["documents"] += len(part)

    threads = [threading.Thread(target=work) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    return threads, failed


def acknowledged(address, until):
    """Sends messages until the event is set; the milliseconds that each acknowledgement took."""
    times = []

    def work():
        client = socket.create_connection(address, timeout=600)
        while not until.is_set():
            text = (f"MSH|^~\\&|LAB|A|ALL|A|20260101||ADT^A01|L{time.time_ns()}|P|2.5\rEVN|A01|20260101\r"
                    "PID|1||1^^^H||Doe^Jane||19700101|F\rPV1|1|I|W^1\r")
            begun, answer = time.monotonic(), b""
            client.sendall(b"\x0b" + text.encode() + b"\x1c\r")
            while not answer.endswith(b"\x1c\r"):
                answer += client.recv(65536) or sys.exit("the connection for messages was closed")
            times.append((time.monotonic() - begun) * 1000)
            until.wait(0.01)

    thread = threading.Thread(target=work)
    thread.start()
    return thread, times


def percentile(times, share):
    return sorted(times)[min(int(len(times) * share), len(times) - 1)]


def searches(node, queries, seconds):
    client, times, failed = Client(node.address), {name: [] for name, _ in queries}, []
    for number, (name, body) in enumerate(itertools.cycle(queries)):
        if number % len(queries) == 0:
            if number == len(queries):
                times = {name: [] for name, _ in queries}
                end = time.monotonic() + seconds
            if number > len(queries) and time.monotonic() > end:
                return times, failed
        begun = time.monotonic()
        status, answer = client.send("GET", "/large/_search", body)
        times[name].append((time.monotonic() - begun) * 1000)
        if status != 200:
            failed.append((name, status, answer[:300]))


def main():
    folder = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else "large-data")
    documents = int(sys.argv[2]) if len(sys.argv) > 2 else 10_000_000
    seconds = float(sys.argv[3]) if len(sys.argv) > 3 else 60
    os.makedirs(folder, exist_ok=True)
    track = folder + "/track"
    if not os.path.exists(track + "/done"):
        # Half as many more, for the indexing beside the searches.
        subprocess.run([program(), "bench", "rally", "--track", track, "--docs", str(documents * 3 // 2)], check=True)
        open(track + "/done", "w").close()
    with open(track + "/operations.json") as file:
        queries = [(one["name"], json.dumps(one["body"])) for one in json.loads("[" + file.read() + "]") if "pages" not in one]
    node = Node(folder)
    client, counts, bad = Client(node.address), {"documents": 0, "429": 0}, []
    time.sleep(3)
    print("memory after the start, MiB:", node.memory(), flush=True)
    try:
        lines = open(track + "/documents.json")
        status, answer = client.send("GET", "/large/_count")
        there = json.loads(answer)["count"] if status == 200 else 0
        if there < documents:
            with open(track + "/index.json") as file:
                client.send("PUT", "/large", file.read())
            begun = time.monotonic()
            left = itertools.islice(lines, there, documents)
            threads, failed = index(node, left, lambda: False, counts)
            for thread in threads:
                thread.join()
            bad += failed
            took = time.monotonic() - begun
            print(f"{counts['documents']} documents in {took:.0f} s: {counts['documents'] / took:.0f} docs/s, {counts['429']} times 429")
        else:
            lines = itertools.islice(lines, there, None)
        client.send("POST", "/large/_flush")
        client.send("POST", "/large/_refresh")
        # Merges under way end first.
        cpu = lambda: sum(map(int, open(f"/proc/{node.process.pid}/stat").read().rsplit(")", 1)[1].split()[11:13]))
        quiet, last = 0, cpu()
        while quiet < 5:
            time.sleep(1)
            quiet, last = (quiet + 1, cpu()) if cpu() - last < 10 else (0, cpu())
        count = json.loads(client.send("GET", "/large/_count")[1])["count"]
        segments = len(client.send("GET", "/_cat/segments/large")[1].splitlines())
        print(f"{count} documents in {segments} segments; memory after loading, MiB: {node.memory()}", flush=True)
        ends = threading.Event()
        sender, acks = acknowledged(node.production(), ends)
        rest, failed = searches(node, queries, seconds)
        ends.set()
        sender.join()
        bad += failed
        print("memory after searches at rest, MiB:", node.memory(), flush=True)
        ends, counts["documents"] = threading.Event(), 0
        sender, acks_beside = acknowledged(node.production(), ends)
        begun = time.monotonic()
        threads, failed_bulks = index(node, lines, ends.is_set, counts)
        beside, failed = searches(node, queries, 2 * seconds)
        took = time.monotonic() - begun
        ends.set()
        for thread in [*threads, sender]:
            thread.join()
        bad += failed + failed_bulks
        print(f"beside: {counts['documents'] / took:.0f} docs/s; memory, MiB: {node.memory()}")
        print(f"{'ms':24} {'rest p50':>9} {'p99':>9} {'beside p50':>11} {'p99':>9} {'p99 ratio':>10} {'searches':>9}")
        for name, _ in queries:
            numbers = [percentile(times[name], share) for times in (rest, beside) for share in (0.5, 0.99)]
            ratio = numbers[3] / numbers[1]
            print(f"{name:24} {numbers[0]:9.2f} {numbers[1]:9.2f} {numbers[2]:11.2f} {numbers[3]:9.2f} {ratio:10.2f} {len(beside[name]):9}")
        every = [[time for times in side.values() for time in times] for side in (rest, beside)]
        for what, times in (("queries at rest", acks), ("queries and indexing", acks_beside)):
            print(f"acknowledgements beside {what}: {len(times)}, p50 {percentile(times, 0.5):.1f} ms, p99 {percentile(times, 0.99):.1f}, "
                  f"longest {max(times):.1f}")
        print(f"all: p99 {percentile(every[0], 0.99):.1f} at rest, {percentile(every[1], 0.99):.1f} beside")
    finally:
        node.stop()
    for error in bad:
        print("error:", error)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
