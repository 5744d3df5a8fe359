#!/usr/bin/env python3
"""Hostile NBD clients beside a node's messages and another volume: how much longer do those take?

    scripts/bench-hostile-clients.py TERRACE [SECONDS]

A node serves a production and two volumes: `calm`, read and written 4 KiB at a time by one client, and `target`, with a bandwidth limit. Messages
go in at the same time, each after the acknowledgement of the one before. First both are measured alone, then beside each attack in turn:

    half      300 connections that send half of a handshake
    flood     8 connections that send writes of 32 MiB without an end, as fast as they are taken
    deaf      8 connections that ask for 32 MiB again and again and never read a reply
    storm     connections that are opened, negotiate and are dropped, without a pause

Each attack must leave p99 of messages and of the calm volume below 250 ms (on two processors that the attackers use too), nothing may fail, and
the memory of the node must stay below 1 GiB. Only Python's own library is used.
"""

import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

BOUND_MS = 250
MEMORY_MAX = 1 << 30
BLOCK = 4096


class Nbd:
    """A client that does as little as it has to."""

    def __init__(self, path, export):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(60)
        self.socket.connect(path)
        self.take(18)
        data = struct.pack(">I", len(export)) + export.encode() + struct.pack(">H", 0)
        self.socket.sendall(struct.pack(">I", 3) + b"IHAVEOPT" + struct.pack(">II", 7, len(data)) + data)
        while True:
            _, _, kind, length = struct.unpack(">QIII", self.take(20))
            body = self.take(length)
            if kind == 1:
                return
            if kind & 0x8000_0000:
                raise OSError(f"{export}: {body.decode(errors='replace')}")

    def take(self, length):
        parts = bytearray()
        while len(parts) < length:
            part = self.socket.recv(length - len(parts))
            if not part:
                raise OSError("the server has closed the connection")
            parts += part
        return bytes(parts)

    def ask(self, kind, offset, length, payload=b"", flags=0):
        self.socket.sendall(struct.pack(">IHHQQI", 0x25609513, flags, kind, 1, offset, length) + payload)

    def succeeds(self):
        _, error, _ = struct.unpack(">IIQ", self.take(16))
        if error:
            raise OSError(f"error {error}")

    def read(self, offset, length):
        self.ask(0, offset, length)
        self.succeeds()
        return self.take(length)

    def write(self, offset, payload):
        self.ask(1, offset, len(payload), payload, flags=1)
        self.succeeds()


def half(path, stop):
    held = []
    while not stop.is_set():
        if len(held) < 300:
            one = socket.socket(socket.AF_UNIX)
            one.connect(path)
            one.send(b"\0\0")
            held.append(one)
        else:
            time.sleep(0.05)


def flood(path, stop):
    payload = os.urandom(1 << 20)
    while not stop.is_set():
        try:
            one = Nbd(path, "target")
            one.socket.settimeout(1)
            while not stop.is_set():
                one.ask(1, 0, 32 << 20)
                for _ in range(32):
                    one.socket.sendall(payload)
        except OSError:
            time.sleep(0.01)


def deaf(path, stop):
    while not stop.is_set():
        try:
            one = Nbd(path, "target")
            one.socket.settimeout(1)
            while not stop.is_set():
                one.ask(0, 0, 32 << 20)
        except OSError:
            stop.wait(1)


def storm(path, stop):
    while not stop.is_set():
        try:
            Nbd(path, "target").socket.close()
        except OSError:
            time.sleep(0.01)


ATTACKS = [("half", half, 1), ("flood", flood, 8), ("deaf", deaf, 8), ("storm", storm, 2)]


def quantile(times, part):
    return sorted(times)[min(len(times) - 1, int(len(times) * part))] * 1000


