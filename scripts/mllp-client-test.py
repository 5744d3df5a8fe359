"""Tests a running node with a stock client and a stock receiver: MLLPClient, mllp_send and hl7.mllp of python-hl7.

    mllp-client-test.py TERRACE MLLP_SEND

    MLLPClient, mllp_send --> service plain  \\                     / operation archive  --> files
    MLLPClient over TLS   --> service secure  +-- rules, transform  \\ operation receiver --> hl7.mllp server (here)

Each function named `case_...` is one case; it fails if it raises an exception. The package makes the frames and reads
the replies, so this script has no implementation of MLLP or HL7. Only `frames` reads bytes, because MLLPClient returns
the result of a single read. The node is always ended by its process id, also when this script gets a signal to end.
"""

import asyncio
import json
import pathlib
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import traceback

import hl7
import hl7.mllp
from hl7.client import MLLPClient

TERRACE, MLLP_SEND = sys.argv[1:3]
# Longer than any step here takes, also on a slow machine: a step that takes longer has failed.
PATIENCE = 60

PRODUCTION = {
    "production.toml": 'name = "clients"',
    "services/plain.toml": """
        kind = "mllp"
        listen = "127.0.0.1:0"
        rules = "main"
        [intake]
        types = ["ADT", "ORU", "ORM"]
    """,
    "services/secure.toml": """
        kind = "mllp"
        listen = "127.0.0.1:0"
        rules = "main"
        [tls]
        certificate = "certificate.pem"
        key = "key.pem"
    """,
    "operations/archive.toml": 'kind = "file"\nfolder = "archive"',
    "operations/receiver.toml": 'kind = "mllp"\naddress = "127.0.0.1:{receiver}"',
    "rules/main.rules": """
        match first
        rule admissions when MSH-9.1 = "ADT" {
          send to receiver using forward
        }
        rule orders when MSH-9.1 = "ORM" {
          reject "orders are not taken here" code 206
        }
        otherwise {
          send to archive
        }
    """,
    "transforms/forward.hl7t": """
        set MSH-5 = "RECEIVER"
        set PV1-3.1 = lookup(wards, PV1-3.1)
    """,
    "tables/wards.csv": "ICU,Intensive care\n",
}


def message(control_id, kind="ADT^A01^ADT_A01", version="2.5.1", name="DOE^JOHN", ward="ICU", header=""):
    """A message as text, segments ended by CR."""
    return (
        f"MSH|^~\\&|LAB|NORTH|HIS|SOUTH|20261121||{kind}|{control_id}|P|{version}{header}\r"
        f"PID|1||4711^^^A&1.2&ISO^MR||{name}||19700101|F\rPV1|1|I|{ward}^1^2\r"
    )


class Node:
    """The node under test. It runs from `with` to the end of the block."""

    def __init__(self, folder, receiver):
        self.data = folder / "data"
        self.production = folder / "production"
        for name, text in PRODUCTION.items():
            path = self.production / name
            path.parent.mkdir(parents=True, exist_ok=True)
            lines = [line.strip() for line in text.replace("{receiver}", str(receiver)).splitlines()]
            path.write_text("\n".join(lines).strip() + "\n")
        self.certificate = self.production / "certificate.pem"
        openssl = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        openssl += ["-keyout", self.production / "key.pem", "-out", self.certificate, "-days", "2"]
        openssl += ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
        openssl += ["-addext", "basicConstraints=critical,CA:FALSE"]
        subprocess.run(openssl, check=True, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.log = (folder / "node.log").open("w+")

    def __enter__(self):
        command = [TERRACE, "serve", "--data", self.data, "--production", self.production]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        try:
            status = wait_for("the node is ready", self.status)
        except BaseException:
            self.__exit__()
            raise
        self.ports = {service["name"]: int(service["at"].rsplit(":", 1)[1]) for service in status["services"]}
        # Nobody reads bodies before that is granted.
        self.command("role", "grant", "message-body", "unmasked", "--on", "service *", "--to", "terrace_local")
        return self

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def status(self):
        assert self.process.poll() is None, f"the node ended with {self.process.returncode}"
        path = self.data / "node.json"
        return json.loads(path.read_text()) if path.exists() else None

    def client(self, service="plain"):
        client = MLLPClient("127.0.0.1", self.ports[service])
        client.socket.settimeout(PATIENCE)
        return client

    def command(self, *words):
        command = [TERRACE, *map(str, words), "--data", self.data]
        return subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE).stdout

    def stored(self, control_id):
        """The listed messages with this control id, oldest first."""
        lines = self.command("message", "list", "--json", "-n", "0", "--control-id", control_id).splitlines()
        return [json.loads(line) for line in lines]

    def raw(self, control_id):
        (line,) = self.stored(control_id)
        return self.command("message", "show", line["id"], "--raw")


