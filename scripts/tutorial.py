#!/usr/bin/env python3
"""Runs the commands of a document and compares their output with the output in the document.

    tutorial.py DOCUMENT           runs in the current folder, which is empty; `terrace` and `psql` are on the PATH
    tutorial.py DOCUMENT --write   replaces the outputs in the document

A block that begins with ```console has commands and outputs: `$ ` begins a command, `> ` continues it, and its output follows. One
shell runs all commands in order. Each line is compared, except

  - alignment: blanks, and the dashes below headings,
  - times, control ids that Terrace made, verifiers of passwords, process ids, places in the journal, sizes in KiB and more, durations,
  - ids of messages: those of `terrace message list`. An id of the document stands for one id of the run, in commands too,
  - ports: each port of PORTS stands for a free one,
  - a line `...`, which matches any lines, and a line that ends with ` ...`, of which only the beginning is compared.

A command that only reads is repeated until its output is right: its result may need a moment after the command before it. The script
prints one line for each command; the last line is `N passed, M failed`.
"""

import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import time

# Ports of the document: MLLP, MLLP of the receiver, SQL.
PORTS = ["2575", "2576", "5432"]
# Longer than any step here takes: a mistake fails the case, and the script does not hang.
PATIENCE = 60
LOOKS = re.compile(r"terrace (message (list|show|trace)|status)|cat [^>]*$|ls\b|grep |psql -c \"select")
VARIABLE = [
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?Z?", "<time>"),
    (r"\d{14}(\.\d+)?[+-]\d{4}", "<time>"),
    (r"\bT[0-9A-F]{13}\b", "<control id>"),
    (r"SCRAM-SHA-256\$\S+", "<verifier>"),
    (r"process \d+", "process <pid>"),
    (r"\blsn \d+", "lsn <lsn>"),
    (r"\d+(\.\d+)? (KiB|MiB|GiB)", "<size>"),
    (r"\d+(\.\d+)? (us|ms|s)\b", "<duration>"),
    (r"-{2,}", "--"),
    (r"\s+", " "),
]


class Command:
    def __init__(self, line):
        self.line = line  # of the document, from 0
        self.text = []
        self.output = []
        self.end = line  # after its last line


def commands(lines):
    """The commands of all console blocks."""
    found, inside = [], False
    for number, line in enumerate(lines):
        if line.startswith("```"):
            inside = line == "```console"
        elif inside and line.startswith("$ "):
            found.append(Command(number))
            found[-1].text.append(line[2:])
            found[-1].end = number + 1
        elif inside and line.startswith(">") and not found[-1].output:
            found[-1].text.append(line[2:])
            found[-1].end = number + 1
        elif inside:
            found[-1].output.append(line)
    return found