def blocks(path, until, times, problems):
    """Writes a block durably, reads it back, and again."""
    try:
        client, number = Nbd(path, "calm"), 0
        while time.monotonic() < until:
            number += 1
            offset, content = number % 1024 * BLOCK, struct.pack(">Q", number) * (BLOCK // 8)
            began = time.monotonic()
            client.write(offset, content)
            times.append(time.monotonic() - began)
            began = time.monotonic()
            if client.read(offset, BLOCK) != content:
                raise OSError(f"block {offset} has other content")
            times.append(time.monotonic() - began)
    except OSError as problem:
        problems.append(f"calm volume: {problem}")


def messages(address, until, times, problems):
    """Sends a message, waits for its acknowledgement, and again."""
    try:
        client, number = socket.create_connection(address, timeout=60), 0
        while time.monotonic() < until:
            number += 1
            text = (
                f"MSH|^~\\&|LAB|A|ALL|A|20260101||ADT^A01|H{time.time_ns()}|P|2.5\rEVN|A01|20260101\r"
                f"PID|1||{number}^^^H||Doe^Jane||19700101|F\rPV1|1|I|W^1\r"
            )
            began = time.monotonic()
            client.sendall(b"\x0b" + text.encode() + b"\x1c\r")
            answer = b""
            while not answer.endswith(b"\x1c\r"):
                part = client.recv(65536)
                if not part:
                    raise OSError("the connection was closed")
                answer += part
            times.append(time.monotonic() - began)
            if b"MSA|AA" not in answer:
                raise OSError(f"it was not accepted: {answer!r}")
    except OSError as problem:
        problems.append(f"messages: {problem}")


def memory_of(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS"))


class Node:
    def __init__(self, terrace, folder):
        self.terrace, self.folder = terrace, folder
        self.run("production", "new", "made")
        self.run("volume", "create", "calm", "--size", "64MiB")
        self.run("volume", "create", "target", "--size", "64MiB", "--bandwidth", "50MiB")
        with open(os.path.join(folder, "log"), "w", encoding="utf-8") as log:
            self.process = subprocess.Popen([terrace, "serve", "--production", "made"], cwd=folder, stdout=log, stderr=log)
        for _ in range(600):
            if os.path.exists(os.path.join(folder, "terrace-data/nbd.sock")) and self.status():
                break
            time.sleep(0.1)
        self.run("volume", "export", "calm")
        self.run("volume", "export", "target")
        self.path = os.path.join(folder, "terrace-data/nbd.sock")
        host, port = self.status()["services"][0]["at"].rsplit(":", 1)
        self.address = (host, int(port))

    def run(self, *words):
        done = subprocess.run([self.terrace, *words], cwd=self.folder, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"terrace {' '.join(words)}: {done.stdout}{done.stderr}")
        return done.stdout

    def status(self):
        done = subprocess.run([self.terrace, "status", "--json"], cwd=self.folder, capture_output=True, text=True, check=False)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def measured(self, seconds):
        until = time.monotonic() + seconds
        volume, acknowledged, problems = [], [], []
        threads = [
            threading.Thread(target=blocks, args=(self.path, until, volume, problems)),
            threading.Thread(target=messages, args=(self.address, until, acknowledged, problems)),
        ]
        for thread in threads:
            thread.start()
        most = 0
        while any(thread.is_alive() for thread in threads):
            most = max(most, memory_of(self.process.pid))
            time.sleep(0.1)
        return volume, acknowledged, problems, most


def attackers(name, path):
    """Attackers have a process of their own: their interpreter must not slow what is measured."""
    work, count = next((work, count) for attack, work, count in ATTACKS if attack == name)
    stop = threading.Event()
    for _ in range(count):
        threading.Thread(target=work, args=(path, stop), daemon=True).start()
    sys.stdin.read()
    os._exit(0)


def main():
    terrace, seconds = os.path.realpath(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 5
    folder, passed, failed, node = tempfile.mkdtemp(), 0, 0, None
    try:
        node = Node(terrace, folder)
        print(f"{'attack':<8} {'messages':>9} {'p50 ms':>8} {'p99 ms':>8}   {'volume I/O':>10} {'p50 ms':>8} {'p99 ms':>8}   {'MiB':>6}")
        for name in ["none", *[attack for attack, _, _ in ATTACKS], "none"]:
            attacker = None
            if name != "none":
                attacker = subprocess.Popen([sys.executable, __file__, "--attack", name, node.path], stdin=subprocess.PIPE)
                time.sleep(1)
            volume, acknowledged, problems, most = node.measured(seconds)
            if attacker:
                attacker.stdin.close()
                attacker.wait()
            if node.process.poll() is not None:
                problems.append("the node has ended")
            if not volume or not acknowledged:
                problems.append("nothing was done")
            else:
                print(
                    f"{name:<8} {len(acknowledged):>9} {quantile(acknowledged, 0.5):>8.1f} {quantile(acknowledged, 0.99):>8.1f}   "
                    f"{len(volume):>10} {quantile(volume, 0.5):>8.1f} {quantile(volume, 0.99):>8.1f}   {most >> 20:>6}",
                    flush=True,
                )
                for what, times in [("messages", acknowledged), ("the calm volume", volume)]:
                    if quantile(times, 0.99) > BOUND_MS:
                        problems.append(f"p99 of {what} is {quantile(times, 0.99):.0f} ms")
            if most > MEMORY_MAX:
                problems.append(f"the node used {most >> 20} MiB")
            passed, failed = (passed, failed + 1) if problems else (passed + 1, failed)
            for problem in problems:
                print(f"FAILED {name}: {problem}")
    finally:
        if node:
            node.process.terminate()
            node.process.wait()
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--attack"]:
        attackers(sys.argv[2], sys.argv[3])
    elif len(sys.argv) < 2:
        sys.exit(__doc__)
    else:
        sys.exit(main())
