"""Compares two servers of the Elasticsearch API that hold the same documents, and the reports of esrally's races against them.

    compare.py load URL INDEX TRACK             makes the index of TRACK, with the documents and ids 0, 1, 2..; one shard, one segment
    compare.py hits OURS PEER INDEX TRACK       hits of the track's queries on both
    compare.py top OURS PEER INDEX TRACK SEED N the best ten hits of N drawn queries on both: the same documents and scores
    compare.py table DIR                        the table of DIR/ours-*.csv and DIR/peer-*.csv
    compare.py race OURS PEER TRACK ROUNDS N    in turns: the bulks of TRACK by two clients, then each query N times; the table

Only the standard library is used. Differences are listed; the exit code is 1 if there is one.
"""

import csv
import glob
import http.client
import json
import random
import statistics
import sys
import threading
import time
import urllib.request

# Lucene and ours compute scores with 32 bits.
TOLERANCE = 1e-5
BULK = 5000
CLIENTS = 2
# Times that a query is sent before it is measured.
WARMUP = 20


def send(url, method, body=None, kind="application/json"):
    data = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
    request = urllib.request.Request(url, data=data, method=method, headers={"Content-Type": kind})
    with urllib.request.urlopen(request, timeout=600) as response:
        return json.load(response)


def operations(track):
    with open(track + "/operations.json") as file:
        return json.loads("[" + file.read() + "]")


def load(url, index, track):
    with open(track + "/index.json") as file:
        send(f"{url}/{index}", "PUT", json.load(file))
    number, lines = 0, []

    def flush():
        response = send(f"{url}/{index}/_bulk", "PUT", "".join(lines).encode(), "application/x-ndjson")
        assert not response["errors"], response["items"][0]
        lines.clear()

    with open(track + "/documents.json") as file:
        for line in file:
            lines.append('{"index":{"_id":"%d"}}\n%s' % (number, line))
            number += 1
            if len(lines) == BULK:
                flush()
    if lines:
        flush()
    send(f"{url}/{index}/_refresh", "POST")
    send(f"{url}/{index}/_forcemerge?max_num_segments=1", "POST")
    send(f"{url}/{index}/_refresh", "POST")
    print(f"{number} documents at {url}")


def without(value, *keys):
    return {key: item for key, item in value.items() if key not in keys}


def aggregation(value):
    """The value without what is an estimate: percentiles and cardinality are counted by different methods."""
    return without(value, "shares", "clients")


def first_difference(ours, peer, place=""):
    """Where two values differ first; None where they do not."""
    if isinstance(ours, dict) and isinstance(peer, dict) and ours.keys() == peer.keys():
        pairs = [(ours[key], peer[key], f"{place}.{key}") for key in ours]
    elif isinstance(ours, list) and isinstance(peer, list) and len(ours) == len(peer):
        pairs = [(own, other, f"{place}[{at}]") for at, (own, other) in enumerate(zip(ours, peer))]
    elif isinstance(ours, (int, float)) and isinstance(peer, (int, float)) and abs(ours - peer) <= 1e-9 * max(1, abs(peer)):
        return None
    else:
        return None if ours == peer else f"{place}: {json.dumps(ours)[:200]} / {json.dumps(peer)[:200]}"
    return next(filter(None, (first_difference(*pair) for pair in pairs)), None)


def hits(ours, peer, index, track):
    differences = 0
    for operation in operations(track):
        if operation["name"] == "scroll":
            continue
        body = dict(operation["body"], track_total_hits=True)
        found = [send(f"{url}/{index}/_search", "POST", body) for url in (ours, peer)]
        counts = [response["hits"]["total"]["value"] for response in found]
        same = counts[0] == counts[1]
        note = ""
        if "aggregations" in found[0]:
            buckets = [aggregation(response["aggregations"]) for response in found]
            where = first_difference(*buckets)
            if where:
                same, note = False, f" aggregations{where}"
        differences += not same
        print(f"{operation['name']:<22} {counts[0]:>8} {counts[1]:>8} {'same' if same else 'DIFFERENT'}{note}")
    print(f"hits of {len(operations(track)) - 1} queries: {differences} differences")
    return differences


