"""Tests metrics and health of a real node: see test-metrics.sh.

    metrics-test.py TERRACE TOOLS FOLDER

    load (here, 3 senders) --MLLP--> node --> operations: files; a receiver (here); an address where nobody listens
                                      |
              curl, promtool <--------+--------> prometheus, every second, through a restart of the node

Each function named `case_...` is one case; it fails if it raises an exception. Processes are ended by their id.
"""

import json
import pathlib
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import traceback
import urllib.error
import urllib.parse
import urllib.request

import yaml
from grafana_foundation_sdk.models.dashboard import Dashboard

TERRACE, TOOLS, FOLDER = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
ROOT = pathlib.Path(__file__).resolve().parent.parent
DEPLOY = ROOT / "deploy" / "metrics"
# Longer than any step here takes, also on a slow machine: a step that takes longer has failed.
PATIENCE = 60
SENDERS = 3

PRODUCTION = {
    "production.toml": 'name = "measured"',
    "services/adt-in.toml": 'kind = "mllp"\nlisten = "127.0.0.1:{mllp}"\nrules = "main"\n',
    "operations/archive.toml": 'kind = "file"\nfolder = "archive"\n',
    "operations/receiver.toml": 'kind = "mllp"\naddress = "127.0.0.1:{receiver}"\n',
    "operations/nobody.toml": 'kind = "mllp"\naddress = "127.0.0.1:{nobody}"\n',
    "rules/main.rules": "match all\nrule admissions when MSH-9.1 = \"ADT\" {\n  send to archive\n  send to receiver\n}\n"
    "rule lost when MSH-9.2 = \"A02\" {\n  send to nobody\n}\n",
}
SETTINGS = """data = "data"
production = "production"
[metrics]
listen = "127.0.0.1:{metrics}"
[backup]
folder = "backups"
every = "1h"
[sql]
listen = "127.0.0.1:{sql}"
trust = true
certificate = "sql.pem"
key = "sql.key"
[search]
listen = "127.0.0.1:{search}"
trust = true
[tiers.near]
kind = "memory"
bytes = "64MiB"
[tiers.slow]
kind = "memory"
bytes = "64MiB"
model = "cxl-expander"
[tiers.disk]
kind = "file"
path = "disk"
[placement]
cache = "near"
far = "slow"
search = "disk"
"""
# The node's own rules: a channel that is asked at no time, unless something is the matter.
ALERTS = """[channels.nobody]
command = ["/bin/true"]
[[alert]]
name = "backup-old"
when = "backup_age > 26h"
channels = ["nobody"]
[[alert]]
name = "backup-failed"
when = "backup_failed"
channels = ["nobody"]
"""


def free_port():
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return made.getsockname()[1]


PORTS = {name: free_port() for name in ("mllp", "metrics", "sql", "search", "prometheus", "receiver", "nobody")}
started = []