class Shell:
    """One bash for all commands, in its own process group."""

    MARK = "-- end of command --"

    def __init__(self, environment):
        self.process = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
            start_new_session=True,
        )

    def run(self, text):
        """The output of a command, and its exit code."""
        self.process.stdin.write(f"{text}\nprintf '\\n%s %d\\n' '{self.MARK}' $?\n")
        self.process.stdin.flush()
        lines = []
        for line in self.process.stdout:
            if line.startswith(self.MARK):
                break
            lines.append(line.rstrip())
        else:
            raise SystemExit("the shell has ended")
        # The mark begins on a new line.
        lines = lines[:-1] if lines and not lines[-1] else lines
        return lines, int(line.rsplit(" ", 1)[1])

    def end(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


class Names:
    """Maps the ports and ids of the document to those of this run."""

    def __init__(self, ids):
        self.known = ids
        self.stores = {}
        self.use("")
        sockets = [socket.socket() for _ in PORTS]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        self.ports = {port: str(one.getsockname()[1]) for port, one in zip(PORTS, sockets)}
        for one in sockets:
            one.close()

    def use(self, text):
        """The ids belong to the store that a command names."""
        store = re.search(r"--data (\S+)/", text)
        self.ids = self.stores.setdefault(store and store[1], dict.fromkeys(self.known))

    def to_run(self, text):
        text = re.sub(r"\b\d+\b", lambda m: self.ids.get(m[0]) or self.ports.get(m[0]) or m[0], text)
        if re.match(r"terrace message send [^|;&]*$", text) and "--to" not in text:
            text += f" --to 127.0.0.1:{self.ports['2575']}"
        return text

    def to_document(self, text):
        back = {free: port for port, free in self.ports.items()}
        return re.sub(r"\b\d+\b", lambda m: back.get(m[0], m[0]), text)

    def files(self):
        """Replaces the ports of the document in the files that the program wrote."""
        for path in pathlib.Path(".").rglob("*.toml"):
            text = path.read_text()
            changed = re.sub(r"\b\d+\b", lambda m: self.ports.get(m[0], m[0]), text)
            if changed != text:
                path.write_text(changed)

    def agree(self, expected, actual):
        """Whether two lines are equal. If they are, new ids in them are added to the map."""
        learned = {}
        wanted, had = expected.strip(), actual.strip()
        for pattern, name in VARIABLE:
            wanted, had = re.sub(pattern, name, wanted), re.sub(pattern, name, had)
        if wanted.endswith(" ..."):
            wanted = wanted[: -len(" ...")]
            had = had[: len(wanted)]
        wanted, had = re.split(r"(\b\d+\b)", wanted), re.split(r"(\b\d+\b)", had)
        if len(wanted) != len(had):
            return False
        for want, have in zip(wanted, had):
            if want not in self.ids:
                if want != have:
                    return False
                continue
            known = self.ids[want] or learned.get(want)
            if known is None and have.isdigit() and have not in self.ids.values():
                known = learned[want] = have
            if known != have:
                return False
        self.ids.update(learned)
        return True

    def agree_all(self, expected, actual):
        if not expected:
            return not actual
        if expected[0].strip() == "...":
            return any(self.agree_all(expected[1:], actual[at:]) for at in range(len(actual) + 1))
        return bool(actual) and self.agree(expected[0], actual[0]) and self.agree_all(expected[1:], actual[1:])


def ids_of(found):
    """The ids in the listings of the document."""
    listings = [command.output for command in found if command.text[0].startswith("terrace message list")]
    numbers = [line.split()[0] for output in listings for line in output if line.strip()]
    return [number for number in numbers if number.isdigit()]


def tidy(output):
    """Removes empty lines at the end, which separate commands in the document."""
    while output and not output[-1].strip():
        output = output[:-1]
    return output


def run(shell, names, command, writing):
    """Runs a command, and repeats a command that only reads until its output is right. Returns its output and the difference, if any."""
    names.use("\n".join(command.text))
    text = names.to_run("\n".join(command.text))
    patience = time.monotonic() + PATIENCE
    before = None
    while True:
        output, code = shell.run(text)
        names.files()
        output = tidy([names.to_document(line) for line in output])
        if code != 0:
            wrong = f"exit code {code}"
        elif writing:
            # When the output does not change any more, all later effects have happened.
            wrong = None if output == before or not LOOKS.match(text) else "it changes"
        else:
            ids = dict(names.ids)
            wrong = None if names.agree_all(tidy(command.output), output) else "the document shows something else"
            if wrong:
                names.ids.update(ids)
        if wrong is None or not LOOKS.match(text) or time.monotonic() > patience:
            return output, wrong
        before = output
        time.sleep(0.5 if writing else 0.05)


def compares():
    """Whether the comparison detects differences. One that accepts everything would pass every document."""
    cases = [
        ("8240  2026-11-23 05:22:23.819  ADT  140", "12336   2027-01-01 00:00:00.1  ADT  140", True),
        ("8240", "8241", False),  # 8240 is 12336 from here on
        ("16432", "12336", False),
        ("received 8240, 140 B", "received 12336, 141 B", False),
        ("1 delivered", "2 delivered", False),
        ("MSA|AA|MSG00001", "MSA|AE|MSG00001", False),
        ("-----  ---", "----  -----", True),
        ("sizes 1.5 MiB", "sizes 12 KiB", True),
        ("a list: one, ...", "a list: one, two", True),
        ("a list: one, ...", "a list: two, one", False),
    ]
    names = Names(["8240", "16432"])
    wrong = [case for case in cases if names.agree(*case[:2]) != case[2]]
    lines = names.agree_all(["a", "...", "z"], ["a", "b", "z"]) and not names.agree_all(["a", "...", "z"], ["a", "b"])
    return not wrong and lines and not names.agree_all([], ["a"]) and not names.agree_all(["a"], [])


def main():
    if not compares():
        raise SystemExit("0 passed, 1 failed: the comparison does not detect differences")
    document, writing = pathlib.Path(sys.argv[1]), sys.argv[2:] == ["--write"]
    lines = document.read_text().splitlines()
    found = commands(lines)
    names = Names([] if writing else ids_of(found))
    shell = Shell(dict(os.environ, PGPORT=names.ports["5432"], LC_ALL="C.UTF-8", TZ="UTC"))
    failed, outputs = 0, []
    try:
        for command in found:
            output, wrong = run(shell, names, command, writing)
            outputs.append(output)
            print(f"{'FAIL' if wrong else 'ok  '}  {command.text[0]}")
            if wrong:
                failed += 1
                print(f"      {document.name}:{command.line + 1}: {wrong}")
                shown = [("document", command.output), ("program", output)]
                for name, text in shown:
                    print("\n".join(f"      {name}: {line}" for line in text))
    finally:
        shell.end()
    if writing:
        for command, output in reversed(list(zip(found, outputs))):
            gap = [""] if command.output and not command.output[-1].strip() else []
            lines[command.end : command.end + len(command.output)] = output + gap
        document.write_text("\n".join(lines) + "\n")
    print(f"{len(found) - failed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


main()
