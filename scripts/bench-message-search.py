#!/usr/bin/env python3
"""Measures searches of many stored HL7 messages, at rest and while messages flow in.

    scripts/bench-message-search.py [DIR [MESSAGES [RATE [SECONDS]]]]        default: ./message-data 5000000 1000 120

A node with `[search] memory` 1 GiB stores MESSAGES results (ORU^R01, some 900 bytes, seed 1: patients, accession numbers and words that are
drawn; words by Zipf's law). Four connections send them, each with 64 in flight, each counted when it is acknowledged. Once the index has
all of them, one client searches over HTTP, newest 20 first, in turns: by MRN, by accession number, by two words. First at rest, then
while messages come in at RATE a second, for SECONDS each. Every drawn MRN and accession number is one that was sent; an answer
without a hit, or with one that does not have it, is an error.

DIR keeps the node's data: a second run measures at once. TERRACE names the program, else target/release/terrace. Exit code 1 after
an error. Only the standard library is used.
"""

import bisect
import itertools
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import http.client

CONNECTIONS, IN_FLIGHT = 4, 64
SETTINGS = 'listen = "127.0.0.1:0"\n[search]\nlisten = "127.0.0.1:0"\ntrust = true\nmemory = "1GiB"\n'
WORDS = 20_000
PATIENTS = 500_000


def program():
    repo = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    target = os.environ.get("CARGO_TARGET_DIR", repo + "/target")
    return os.path.abspath(os.environ.get("TERRACE", target + "/release/terrace"))


class Messages:
    """Message number N, always the same."""

    def __init__(self):
        made = random.Random(1)
        letters = "abcdefghilmnoprstu"
        self.words = list(dict.fromkeys("".join(made.choices(letters, k=made.randint(4, 11))) for _ in range(WORDS)))
        weights = list(itertools.accumulate(1 / (rank + 10) for rank in range(len(self.words))))
        self.weights = weights

    def word(self, drawn):
        return self.words[bisect.bisect(self.weights, drawn.random() * self.weights[-1])]

    def text(self, number):
        drawn = random.Random(number)
        patient, at = drawn.randrange(PATIENTS), 1_700_000_000 + number
        stamp = time.strftime("%Y%m%d%H%M%S", time.gmtime(at))
        report = " ".join(self.word(drawn) for _ in range(40))
        values = "\r".join(
            f"OBX|{index}|NM|{code}^{name}^LN||{drawn.randint(10, 990) / 10}|{unit}|||||F|||{stamp}"
            for index, (code, name, unit) in enumerate((("2951-2", "SODIUM", "mmol/L"), ("2823-3", "POTASSIUM", "mmol/L"), ("718-7", "HGB", "g/dL")), 1)
        )
        return (
            f"MSH|^~\\&|LAB|NORTH|EHR|MAIN|{stamp}||ORU^R01|C{number}|P|2.5\r"
            f"PID|1||{mrn(patient)}^^^HIS^MR||{self.words[patient % 9_000].upper()}^{self.words[patient % 7_001].title()}||19{patient % 90 + 10}0101|F\r"
            f"PV1|1|I|W{patient % 40}^{patient % 12}^1||||||||||||||||V{patient}\r"
            f"ORC|RE|P{number}|F{number}\r"
            f"OBR|1|P{number}|{accession(number)}|24323-8^PANEL^LN|||{stamp}\r"
            f"{values}\r"
            f"NTE|1||{report}\r"
        ).encode()


def mrn(patient):
    return f"M{patient * 7919 % 1_000_003:07}"


def accession(number):
    return f"A{number * 104_729 % 100_000_007:09}"