def until(what, probe):
    """Waits until the probe is true, and returns its answer."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        answer = probe()
        if answer:
            return answer
        time.sleep(0.1)
    raise AssertionError(f"waited {PATIENCE} s until {what}")


def frames(stream):
    """The frames of a socket, as bytes without their envelope."""
    held = b""
    while True:
        while b"\x1c\r" in held:
            frame, held = held.split(b"\x1c\r", 1)
            yield frame.lstrip(b"\x0b")
        more = stream.recv(65536)
        if not more:
            return
        held += more


class Receiver(threading.Thread):
    """Acknowledges everything."""

    def __init__(self):
        super().__init__(daemon=True)
        self.listener = socket.create_server(("127.0.0.1", PORTS["receiver"]))

    def run(self):
        while True:
            stream, _ = self.listener.accept()
            threading.Thread(target=self.serve, args=(stream,), daemon=True).start()

    def serve(self, stream):
        for frame in frames(stream):
            control_id = frame.split(b"\r")[0].split(b"|")[9]
            stream.sendall(b"\x0bMSH|^~\\&|R||T||1||ACK|1|P|2.5\rMSA|AA|" + control_id + b"\r\x1c\r")


class Sender(threading.Thread):
    """Sends messages one after the other, and connects again when the node was away."""

    count = 0
    lock = threading.Lock()
    stop = threading.Event()

    def run(self):
        while not self.stop.is_set():
            try:
                with socket.create_connection(("127.0.0.1", PORTS["mllp"]), timeout=PATIENCE) as stream:
                    self.send_over(stream)
            except OSError:
                time.sleep(0.1)

    def send_over(self, stream):
        answers = frames(stream)
        while not self.stop.is_set():
            with Sender.lock:
                Sender.count += 1
                number = Sender.count
            event = "A02" if number % 50 == 1 else "A01"
            text = f"MSH|^~\\&|S|F|T|F|20260101||ADT^{event}|M{number}|P|2.5\rPID|1||{number}\rNTE|1||{'x' * 500}\r"
            stream.sendall(b"\x0b" + text.encode() + b"\x1c\r")
            if next(answers, None) is None:
                return
            time.sleep(0.005)


def with_ports(text):
    for port, number in PORTS.items():
        text = text.replace("{" + port + "}", str(number))
    return text


def write_files():
    for name, text in PRODUCTION.items():
        path = FOLDER / "production" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(with_ports(text))
    (FOLDER / "backups").mkdir(exist_ok=True)
    (FOLDER / "terrace.toml").write_text(with_ports(SETTINGS))
    (FOLDER / "alerts.toml").write_text(ALERTS)
    certificate = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-days", "90"]
    certificate += ["-keyout", FOLDER / "sql.key", "-out", FOLDER / "sql.pem"]
    subprocess.run(certificate, check=True, capture_output=True)
    (FOLDER / "prometheus.yml").write_text(
        f"""
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: [{DEPLOY}/terrace.rules.yml]
scrape_configs:
- job_name: terrace
  static_configs:
  - targets: ["127.0.0.1:{PORTS['metrics']}"]
"""
    )


def start(*command, log):
    process = subprocess.Popen(command, cwd=FOLDER, stdout=open(FOLDER / log, "ab"), stderr=subprocess.STDOUT)
    started.append(process)
    return process


def get(target, accept=None, port="metrics"):
    """Status, content type and text of a target of the node, as curl gets it."""
    words = ["curl", "-s", "-w", "\n%{http_code} %{content_type}", f"http://127.0.0.1:{PORTS[port]}{target}"]
    if accept:
        words += ["-H", f"Accept: {accept}"]
    text, _, last = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE).stdout.rpartition("\n")
    status, _, content_type = last.partition(" ")
    return int(status), content_type, text


def start_node():
    node = start(TERRACE, "serve", log="node.log")
    until("the node is ready", lambda: node.poll() is not None or get("/readyz")[0] == 200)
    assert node.poll() is None, (FOLDER / "node.log").read_text()
    return node


def end(process):
    process.send_signal(signal.SIGTERM)
    process.wait(timeout=300)


def promtool(*arguments, text=None):
    done = subprocess.run([TOOLS / "promtool", *arguments], input=text, capture_output=True, text=True, cwd=DEPLOY)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def query(expression):
    """The samples of an expression now; an error of it is an error here."""
    target = f"http://127.0.0.1:{PORTS['prometheus']}/api/v1/query?" + urllib.parse.urlencode({"query": expression})
    try:
        with urllib.request.urlopen(target, timeout=PATIENCE) as answer:
            return json.load(answer)["data"]["result"]
    except urllib.error.HTTPError as error:
        raise AssertionError(f"{expression}: {error.read().decode()}") from error


def value(expression):
    found = query(expression)
    return float(found[0]["value"][1]) if found else None


def command(*arguments):
    done = subprocess.run([TERRACE, *arguments, "--data", "data"], cwd=FOLDER, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def names_in(expression):
    return set(re.findall(r"\b(?:terrace|process)_[a-z_]+", expression))


def rules():
    text = yaml.safe_load((DEPLOY / "terrace.rules.yml").read_text())
    return [(rule["alert"], rule["expr"]) for group in text["groups"] for rule in group["rules"]]


def dashboard():
    return json.loads((DEPLOY / "grafana" / "dashboard.json").read_text())


def expressions():
    """Those of the dashboard, as Grafana fills them in."""
    panels = [panel for panel in dashboard()["panels"] if panel["type"] != "row"]
    filled = lambda text: text.replace("$__rate_interval", "20s").replace("$instance", ".*")
    return [(panel["title"], filled(target["expr"])) for panel in panels for target in panel["targets"]]


def case_health_is_answered_and_other_targets_are_not():
    assert get("/healthz") == (200, "text/plain; charset=utf-8", "ok\n"), get("/healthz")
    assert get("/readyz")[::2] == (200, "ready\n")
    assert get("/nothing")[0] == 404


def case_promtool_finds_nothing_wrong_with_the_exposition():
    status, content_type, text = get("/metrics")
    assert status == 200 and content_type.startswith("text/plain; version=0.0.4"), content_type
    said = promtool("check", "metrics", text=text)
    assert said.strip() == "", said


def case_open_metrics_is_served_to_who_accepts_it():
    status, content_type, text = get("/metrics", "application/openmetrics-text; version=1.0.0")
    assert status == 200 and content_type.startswith("application/openmetrics-text"), content_type
    assert text.endswith("# EOF\n"), text[-80:]


def case_rules_their_tests_and_the_configuration_are_right():
    promtool("check", "rules", "terrace.rules.yml")
    promtool("test", "rules", "test.yml", "test-week.yml")
    promtool("check", "config", "prometheus.yml")


def figures():
    """A function from a sample's name to its value now; 0 where there is none."""
    text = get("/metrics")[2]
    samples = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    return lambda name: float(samples.get(name, 0))