class Receiver(threading.Thread):
    """The server of python-hl7: it acknowledges with `create_ack`, and keeps the received messages."""

    def __init__(self):
        super().__init__(daemon=True)
        self.received = {}
        self.loop = asyncio.new_event_loop()
        self.listening = threading.Event()
        self.start()
        assert self.listening.wait(PATIENCE), "python-hl7's server does not listen"

    def run(self):
        asyncio.set_event_loop(self.loop)
        server = self.loop.run_until_complete(hl7.mllp.start_hl7_server(self.serve, "127.0.0.1", 0, encoding="latin-1"))
        self.port = server.sockets[0].getsockname()[1]
        self.listening.set()
        self.loop.run_forever()

    async def serve(self, reader, writer):
        try:
            while not writer.is_closing():
                received = await reader.readmessage()
                control_id = str(received.segment("MSH")[10])
                # A receiver that refuses one message: python-hl7 makes this reply too.
                code = "AE" if control_id == "REFUSE" else "AA"
                self.received[control_id] = received
                writer.writemessage(received.create_ack(code))
                await writer.drain()
        except asyncio.IncompleteReadError:
            writer.close()


def wait_for(what, probe):
    """Repeats a check until it is true, or until the time is over."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        answer = probe()
        if answer:
            return answer
        time.sleep(0.05)
    raise AssertionError(f"not seen: {what}")


def frames(client, data, count):
    """Sends bytes and reads the given number of replies: `send` of MLLPClient returns the result of a single read."""
    answers = client.send(data)
    while answers.count(b"\x1c\r") < count:
        more = client.socket.recv(4096)
        assert more, f"closed after {answers!r}"
        answers += more
    parts = answers.split(b"\x1c\r")
    assert parts.pop() == b"" and len(parts) == count, answers
    assert all(part.startswith(b"\x0b") for part in parts), answers
    return [hl7.parse(part[1:].decode()) for part in parts]


def frame(text):
    return b"\x0b" + (text if isinstance(text, bytes) else text.encode()) + b"\x1c\r"


def exchange(client, text):
    (answer,) = frames(client, frame(text), 1)
    return answer


def is_answer(answer, code, control_id):
    assert str(answer.segment("MSA")[1]) == code, str(answer)
    assert str(answer.segment("MSA")[2]) == control_id, str(answer)


def equal(found, wanted):
    assert found == wanted, f"found {found!r}, wanted {wanted!r}"


def case_a_good_message_is_accepted(node, _):
    with node.client() as client:
        answer = hl7.parse(client.send_message(message("GOOD")).strip(b"\x0b\x1c\r").decode())
    is_answer(answer, "AA", "GOOD")
    header = answer.segment("MSH")
    equal([str(header[field]) for field in (3, 4, 5, 6)], ["HIS", "SOUTH", "LAB", "NORTH"])
    equal([str(header[field]) for field in (9, 11, 12)], ["ACK^A01^ACK", "P", "2.5.1"])
    assert str(header[10]) not in ("", "GOOD"), "the answer has a control id of its own"
    equal(len(answer), 2)


def case_a_message_object_of_the_package_is_accepted(node, _):
    with node.client() as client:
        answer = client.send_message(hl7.parse(message("OBJECT")))
    is_answer(hl7.parse(answer.strip(b"\x0b\x1c\r").decode()), "AA", "OBJECT")


def case_the_packages_own_answer_has_the_same_form(node, _):
    text = message("FORM")
    with node.client() as client:
        ours = exchange(client, text)
    theirs = hl7.parse(text).create_ack("AA", application="HIS", facility="SOUTH")
    for field in (1, 2, 3, 4, 5, 6, 9, 11, 12):
        equal(str(ours.segment("MSH")[field]), str(theirs.segment("MSH")[field]))
    equal(str(ours.segment("MSA")), str(theirs.segment("MSA")))


def case_a_type_not_taken_is_rejected_with_code_and_place(node, _):
    with node.client() as client:
        answer = exchange(client, message("TYPE", kind="DFT^P03"))
        is_answer(answer, "AR", "TYPE")
        equal(str(answer.segment("ERR")[2]), "MSH^1^9^1^1")
        equal(str(answer.segment("ERR")[3]), "200^Unsupported message type^HL70357")
        equal(str(answer.segment("ERR")[4]), "E")
        older = exchange(client, message("TYPE-OLD", kind="DFT^P03", version="2.3"))
        is_answer(older, "AR", "TYPE-OLD")
        equal(str(older.segment("MSH")[9]), "ACK")
        equal(str(older.segment("ERR")[1]), "MSH^1^9^200&Unsupported message type&HL70357")


def case_a_message_without_control_id_is_rejected(node, _):
    with node.client() as client:
        answer = exchange(client, message(""))
    equal([str(answer.segment("MSA")[1]), str(answer.segment("ERR")[3][0][0])], ["AR", "101"])


def case_a_rule_that_rejects_says_why(node, _):
    with node.client() as client:
        answer = exchange(client, message("ORDER", kind="ORM^O01"))
    is_answer(answer, "AR", "ORDER")
    equal(str(answer.segment("MSA")[3]), "orders are not taken here")
    equal(str(answer.segment("ERR")[3][0][0]), "206")


def case_a_transform_that_fails_is_an_error_with_its_reason(node, _):
    with node.client() as client:
        answer = exchange(client, message("WARD", ward="NOWHERE"))
    is_answer(answer, "AE", "WARD")
    equal(str(answer.segment("ERR")[3][0][0]), "207")
    assert "wards" in str(answer.segment("ERR")[8]), str(answer)
    equal([line["status"] for line in node.stored("WARD")], ["errored"])


def case_bytes_that_are_no_message_are_rejected_and_the_connection_stays(node, _):
    with node.client() as client:
        equal(str(exchange(client, "hello").segment("MSA")[1]), "AR")
        is_answer(exchange(client, message("AFTER")), "AA", "AFTER")


def case_two_messages_in_one_write_get_two_answers_in_order(node, _):
    with node.client() as client:
        first, second = frames(client, frame(message("FIRST")) + frame(message("SECOND")), 2)
    is_answer(first, "AA", "FIRST")
    is_answer(second, "AA", "SECOND")


def case_fifty_messages_in_one_write_get_fifty_answers_in_order(node, _):
    ids = [f"MANY{n}" for n in range(50)]
    with node.client() as client:
        answers = frames(client, b"\r\n".join(frame(message(control_id)) for control_id in ids), 50)
    equal([str(answer.segment("MSA")[2]) for answer in answers], ids)


def case_a_message_in_single_bytes_is_put_together(node, _):
    with node.client() as client:
        client.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        data = frame(message("BYTES"))
        for at in range(len(data) - 1):
            client.socket.sendall(data[at : at + 1])
        (answer,) = frames(client, data[-1:], 1)
    is_answer(answer, "AA", "BYTES")


def case_line_feeds_as_terminators_are_taken_and_kept(node, _):
    text = message("LINES").replace("\r", "\n")
    with node.client() as client:
        is_answer(exchange(client, text), "AA", "LINES")
    equal(node.raw("LINES"), text.encode())


def stored_unchanged(node, control_id, charset, encoding):
    text = message(control_id, kind="ORU^R01", name="M\u00dcLLER^REN\u00c9E", header=f"||||||{charset}")
    with MLLPClient("127.0.0.1", node.ports["plain"], encoding=encoding) as client:
        client.socket.settimeout(PATIENCE)
        answer = client.send_message(text)
    answer = hl7.parse(answer.strip(b"\x0b\x1c\r").decode())
    is_answer(answer, "AA", control_id)
    equal(str(answer.segment("MSH")[18]), charset)
    equal(node.raw(control_id), text.encode(encoding))
    (line,) = node.stored(control_id)
    shown = node.command("message", "show", line["id"]).decode()
    assert "M\u00dcLLER^REN\u00c9E" in shown, shown


def case_a_name_in_iso_8859_1_is_stored_unchanged_and_shown_as_text(node, _):
    stored_unchanged(node, "LATIN", "8859/1", "latin-1")


def case_a_name_in_utf_8_is_stored_unchanged_and_shown_as_text(node, _):
    stored_unchanged(node, "UTF", "UNICODE UTF-8", "utf-8")


def case_enhanced_mode_answers_as_asked(node, _):
    with node.client() as client:
        is_answer(exchange(client, message("ACCEPT", header="|||AL|NE")), "CA", "ACCEPT")
        commit, application = frames(client, frame(message("BOTH", header="|||AL|AL")), 2)
        is_answer(commit, "CA", "BOTH")
        is_answer(application, "AA", "BOTH")
        assert str(commit.segment("MSH")[10]) != str(application.segment("MSH")[10])
        # The first message requests no reply: the received one is for the second.
        (answer,) = frames(client, frame(message("SILENT", header="|||NE|NE")) + frame(message("LOUD")), 1)
        is_answer(answer, "AA", "LOUD")
    equal(len(node.stored("SILENT")), 1)


def case_an_acknowledgement_is_not_acknowledged(node, _):
    text = "MSH|^~\\&|A|B|C|D|20261121||ACK^A01^ACK|ACKED|P|2.5\rMSA|AA|1\r"
    with node.client() as client:
        (answer,) = frames(client, frame(text) + frame(message("AFTER-ACK")), 1)
    is_answer(answer, "AA", "AFTER-ACK")


def case_a_message_over_tls_is_accepted(node, _):
    trusting = ssl.create_default_context(cafile=node.certificate)
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        trusting.minimum_version = trusting.maximum_version = version
        with node.client("secure") as client:
            client.socket = trusting.wrap_socket(client.socket, server_hostname="localhost")
            is_answer(exchange(client, message(f"TLS-{version.name}")), "AA", f"TLS-{version.name}")


def case_a_client_that_does_not_trust_the_certificate_sends_nothing(node, _):
    with node.client("secure") as client:
        try:
            client.socket = ssl.create_default_context().wrap_socket(client.socket, server_hostname="localhost")
        except ssl.SSLCertVerificationError:
            return
    raise AssertionError("an unknown certificate was trusted")


def case_a_plain_client_on_the_tls_port_gets_no_answer(node, _):
    with node.client("secure") as client:
        try:
            answer = client.send(frame(message("PLAIN-ON-TLS")))
        except ConnectionError:
            answer = b""
    assert not answer.startswith(b"\x0b"), answer
    equal(node.stored("PLAIN-ON-TLS"), [])


def case_the_command_mllp_send_sends_files(node, folder):
    framed = folder / "framed.hl7"
    framed.write_bytes(frame(message("SEND1")) + frame(message("SEND2")))
    loose = folder / "loose.hl7"
    loose.write_bytes((message("SEND3") + message("SEND4")).replace("\r", "\r\n").encode())
    for path, option, ids in ((framed, [], ["SEND1", "SEND2"]), (loose, ["--loose"], ["SEND3", "SEND4"])):
        command = [MLLP_SEND, *option, "--file", path, "--port", str(node.ports["plain"]), "127.0.0.1"]
        printed = subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE).stdout
        equal([f"MSA|AA|{control_id}".encode() in printed for control_id in ids], [True, True])
        equal([len(node.stored(control_id)) for control_id in ids], [1, 1])


def case_the_packages_server_receives_what_the_transform_makes(node, _):
    with node.client() as client:
        text = message("ONWARD", name="M\u00dcLLER^ANN", header="||||||8859/1")
        is_answer(exchange(client, text.encode("latin-1")), "AA", "ONWARD")
    outputs = lambda: [state for line in node.stored("ONWARD") for state in line["outputs"]]
    wait_for("ONWARD is delivered", lambda: outputs() == [["receiver", "delivered"]])
    received = node.receiver.received["ONWARD"]
    equal(str(received.segment("MSH")[5]), "RECEIVER")
    equal(str(received.segment("PV1")[3]), "Intensive care^1^2")
    equal(str(received.segment("PID")[5]), "M\u00dcLLER^ANN")


def case_a_delivery_that_the_packages_server_refuses_is_given_up(node, _):
    with node.client() as client:
        is_answer(exchange(client, message("REFUSE")), "AA", "REFUSE")
        is_answer(exchange(client, message("NEXT")), "AA", "NEXT")
    state = lambda control_id: node.stored(control_id)[0]["outputs"]
    wait_for("REFUSE is given up", lambda: state("REFUSE") == [["receiver", "failed"]])
    wait_for("NEXT is delivered", lambda: state("NEXT") == [["receiver", "delivered"]])


def run(folder):
    """Runs every case. Returns the numbers of passed and failed ones."""
    receiver = Receiver()
    node = Node(folder, receiver.port)
    node.receiver = receiver
    cases = [(name[5:], case) for name, case in globals().items() if name.startswith("case_")]
    passed = failed = 0
    try:
        with node:
            for name, case in cases:
                try:
                    case(node, folder)
                    print("passed", name, flush=True)
                    passed += 1
                except Exception:
                    print("FAILED", name, flush=True)
                    traceback.print_exc()
                    failed += 1
    except AssertionError as error:
        print("FAILED", error)
        failed += 1
    if failed:
        node.log.seek(0)
        print("--- the node's log, its end", "".join(node.log.readlines()[-30:]), sep="\n", file=sys.stderr)
    return passed, failed


def main():
    # On a signal to end, it ends the node first.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with tempfile.TemporaryDirectory(prefix="terrace-clients-") as folder:
        passed, failed = run(pathlib.Path(folder))
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


main()