def drawn(track, seed, count):
    """Queries with words of documents: match, match with `and`, match_phrase, bool."""
    rng = random.Random(seed)
    with open(track + "/documents.json") as file:
        requests = [json.loads(line)["request"] for line, _ in zip(file, range(20000))]

    def words(most):
        found = [word for word in rng.choice(requests).replace(".", "/").replace(" ", "/").split("/") if word.isalpha()]
        at = rng.randrange(len(found))
        return " ".join(found[at : at + rng.randint(1, most)])

    for number in range(count):
        kind = number % 4
        if kind == 0:
            yield {"match": {"request": words(2) + " " + words(2)}}
        elif kind == 1:
            yield {"match": {"request": {"query": words(3), "operator": rng.choice(["and", "or"])}}}
        elif kind == 2:
            yield {"match_phrase": {"request": words(3)}}
        else:
            yield {
                "bool": {
                    "must": [{"match": {"request": words(2)}}],
                    "should": [{"match": {"request": words(1)}}, {"term": {"status": rng.choice([200, 304, 404])}}],
                    "filter": [{"range": {"size": {"gte": rng.randrange(4000)}}}],
                    "must_not": [{"match_phrase": {"request": words(2)}}],
                }
            }


def top(ours, peer, index, track, seed, count):
    differences = 0
    for query in drawn(track, seed, count):
        body = {"query": query, "size": 10, "track_total_hits": True, "_source": False}
        # Enough hits to see which documents share the last score: those are in any order.
        wider = dict(body, size=1000)
        found = [send(f"{url}/{index}/_search", "POST", wider)["hits"] for url in (ours, peer)]
        why = difference(found[0], found[1])
        if why:
            differences += 1
            print(f"DIFFERENT {json.dumps(query)}: {why}")
    print(f"the best ten of {count} queries: {differences} differences")
    return differences


def difference(ours, peer):
    if ours["total"]["value"] != peer["total"]["value"]:
        return f"{ours['total']['value']} hits, {peer['total']['value']} at the peer"
    scores = [[hit["_score"] for hit in side["hits"][:10]] for side in (ours, peer)]
    for at, (own, other) in enumerate(zip(*scores)):
        if abs(own - other) > TOLERANCE * max(1, abs(other)):
            return f"score {at}: {own} and {other}"
    # Within a score the order is free: each of our ten has the same score at the peer, where it is among what was fetched.
    theirs = {hit["_id"]: hit["_score"] for hit in peer["hits"]}
    lowest = peer["hits"][-1]["_score"] if peer["hits"] else 0
    for hit in ours["hits"][:10]:
        score = theirs.get(hit["_id"])
        if score is None and abs(hit["_score"] - lowest) <= TOLERANCE * max(1, lowest):
            continue
        if score is None or abs(score - hit["_score"]) > TOLERANCE * max(1, abs(score)):
            return f"document {hit['_id']} has score {hit['_score']}, {score} at the peer"
    return None


def read(path):
    with open(path) as file:
        return {(row["Metric"], row["Task"]): row["Value"] for row in csv.DictReader(file)}


def table(folder):
    sides = [[read(path) for path in sorted(glob.glob(f"{folder}/{side}-*.csv"))] for side in ("ours", "peer")]

    def middle(side, metric, task):
        values = [float(report[metric, task]) for report in side if report.get((metric, task))]
        return statistics.median(values) if values else None

    def line(task, ours, peer, unit):
        ratio = f"{ours / peer:.2f}" if ours and peer else "-"
        shown = [f"{value:,.2f}" if value is not None and value < 1000 else f"{value:,.0f}" if value is not None else "-" for value in (ours, peer)]
        print(f"{task:<36} {shown[0]:>12} {shown[1]:>14} {ratio:>7}  {unit}")

    print(f"{'median of ' + str(len(sides[0])) + ' rounds':<36} {'Terrace':>12} {'Elasticsearch':>14} {'ratio':>7}")
    line("index", *(middle(side, "Median Throughput", "index-append") for side in sides), "docs/s")
    tasks = list(dict.fromkeys(task for metric, task in sides[0][0] if metric == "50th percentile service time"))
    for task in tasks:
        for name, metric in (("p50", "50th"), ("p99", "99th")):
            values = [middle(side, f"{metric} percentile service time", task) for side in sides]
            if values[0] is None and metric == "99th":
                values, name = [middle(side, "100th percentile service time", task) for side in sides], "longest"
            line(f"{task} {name}", *values, "ms")
    errors = sum(float(value) > 0 for side in sides for report in side for (metric, _), value in report.items() if metric == "error rate")
    print(f"tasks with errors: {errors}")
    rounds = [[report.get(("Median Throughput", "index-append")) for report in side] for side in sides]
    print(f"docs/s of each round: Terrace {rounds[0]}, Elasticsearch {rounds[1]}")
    return errors