def ask_sql(statement):
    """Sends a simple query, without a library, and waits for the end of its answer."""
    with socket.create_connection(("127.0.0.1", PORTS["sql"]), timeout=PATIENCE) as stream:
        head = struct.pack("!I", 196608) + b"user\0reader\0database\0terrace\0\0"
        stream.sendall(struct.pack("!I", len(head) + 4) + head)
        answers = stream.makefile("rb")

        def read(is_query):
            """The types of all messages until the server is ready."""
            types = ""
            while not types.endswith("Z"):
                kind, length = struct.unpack("!cI", answers.read(5))
                text = answers.read(length - 4)
                assert kind != b"E" or is_query, text
                types += kind.decode()
            return types

        read(False)
        text = statement.encode() + b"\0"
        stream.sendall(b"Q" + struct.pack("!I", len(text) + 4) + text)
        return read(True)


def case_what_clients_of_sql_and_search_ask_is_counted():
    of = figures()
    assert of('terrace_sql_statements_total{kind="select"}') == 0 and of('terrace_sql_errors_total{class="42"}') == 0
    assert "D" in ask_sql("select 1") and "E" in ask_sql("select nothing from nowhere")
    assert get("/_search", port="search")[0] == 200 and get("/nowhere/_doc/1", port="search")[0] == 404
    until("the next gathering", lambda: figures()('terrace_search_requests_total{class="read",status="4xx"}') == 1)
    of = figures()
    assert of('terrace_search_requests_total{class="read",status="2xx"}') == 1
    assert of('terrace_search_request_seconds_count{class="read"}') == 2
    assert of('terrace_sql_statements_total{kind="select"}') == 1
    assert of('terrace_sql_errors_total{class="42"}') == 1
    assert of('terrace_sql_request_seconds_count{protocol="simple"}') == 2


def write_and_read_volume(size):
    """Writes so many bytes to volume v over NBD, and reads them again."""
    with socket.socket(socket.AF_UNIX) as stream:
        stream.settimeout(PATIENCE)
        stream.connect(str(FOLDER / "data" / "nbd.sock"))
        answers = stream.makefile("rb")
        assert answers.read(18)[:16] == b"NBDMAGICIHAVEOPT"
        wanted = struct.pack(">I", 1) + b"v" + struct.pack(">H", 0)
        stream.sendall(struct.pack(">I", 3) + b"IHAVEOPT" + struct.pack(">II", 7, len(wanted)) + wanted)
        kind = None
        while kind != 1:
            _, _, kind, length = struct.unpack(">QIII", answers.read(20))
            text = answers.read(length)
            assert kind < 1 << 31, text
        content = b"\x5a" * size
        for kind, payload in ((1, content), (0, b"")):
            stream.sendall(struct.pack(">IHHQQI", 0x25609513, 0, kind, 7, 0, size) + payload)
            assert answers.read(16) == struct.pack(">IIQ", 0x67446698, 0, 7)
        assert answers.read(size) == content
        stream.sendall(struct.pack(">IHHQQI", 0x25609513, 0, 2, 8, 0, 0))