class Node:
    def __init__(self, folder):
        with open(folder + "/terrace.toml", "w") as file:
            file.write(SETTINGS)
        self.log, self.folder = open(folder + "/log", "w+"), folder
        fresh = not os.path.exists(folder + "/made")
        if fresh:
            subprocess.run([program(), "production", "new", "made"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
            with open(folder + "/made/rules/main.rules", "w") as file:
                file.write('match first\n\notherwise {\n  drop "stored, and searched"\n}\n')
            os.remove(folder + "/made/operations/archive.toml")
            os.remove(folder + "/made/transforms/to-archive.hl7t")
        self.process = subprocess.Popen([program(), "serve", "--production", "made"], cwd=folder, stdout=subprocess.DEVNULL, stderr=self.log)
        self.address = None
        for _ in range(6000):
            with open(folder + "/log") as log:
                found = re.search(r"search address=(\S+)", log.read())
            if found:
                host, port = found[1].split(":")
                self.address = (host, int(port))
                break
            if self.process.poll() is not None:
                break
            time.sleep(0.1)
        if self.address is None:
            sys.exit("the node does not start: " + open(folder + "/log").read()[-2000:])
        if fresh:
            self.command("role", "grant", "message-body", "unmasked", "--on", "service *", "--to", "terrace_local")

    def command(self, *words):
        return subprocess.run([program(), *words], cwd=self.folder, capture_output=True, check=True).stdout

    def intake(self):
        host, port = json.loads(self.command("status", "--json"))["services"][0]["at"].rsplit(":", 1)
        return host, int(port)

    def memory(self):
        with open(f"/proc/{self.process.pid}/status") as file:
            return {key: int(value) // 1024 for key, value in re.findall(r"(VmHWM|VmRSS|RssFile):\s+(\d+) kB", file.read())}

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()


def send_all(address, first, last):
    """Sends messages of one connection, with IN_FLIGHT not acknowledged; returns when the last is."""
    messages, client = Messages(), socket.create_connection(address, timeout=600)
    sent, acknowledged, answer = first, first, b""
    while acknowledged < last:
        part = [b"\x0b" + messages.text(number) + b"\x1c\r" for number in range(sent, min(last, acknowledged + IN_FLIGHT))]
        if part:
            client.sendall(b"".join(part))
            sent += len(part)
        answer += client.recv(1 << 16) or sys.exit("the connection for messages was closed")
        *whole, answer = answer.split(b"\x1c\r")
        if any(b"MSA|AA" not in one for one in whole):
            sys.exit("not accepted: " + repr(whole[0]))
        acknowledged += len(whole)


def load(node, messages):
    """Sends all messages from processes, since one interpreter is slower than the node."""
    address, share = node.intake(), messages // CONNECTIONS
    begun, children = time.monotonic(), []
    for index in range(CONNECTIONS):
        child = os.fork()
        if child == 0:
            send_all(address, index * share, messages if index + 1 == CONNECTIONS else (index + 1) * share)
            os._exit(0)
        children.append(child)
    if any(os.waitpid(child, 0)[1] for child in children):
        sys.exit("a sender failed")
    return time.monotonic() - begun


def flow(address, first, rate, until):
    """Sends messages at a rate until the event is set; milliseconds from a message's time to its acknowledgement."""
    messages, times = Messages(), []

    def work():
        client, number, begun = socket.create_connection(address, timeout=600), first, time.monotonic()
        due, answer = [], b""
        client.setblocking(False)
        while not until.is_set():
            now = time.monotonic()
            while begun + (number - first) / rate <= now:
                client.setblocking(True)
                client.sendall(b"\x0b" + messages.text(number) + b"\x1c\r")
                client.setblocking(False)
                due.append(begun + (number - first) / rate)
                number += 1
            try:
                answer += client.recv(1 << 16)
            except BlockingIOError:
                time.sleep(0.001)
            *whole, answer = answer.split(b"\x1c\r")
            now = time.monotonic()
            times.extend((now - sent) * 1000 for sent in due[: len(whole)])
            del due[: len(whole)]

    thread = threading.Thread(target=work)
    thread.start()
    return thread, times


class Search:
    def __init__(self, node):
        self.client = http.client.HTTPConnection(*node.address, timeout=600)
        self.client.connect()

    def ask(self, target, body=None):
        self.client.request("POST" if body else "GET", target, body and json.dumps(body), {"Content-Type": "application/json"})
        response = self.client.getresponse()
        return response.status, json.loads(response.read())


def searches(node, messages, seconds):
    """Times of each kind of search, and what was wrong."""
    texts, drawn, client = Messages(), random.Random(7), Search(node)
    times, wrong = {"by MRN": [], "by accession number": [], "two words": []}, []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        number = drawn.randrange(messages)
        patient = random.Random(number).randrange(PATIENTS)
        words = [texts.word(drawn), texts.word(drawn)]
        for kind, query in (
            ("by MRN", {"term": {"mrn": mrn(patient)}}),
            ("by accession number", {"term": {"accession": accession(number)}}),
            ("two words", {"match": {"text": {"query": " ".join(words), "operator": "and"}}}),
        ):
            body = {"query": query, "size": 20, "sort": [{"received": "desc"}]}
            begun = time.monotonic()
            status, answer = client.ask("/.messages/_search", body)
            times[kind].append((time.monotonic() - begun) * 1000)
            hits = answer["hits"]["hits"] if status == 200 else []
            if status != 200 or (kind != "two words" and not hits):
                wrong.append((kind, query, status, str(answer)[:300]))
            expected = {"by MRN": mrn(patient), "by accession number": accession(number)}.get(kind)
            if expected and not all(expected in json.dumps(hit) for hit in hits):
                wrong.append((kind, query, "a hit does not have it"))
    return times, wrong


def percentile(times, share):
    return sorted(times)[min(int(len(times) * share), len(times) - 1)]


def main():
    folder = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else "message-data")
    messages = int(sys.argv[2]) if len(sys.argv) > 2 else 5_000_000
    rate = float(sys.argv[3]) if len(sys.argv) > 3 else 1_000
    seconds = float(sys.argv[4]) if len(sys.argv) > 4 else 120
    os.makedirs(folder, exist_ok=True)
    node, wrong = Node(folder), []
    try:
        if not os.path.exists(folder + "/loaded"):
            took = load(node, messages)
            open(folder + "/loaded", "w").close()
            print(f"{messages} messages in {took:.0f} s: {messages / took:.0f} a second, acknowledged; memory, MiB: {node.memory()}", flush=True)
        client = Search(node)
        count = lambda: client.ask("/.messages/_count")[1].get("count", 0)
        begun, there = time.monotonic(), count()
        while there < messages:
            time.sleep(2)
            if time.monotonic() - begun > 7200:
                sys.exit(f"the index has {there} of {messages} after two hours")
            there = count()
        print(f"the index has {there} messages after another {time.monotonic() - begun:.0f} s; memory, MiB: {node.memory()}", flush=True)
        time.sleep(10)
        rest, bad = searches(node, messages, seconds)
        wrong += bad
        ends = threading.Event()
        sender, acknowledged = flow(node.intake(), there, rate, ends)
        beside, bad = searches(node, messages, seconds)
        wrong += bad
        ends.set()
        sender.join()
        print(f"memory, MiB: {node.memory()}; {len(acknowledged) / seconds:.0f} messages a second came in beside, acknowledged within "
              f"{percentile(acknowledged, 0.5):.1f} ms at the median, {percentile(acknowledged, 0.99):.1f} at p99")
        print(f"{'ms':22} {'rest p50':>9} {'p99':>8} {'p999':>8} {'beside p50':>11} {'p99':>8} {'p999':>8} {'searches':>9}")
        for kind in rest:
            numbers = [percentile(side[kind], share) for side in (rest, beside) for share in (0.5, 0.99, 0.999)]
            print(f"{kind:22} {numbers[0]:9.2f} {numbers[1]:8.2f} {numbers[2]:8.2f} {numbers[3]:11.2f} {numbers[4]:8.2f} {numbers[5]:8.2f} {len(beside[kind]):9}")
    finally:
        node.stop()
    for error in wrong[:20]:
        print("error:", error)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