class Client:
    """One connection, as esrally's clients have."""

    def __init__(self, url):
        self.connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=600)
        self.connection.connect()

    def send(self, method, target, body=None, kind="application/json"):
        begun = time.perf_counter()
        self.connection.request(method, target, body, {"Content-Type": kind})
        response = self.connection.getresponse()
        text = response.read()
        assert response.status == 200, text[:300]
        return text, (time.perf_counter() - begun) * 1000


def bulks(url, bodies, times):
    """Sends all bodies by the clients; returns how long that took."""
    left, failed = iter(bodies), []
    lock = threading.Lock()

    def work():
        client = Client(url)
        while True:
            with lock:
                body = next(left, None)
            if body is None:
                return
            text, took = client.send("PUT", "/race/_bulk", body, "application/x-ndjson")
            times.append(took)
            if b'"errors":false' not in text[:100]:
                failed.append(text[:300])
                return

    threads = [threading.Thread(target=work) for _ in range(CLIENTS)]
    begun = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed, failed
    return time.perf_counter() - begun


def race(ours, peer, track, rounds, iterations):
    with open(track + "/index.json") as file:
        index = file.read()
    with open(track + "/documents.json") as file:
        lines = file.readlines()
    parts = [lines[at : at + BULK] for at in range(0, len(lines), BULK)]
    bodies = ["".join('{"index":{}}\n' + line for line in part).encode() for part in parts]
    queries = [(one["name"], json.dumps(one["body"])) for one in operations(track) if "pages" not in one]
    sides = {"ours": ours, "peer": peer}
    rates, p50, p99 = {side: [] for side in sides}, {}, {}
    for number in range(rounds):
        for side in sorted(sides, reverse=number % 2 == 1):
            client, times = Client(sides[side]), []
            client.send("PUT", "/race", index)
            rates[side].append(len(lines) / bulks(sides[side], bodies, times))
            client.send("POST", "/race/_refresh")
            client.send("POST", "/race/_forcemerge?max_num_segments=1")
            client.send("POST", "/race/_refresh")
            measured = [("bulk", times)]
            for name, body in queries:
                all_times = [client.send("GET", "/race/_search?request_cache=false", body)[1] for _ in range(WARMUP + iterations)]
                measured.append((name, all_times[WARMUP:]))
            client.send("DELETE", "/race")
            for name, times in measured:
                times.sort()
                p50.setdefault((side, name), []).append(statistics.median(times))
                p99.setdefault((side, name), []).append(times[min(int(len(times) * 0.99), len(times) - 1)])
            print(f"round {number + 1}, {side}: {rates[side][-1]:,.0f} docs/s", flush=True)
    middle = {side: statistics.median(values) for side, values in rates.items()}
    print(f"docs/s, median of {rounds} rounds: {middle['ours']:,.0f} / {middle['peer']:,.0f} = {middle['ours'] / middle['peer']:.2f}")
    print(f"{'ms, median of rounds':<24} {'ours p50':>9} {'peer p50':>9} {'peer/ours':>10} {'ours p99':>9} {'peer p99':>9}")
    for name in ["bulk"] + [name for name, _ in queries]:
        values = [statistics.median(all_times[side, name]) for all_times in (p50, p99) for side in sides]
        print(f"{name:<24} {values[0]:9.2f} {values[1]:9.2f} {values[1] / values[0]:10.2f} {values[2]:9.2f} {values[3]:9.2f}")
    return 0


def main():
    command, arguments = sys.argv[1], sys.argv[2:]
    if command == "load":
        load(*arguments)
        return 0
    if command == "hits":
        return hits(*arguments)
    if command == "top":
        return top(*arguments[:4], int(arguments[4]), int(arguments[5]))
    if command == "table":
        return table(*arguments)
    if command == "race":
        return race(*arguments[:3], int(arguments[3]), int(arguments[4]))
    raise SystemExit(__doc__)


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