def case_what_clients_do_with_a_volume_is_counted():
    assert figures()('terrace_volume_bytes_total{volume="v",direction="write"}') == 0
    write_and_read_volume(65536)
    until("the next gathering", lambda: figures()('terrace_volume_bytes_total{volume="v",direction="read"}') > 0)
    of = figures()
    assert of('terrace_volume_open{volume="v"}') == 1 and of('terrace_volume_copies{volume="v",state="in-sync"}') == 1
    for direction in ("read", "write"):
        assert of('terrace_volume_bytes_total{volume="v",direction="%s"}' % direction) == 65536
        assert of('terrace_volume_operation_seconds_count{volume="v",direction="%s"}' % direction) == 1
    assert of('terrace_connections_max{kind="nbd",service="nbd"}') > 0


def case_connections_that_are_refused_or_make_room_are_counted():
    silent = []

    def another():
        silent.append(socket.create_connection(("127.0.0.1", PORTS["metrics"]), source_address=("127.0.0.5", 0)))
        of, door = figures(), 'kind="metrics",service="metrics"'
        refused = of('terrace_connections_refused_total{%s,reason="address_full"}' % door)
        return refused and of('terrace_connections_ended_total{%s,reason="newcomer"}' % door)

    until("a silent one has made room", another)
    for stream in silent:
        stream.close()


def case_the_page_lists_all_that_the_node_has_and_nothing_else():
    page = (ROOT / "docs" / "metrics.md").read_text()
    rows = re.findall(r"^\| `((?:terrace|process)_[a-z_]+)` \|(.*)$", page, re.M)
    # Some are served while something is the matter only, and the page says so.
    listed = {name for name, text in rows if "otherwise not there" not in text}
    served = set(re.findall(r"^# TYPE ([a-z_]+) ", get("/metrics")[2], re.M))
    assert served == listed, served ^ listed
    for tier, structure, direction in [("home", "journal", "write"), ("home", "data", "read"), ("disk", "search", "read")]:
        assert f'terrace_medium_bytes_total{{tier="{tier}",structure="{structure}",direction="{direction}"}}' in get("/metrics")[2]
    assert 'terrace_medium_info{tier="slow",structure="far",' in get("/metrics")[2]


def case_figures_are_those_of_the_load():
    def delivered():
        of = figures()
        return of if of('terrace_deliveries_total{operation="receiver",outcome="delivered"}') >= 100 else None

    of = until("a hundred are delivered", delivered)
    routed = of('terrace_messages_received_total{service="adt-in",status="routed"}')
    assert 100 <= routed <= Sender.count, (routed, Sender.count)
    # A gathering stops nobody: each sender may have come one message further between two figures.
    assert abs(of('terrace_message_bytes_count{service="adt-in"}') - routed) <= SENDERS
    # What was answered by then, of what was stored by then.
    assert 0 < of('terrace_acknowledge_seconds_count{service="adt-in"}') <= Sender.count
    assert of('terrace_queue_messages{operation="nobody"}') >= 1
    assert time.time() - of('terrace_queue_oldest_timestamp_seconds{operation="nobody"}') < 600
    assert of('terrace_operation_connected{operation="receiver"}') == 1
    assert of('terrace_operation_connected{operation="nobody"}') == 0
    assert of('terrace_answers_total{operation="nobody",code="unreachable"}') >= 1
    assert of("terrace_commit_seconds_count") >= routed - SENDERS
    assert of('terrace_medium_operations_total{tier="home",structure="journal",direction="write"}') > 0
    assert of("terrace_metrics_gather_seconds") < 1, "a scrape is cheap"
    print(f"      gathering took {of('terrace_metrics_gather_seconds') * 1e3:.2f} ms, {len(get('/metrics')[2])} bytes")


def case_prometheus_scrapes_it():
    until("Prometheus has scraped", lambda: value('up{job="terrace"}') == 1)
    until("some more times", lambda: (value('count_over_time(up{job="terrace"}[1m])') or 0) >= 8)
    targets = f"http://127.0.0.1:{PORTS['prometheus']}/api/v1/targets"
    with urllib.request.urlopen(targets, timeout=PATIENCE) as answer:
        target = json.load(answer)["data"]["activeTargets"][0]
    assert target["lastError"] == "" and target["health"] == "up", target


