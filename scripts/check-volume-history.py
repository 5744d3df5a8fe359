#!/usr/bin/env python3
"""Checks a volume of three copies block by block, in real processes that are killed, stalled and damaged under load.

    scripts/check-volume-history.py [SECONDS [SEED [DIR]]]        default: 1800, a random seed, a new folder in /dev/shm

    clients --NBD--> owner (copy 0) --NBD--> place of copy 1
                                    --NBD--> place of copy 2

Each process may end at any time by kill -9. Every block has a history: the last value that is certain (acknowledged, or read), and the
values of later writes whose outcome is unknown, because the connection broke or the write failed. A read must return one of these; what
it returns is certain from then on. A write is one to sixteen blocks of 4 KiB, or zeroes.

Faults, at random times: a place or the owner killed, a place or the owner stalled, two places down (writes wait), owner and place killed
together, a place killed while its copy is brought up to date, bytes of a place changed, a block of a place written over another one, and a
place that comes back with the files that it had some time ago. After each round (about a minute) all processes run, all copies are in
sync again (a damaged copy that cannot be is made anew, as `status` says), every block is read, a scrub repairs what was damaged, and a second
scrub finds nothing.

The last line is `N passed, N failed`: rounds. After a failure DIR stays, and the seed is printed: it gives the same faults at the same times,
but not the same outcome, since the processes run as the machine lets them. TERRACE names the program, else target/release/terrace.
Only the standard library is used.
"""

import hashlib
import json
import os
import random
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

BLOCK = 4096
BLOCKS = 4096  # 16 MiB: each block is written many times
VOLUME = "64MiB"
PLACE = "120MiB"
CLIENTS = 3
DEPTH = 16
ROUND = 45.0
READ, WRITE, FLUSH, ZEROES = 0, 1, 3, 6


def program():
    repo = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    target = os.environ.get("CARGO_TARGET_DIR", repo + "/target")
    return os.path.abspath(os.environ.get("TERRACE", target + "/release/terrace"))