def case_counters_begin_again_at_a_restart_and_prometheus_sees_it():
    global node
    counted = 'sum(terrace_messages_received_total{status="routed"})'
    began = value("process_start_time_seconds")
    end(node)
    until("Prometheus misses it", lambda: value('up{job="terrace"}') == 0)
    node = start_node()
    until("it is back", lambda: value('up{job="terrace"}') == 1 and value("process_start_time_seconds") != began)
    until("it has counted again", lambda: (value(counted) or 0) > 0)
    assert value("max_over_time(process_start_time_seconds[5m])") > began
    resets = value('resets(terrace_messages_received_total{status="routed"}[5m])')
    assert resets == 1, resets
    increase = value('increase(terrace_messages_received_total{status="routed"}[5m])')
    assert increase is not None and increase > 0, increase
    # The message that nobody takes has waited since before the restart.
    oldest = value('terrace_queue_oldest_timestamp_seconds{operation="nobody"}')
    assert oldest < value("process_start_time_seconds"), oldest


def case_every_rule_is_about_metrics_that_are_there():
    for name, expression in rules():
        query(expression)
        for metric in names_in(expression):
            assert query(f'count({metric})'), f"{name}: there is no {metric}"
    until("a rule has looked", lambda: query('ALERTS') is not None)


def case_every_panel_shows_something():
    until("rates can be told", lambda: (value('count_over_time(up{job="terrace"}[20s])') or 0) >= 15)
    # Nothing of these has happened since the restart: they have a series, without a number.
    idle = {"Checkpoints take", "SQL answers after (p99)", "Requests to volumes take (p99)"}
    shown = lambda title, sample: title in idle or sample["value"][1] != "NaN"
    empty = [f"{title}: {expression}" for title, expression in expressions() if not any(shown(title, one) for one in query(expression))]
    assert empty == [], "\n".join(empty)
    for title, expression in expressions():
        for metric in names_in(expression):
            base = re.sub(r"_(bucket|sum|count)$", "", metric)
            assert query(f"count({metric})") or query(f"count({base}_count)"), f"{title}: there is no {metric}"


def case_grafana_reads_the_dashboard_and_its_provisioning():
    read = Dashboard.from_json(dashboard())
    assert read.title == "Terrace" and len(read.panels) == len(dashboard()["panels"])
    assert all(panel.grid_pos is not None for panel in read.panels)
    ids = [panel.id_val for panel in read.panels]
    assert len(set(ids)) == len(ids)
    sources = yaml.safe_load((DEPLOY / "grafana/provisioning/datasources/terrace.yml").read_text())
    providers = yaml.safe_load((DEPLOY / "grafana/provisioning/dashboards/terrace.yml").read_text())
    assert sources["apiVersion"] == 1 and sources["datasources"][0]["type"] == "prometheus"
    assert providers["apiVersion"] == 1 and providers["providers"][0]["type"] == "file"


def main():
    global node
    passed = failed = 0
    write_files()
    Receiver().start()
    try:
        node = start_node()
        command("volume", "create", "v", "--size", "4MiB")
        command("volume", "export", "v")
        command("user", "add", "reader", "--no-password")
        for _ in range(SENDERS):
            Sender(daemon=True).start()
        start(
            TOOLS / "prometheus",
            "--config.file=prometheus.yml",
            "--storage.tsdb.path=prometheus-data",
            f"--web.listen-address=127.0.0.1:{PORTS['prometheus']}",
            log="prometheus.log",
        )
        ready = f"http://127.0.0.1:{PORTS['prometheus']}/-/ready"

        def is_ready():
            try:
                return urllib.request.urlopen(ready, timeout=PATIENCE).status == 200
            except OSError:
                return False

        until("Prometheus is ready", is_ready)
        for name, case in [(name, case) for name, case in globals().items() if name.startswith("case_")]:
            try:
                case()
                passed += 1
                print(f"ok    {name[5:].replace('_', ' ')}", flush=True)
            except Exception:
                failed += 1
                print(f"FAIL  {name[5:].replace('_', ' ')}", flush=True)
                traceback.print_exc(file=sys.stdout)
    finally:
        Sender.stop.set()
        for process in reversed(started):
            if process.poll() is None:
                process.terminate()
        for process in started:
            process.wait(timeout=300)
    print(f"{passed} passed, {failed} failed")


main()