def content(block, value):
    """What a block contains after the write with this number; 0 stands for zeroes."""
    if value == 0:
        return bytes(BLOCK)
    head = struct.pack(">QQ", block, value)
    return (head + hashlib.blake2b(head, digest_size=48).digest()) * (BLOCK // 64)


def value_of(block, data):
    """The number of the write that left this; none if no single write did."""
    if data == bytes(BLOCK):
        return 0
    found, value = struct.unpack(">QQ", data[:16])
    return value if found == block and data == content(block, value) else None


class Violation(Exception):
    pass


class Block:
    """The history of a block: what is certain, and the later writes of unknown outcome, in their order."""

    def __init__(self):
        self.certain, self.unknown = 0, []

    def begun(self, value):
        self.unknown.append(value)

    def acknowledged(self, value):
        self.certain, self.unknown = value, []

    def was_read(self, number, data):
        value = value_of(number, data)
        if value == self.certain:
            return
        if value is None or value not in self.unknown:
            what = "neither zeroes nor what one write left" if value is None else f"write {value}"
            raise Violation(f"block {number} contains {what}; certain is {self.certain}, unknown are {self.unknown}")
        at = self.unknown.index(value)
        self.certain, self.unknown = value, self.unknown[at + 1:]


class Connection:
    """A client of NBD: fixed newstyle, simple replies."""

    def __init__(self, path, export):
        self.socket = socket.socket(socket.AF_UNIX)
        # A write waits 30 s for copies and fails then.
        self.socket.settimeout(90)
        self.socket.connect(path)
        magic, option, _ = struct.unpack(">8s8sH", self.exactly(18))
        if (magic, option) != (b"NBDMAGIC", b"IHAVEOPT"):
            raise OSError("no NBD server")
        name = export.encode()
        self.socket.sendall(struct.pack(">I", 3) + b"IHAVEOPT" + struct.pack(">III", 7, 6 + len(name), len(name)) + name + b"\0\0")
        while True:
            _, _, kind, length = struct.unpack(">QIII", self.exactly(20))
            self.exactly(length)
            if kind == 1:
                return
            if kind >= 1 << 31:
                raise OSError(f"the export is refused: {kind:#x}")

    def exactly(self, length):
        data = bytearray()
        while len(data) < length:
            part = self.socket.recv(length - len(data))
            if not part:
                raise OSError("the connection was closed")
            data += part
        return bytes(data)

    def send(self, kind, cookie, block, count, data=b""):
        self.socket.sendall(struct.pack(">IHHQQI", 0x25609513, 0, kind, cookie, block * BLOCK, count * BLOCK) + data)

    def reply(self):
        magic, error, cookie = struct.unpack(">IIQ", self.exactly(16))
        if magic != 0x67446698:
            raise OSError("no reply")
        return error, cookie

    def close(self):
        self.socket.close()


class Client(threading.Thread):
    """Has every CLIENTS-th group of sixteen blocks to itself, so that the order of writes to a block is known."""

    def __init__(self, check, number):
        super().__init__(daemon=True)
        self.check, self.number = check, number
        self.random = random.Random(check.seed * 31 + number)
        self.blocks = {}
        self.value = 0
        self.connection = None

    def run(self):
        try:
            while not self.check.is_over:
                if self.check.pause.is_set():
                    self.check.paused[self.number].set()
                    time.sleep(0.05)
                    continue
                self.check.paused[self.number].clear()
                self.step(self.requests())
        except Violation as violation:
            self.check.violated(violation)
        except Exception as error:  # a fault of this script
            self.check.violated(f"client {self.number}: {error!r}")

    def requests(self):
        groups = self.random.sample(range(self.number, BLOCKS // 16, CLIENTS), DEPTH)
        for group in groups:
            count = self.random.choice([1, 1, 1, 4, 16])
            first = group * 16 + self.random.randrange(17 - count)
            yield self.random.choice([READ, WRITE, WRITE, WRITE, WRITE, ZEROES]), first, count

    def read_all(self):
        """Reads all its blocks, with all processes running."""
        groups = range(self.number, BLOCKS // 16, CLIENTS)
        for group in groups:
            deadline = time.monotonic() + 120
            while not self.step([(READ, group * 16, 16)]):
                if time.monotonic() > deadline:
                    raise Violation(f"blocks {group * 16} to {group * 16 + 15} cannot be read, though all processes run")

    def block(self, number):
        return self.blocks.setdefault(number, Block())

    def step(self, requests):
        """Sends requests together and takes their replies. Returns whether all succeeded."""
        sent = {}
        try:
            if self.connection is None:
                self.connection = Connection(self.check.socket, "v")
            for kind, first, count in requests:
                data, values = b"", []
                if kind != READ:
                    for number in range(first, first + count):
                        if kind == WRITE:
                            self.value += 1
                        values.append(self.value if kind == WRITE else 0)
                        self.block(number).begun(values[-1])
                    if kind == WRITE:
                        data = b"".join(content(first + at, value) for at, value in enumerate(values))
                cookie = len(sent)
                sent[cookie] = (kind, first, count, values)
                self.connection.send(kind, cookie, first, count, data)
            return all([self.reply(sent) for _ in range(len(sent))])
        except OSError:
            if self.connection:
                self.connection.close()
            self.connection = None
            self.check.count("broken connections")
            time.sleep(0.05)
            return False

    def reply(self, sent):
        error, cookie = self.connection.reply()
        kind, first, count, values = sent.pop(cookie)
        if error:
            self.check.count("requests answered with an error")
            return False
        if kind == READ:
            data = self.connection.exactly(count * BLOCK)
            for at in range(count):
                self.block(first + at).was_read(first + at, data[at * BLOCK:(at + 1) * BLOCK])
            self.check.count("blocks read", count)
        else:
            for at, value in enumerate(values):
                self.block(first + at).acknowledged(value)
            self.check.count("blocks written and acknowledged", count)
        return True


class Process:
    """A process that exports a volume or a place: it is started again whenever it is to run and does not."""

    def __init__(self, folder, export):
        self.folder, self.export, self.process = folder, export, None

    def start(self):
        if self.process is None or self.process.poll() is not None:
            with open(self.folder + "/log", "a") as log:
                self.process = subprocess.Popen([program(), "volume", "export", self.export], cwd=self.folder, stdout=log,
                                                stderr=log, stdin=subprocess.DEVNULL)

    def signal(self, number):
        if self.process and self.process.poll() is None:
            self.process.send_signal(number)

    def kill(self):
        self.signal(signal.SIGKILL)
        if self.process:
            self.process.wait()


class Check:
    def __init__(self, seconds, seed, folder):
        self.seconds, self.seed, self.folder = seconds, seed, folder
        self.random = random.Random(seed)
        self.pause, self.is_over = threading.Event(), False
        self.paused = [threading.Event() for _ in range(CLIENTS)]
        self.lock, self.counts, self.failures = threading.Lock(), {}, []
        self.owner = Process(folder + "/owner", "v")
        self.places = [Process(f"{folder}/place{n}", f"c{n}") for n in (1, 2)]
        self.socket = folder + "/owner/terrace-data/nbd.sock"
        self.is_damaged, self.out_since = False, None
        self.ports = [unused_port() for _ in self.places]

    def count(self, what, number=1):
        with self.lock:
            self.counts[what] = self.counts.get(what, 0) + number

    def violated(self, what):
        with self.lock:
            self.failures.append(str(what))
        self.is_over = True

    def command(self, folder, *words, check=True):
        return subprocess.run([program(), "volume", *words], cwd=folder, capture_output=True, text=True, check=check, timeout=300)

    def set_up(self):
        for number, place in enumerate(self.places, 1):
            os.makedirs(place.folder)
            with open(place.folder + "/terrace.toml", "w") as file:
                file.write(f'[volumes]\nlisten = "127.0.0.1:{self.ports[number - 1]}"\nplaintext = true\n')
            self.command(place.folder, "create", place.export, "--size", PLACE, "--place")
            place.start()
        for port in self.ports:
            self.until("a place is served", lambda port=port: is_listening(port))
        os.makedirs(self.owner.folder)
        open(self.owner.folder + "/terrace.toml", "w").close()
        copies = [word for n in (1, 2) for word in ("--copy", f"nbd://127.0.0.1:{self.ports[n - 1]}/c{n}")]
        made = self.command(self.owner.folder, "create", "v", "--size", VOLUME, "--copy", "home", *copies, check=False)
        if made.returncode != 0:
            raise Violation(f"the volume was not made: {made.stderr.strip()}")
        self.owner.start()
        self.until("the volume is served", self.states)

    def until(self, what, is_true, seconds=120):
        began = time.monotonic()
        while not is_true():
            if self.is_over:
                return 0.0
            if time.monotonic() - began > seconds:
                raise Violation(f"not in {seconds} s: {what}")
            time.sleep(0.2)
        return time.monotonic() - began

    def states(self):
        """The states of the copies, none while the owner does not serve."""
        done = self.command(self.owner.folder, "status", "v", "--json", check=False)
        try:
            volume = json.loads(done.stdout)[0]
        except (ValueError, LookupError):
            return None
        return [copy["state"] for copy in volume["copies"]] if volume.get("state") == "open" else None

    def figures(self):
        return json.loads(self.command(self.owner.folder, "status", "v", "--json", check=False).stdout)[0]

    # Faults. Each ends with all processes running.

    def kill_place(self):
        place = self.random.choice(self.places)
        place.kill()
        self.wait(self.random.uniform(0.05, 3))
        place.start()

    def stall_place(self):
        place = self.random.choice(self.places)
        place.signal(signal.SIGSTOP)
        self.wait(self.random.uniform(0.5, 8))
        place.signal(signal.SIGCONT)

    def kill_owner(self):
        self.owner.kill()
        self.wait(self.random.uniform(0, 0.5))
        self.start_owner()

    def stall_owner(self):
        self.owner.signal(signal.SIGSTOP)
        self.wait(self.random.uniform(0.2, 3))
        self.owner.signal(signal.SIGCONT)

    def both_places_down(self):
        for place in self.places:
            place.kill()
            self.wait(self.random.uniform(0, 0.3))
        self.wait(self.random.uniform(0.5, 6))
        for place in self.places:
            place.start()

    def owner_and_place(self):
        place = self.random.choice(self.places)
        self.owner.kill()
        place.kill()
        self.start_owner()
        self.wait(self.random.uniform(0, 2))
        place.start()

    def interrupted_resync(self):
        place = self.random.choice(self.places)
        place.kill()
        self.wait(self.random.uniform(0.5, 2))
        place.start()
        number = self.places.index(place) + 1
        deadline = time.monotonic() + 70
        while time.monotonic() < deadline and not self.is_over:
            states = self.states()
            if states and states[number] == "syncing":
                self.count("resyncs interrupted")
                break
            if states and states[number] == "in-sync":
                break
            time.sleep(0.02)
        place.kill()
        place.start()

    def changed_bytes(self):
        """Bytes of copy 2 that nobody wrote. Others than one copy are not damaged in a round."""
        self.is_damaged = True
        path = self.files(self.places[1])
        with open(path, "r+b") as file:
            for _ in range(8):
                file.seek(self.random.randrange(os.path.getsize(path)))
                file.write(bytes([self.random.randrange(256)]))

    def misdirected_write(self):
        self.is_damaged = True
        path = self.files(self.places[1])
        with open(path, "r+b") as file:
            most = os.path.getsize(path) // BLOCK
            file.seek(self.random.randrange(most) * BLOCK)
            block = file.read(BLOCK)
            file.seek(self.random.randrange(most) * BLOCK)
            file.write(block)

    def stale_place(self):
        """A place comes back with the files that it had some seconds ago."""
        self.is_damaged = True
        place = self.places[1]
        place.signal(signal.SIGSTOP)
        data, before = place.folder + "/terrace-data", place.folder + "/before"
        shutil.copytree(data + "/volumes", before)
        place.signal(signal.SIGCONT)
        self.wait(self.random.uniform(1, 5))
        place.kill()
        shutil.rmtree(data + "/volumes")
        shutil.move(before, data + "/volumes")
        place.start()

    FAULTS = [kill_place, stall_place, kill_owner, stall_owner, both_places_down, owner_and_place, interrupted_resync, changed_bytes,
              misdirected_write, stale_place]

    def files(self, place):
        for folder, _, names in os.walk(place.folder + "/terrace-data/volumes"):
            if "place" in names:
                return folder + "/place"
        raise Violation(f"{place.folder} has no place")

    def wait(self, seconds):
        end = time.monotonic() + seconds
        while not self.is_over and time.monotonic() < end:
            time.sleep(min(0.1, max(0.0, end - time.monotonic())))

    def start_owner(self):
        """It does not open the volume while two copies are away: then it ends with an error, and is started again."""
        def is_served():
            self.owner.start()
            return self.states() is not None
        for place in self.places:
            place.start()
        self.until("the owner serves the volume again", is_served)

    # A round.

    def round(self):
        end = time.monotonic() + ROUND
        self.pause.clear()
        self.is_damaged = False
        while time.monotonic() < end and not self.is_over:
            self.wait(self.random.uniform(0.5, 4))
            fault = self.random.choice(self.FAULTS)
            self.count("fault: " + fault.__name__.replace("_", " "))
            fault(self)
        self.start_owner()
        took = self.until("all copies are in sync", self.are_in_sync, 300)
        self.counts["longest time until all copies were in sync, s"] = max(
            round(took, 1), self.counts.get("longest time until all copies were in sync, s", 0))
        self.pause.set()
        for paused in self.paused:
            self.until("the clients pause", paused.is_set)
        if self.is_over:
            return
        self.scrub()
        for client in self.clients:
            client.read_all()
        before = self.figures()
        self.scrub()
        after = self.figures()
        for key in ("damaged", "disputed"):
            if self.is_over is False and after["activity"][key] != before["activity"][key]:
                raise Violation(f"a second scrub found blocks {key}")
        repaired = [copy["repaired"] for copy in after["copies"]]
        if repaired != [copy["repaired"] for copy in before["copies"]]:
            raise Violation(f"a second scrub repaired blocks: {repaired}")

    def scrub(self):
        done = self.command(self.owner.folder, "scrub", "v", check=False)
        if done.returncode not in (0, 1):
            raise Violation("scrub: " + done.stderr)

    def are_in_sync(self):
        """A copy whose files were damaged or replaced may have to be made anew."""
        states = self.states()
        if states == ["in-sync"] * 3:
            return True
        if states and self.is_damaged and states[2] not in ("in-sync", "syncing") and not self.is_over:
            self.out_since = self.out_since or time.monotonic()
            if time.monotonic() - self.out_since > 15:
                self.out_since = None
                self.make_anew()
        else:
            self.out_since = None
        return False

    def make_anew(self):
        """Copy 2 on another place, as `status` says: an export cannot be made anew in the same place."""
        self.count("copies made anew")
        place, number = self.places[1], 2
        place.kill()
        former, place.export = place.export, f"c2-{self.counts['copies made anew']}"
        self.command(place.folder, "delete", former, "--yes")
        self.command(place.folder, "create", place.export, "--size", PLACE, "--place")
        place.start()
        uri = f"nbd://127.0.0.1:{self.ports[number - 1]}/{place.export}"
        replace = lambda: self.command(self.owner.folder, "replace", "v", str(number), "--copy", uri, check=False)
        self.until("the copy is made anew: " + uri, lambda: replace().returncode == 0)

    def run(self):
        self.set_up()
        self.clients = [Client(self, number) for number in range(CLIENTS)]
        for client in self.clients:
            client.start()
        end, rounds = time.monotonic() + self.seconds, 0
        try:
            while not self.is_over and (rounds == 0 or time.monotonic() < end):
                self.round()
                rounds += not self.is_over
                print(f"round {rounds}: {self.counts.get('blocks written and acknowledged', 0)} blocks written, "
                      f"{self.counts.get('blocks read', 0)} read", flush=True)
        except Violation as violation:
            self.violated(violation)
        self.is_over = True
        return rounds

    def end(self):
        for process in [self.owner, *self.places]:
            process.signal(signal.SIGCONT)
            process.kill()


def unused_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def is_listening(port):
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


def main():
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 1800.0
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else random.SystemRandom().randrange(1 << 32)
    folder = sys.argv[3] if len(sys.argv) > 3 else tempfile.mkdtemp(prefix="volume-history-", dir="/dev/shm")
    print(f"seed {seed}, {seconds:.0f} s, in {folder}", flush=True)
    check = Check(seconds, seed, os.path.abspath(folder))
    rounds = 0
    try:
        rounds = check.run()
    finally:
        check.end()
    for what in sorted(check.counts):
        print(f"{what:50} {check.counts[what]}")
    for failure in check.failures:
        print("FAILED " + failure)
    if not check.failures:
        shutil.rmtree(check.folder, ignore_errors=True)
    print(f"{rounds} passed, {len(check.failures)} failed")
    return 1 if check.failures else 0


if __name__ == "__main__":
    sys.exit(main())
