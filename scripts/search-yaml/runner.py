"""Runs the REST tests of OpenSearch (YAML files) against a node, and compares what fails with a list of what is known to fail.

    runner.py URL SPEC KNOWN [--failures]

SPEC is a folder with `api/*.json`, the description of all requests, and `test/<folder>/*.yml`. KNOWN is a text: a line
`# REASON`, and under it a line `folder/file.yml: name of the test` for each test that fails for this reason.
--failures shows for each failing test why it failed, to write that list.

The last line is `N passed, N failed`: failed are those that are not on the list. A test of the list that passes is
reported, and is no failure.
"""

import collections
import glob
import http.client
import json
import os
import re
import sys
import urllib.parse

import yaml

# The release that the tests belong to. Bounds of 5.0 and later in a test are releases of Elasticsearch, all of which are
# older than OpenSearch 1.0.
RELEASE = (3, 1, 0)
LEGACY = 5

FOLDERS = """bulk index create get get_source mget delete update exists count range scroll pit msearch search
    search.aggregation indices.create indices.delete indices.exists indices.refresh indices.put_mapping indices.get_mapping
    indices.stats indices.forcemerge indices.flush cat.indices cat.count cat.health cluster.health info ping""".split()

# Files about parts that are left out of the second figure: see docs/search-yaml.md.
LEFT_OUT = re.compile(
    r"search/(110|115|140|210|230|250)_"
    r"|search.aggregation/(30_sig|70_|90_sig|250_|270_|280_|300_|340_|350_)"
)

# What tests ask of a runner, and this one can do or need not do.
FEATURES = set(
    """allowed_warnings allowed_warnings_regex arbitrary_key close_to contains default_shards headers node_selector
    stash_in_path warnings warnings_regex""".split()
)

STATUS = {
    "bad_request": 400,
    "unauthorized": 401,
    "forbidden": 403,
    "missing": 404,
    "request_timeout": 408,
    "conflict": 409,
    "unavailable": 503,
}


class Skipped(Exception):
    """The test does not apply."""


class Failed(Exception):
    """The node did something else than the test expects."""


class Loader(yaml.SafeLoader):
    """YAML in which dates stay texts, and only true and false are booleans."""


Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith((":timestamp", ":bool"))]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"^(true|false)$"), list("tf"))


def version(text):
    numbers = [int(number) for number in re.findall(r"\d+", text)[:3]]
    numbers += [0] * (3 - len(numbers))
    return (0, *numbers[1:]) if numbers[0] >= LEGACY else tuple(numbers)


def check_skip(skip):
    """Raises Skipped if a test is not for this release, or needs what this runner does not do."""
    features = skip.get("features") or []
    for feature in [features] if isinstance(features, str) else features:
        if feature not in FEATURES:
            raise Skipped(f"needs {feature}")
    for bounds in str(skip.get("version") or "").split(","):
        if bounds.strip() == "all":
            raise Skipped("for no release")
        low, dash, high = bounds.partition("-")
        if dash and (not low.strip() or version(low) <= RELEASE) and (not high.strip() or RELEASE <= version(high)):
            raise Skipped("for other releases")


class Node:
    """The node under test, over one connection."""

    def __init__(self, url):
        self.address = urllib.parse.urlsplit(url)
        self.connection = None

    def send(self, method, target, body=None, headers=None):
        """Returns status, text."""
        for attempt in (1, 2):
            if self.connection is None:
                self.connection = http.client.HTTPConnection(self.address.hostname, self.address.port, timeout=60)
            try:
                self.connection.request(method, target, body, headers or {})
                answer = self.connection.getresponse()
                return answer.status, answer.read().decode("utf-8", "replace")
            except (http.client.HTTPException, ConnectionError):
                # A connection that was idle may be closed.
                self.connection.close()
                self.connection = None
                if attempt == 2:
                    raise

    def clean(self):
        for target in (
            "/*?expand_wildcards=all",
            "/_template/*",
            "/_index_template/*",
            "/_component_template/*",
            "/_search/scroll/_all",
            "/_search/point_in_time/_all",
        ):
            self.send("DELETE", target)
        _, text = self.send("GET", "/_cluster/settings?flat_settings=true")
        names = json.loads(text).get("transient", {})
        if names:
            body = json.dumps({"transient": dict.fromkeys(names)})
            self.send("PUT", "/_cluster/settings", body, {"Content-Type": "application/json"})


class Requests:
    """The description of all requests: from a name and arguments to method, target, body."""

    def __init__(self, spec):
        self.apis, self.common = {}, set()
        for path in glob.glob(f"{spec}/api/*.json"):
            with open(path, encoding="utf-8") as file:
                content = json.load(file)
            if os.path.basename(path) == "_common.json":
                self.common = set(content.get("params", {}))
                continue
            self.apis.update((name, api) for name, api in content.items() if "url" in api)

    def known(self, name, argument):
        return argument in self.apis[name].get("params", {}) or argument in self.common

    def path_of(self, name, arguments, has_body):
        """Method and path; takes the parts of the path out of the arguments. None if a part is missing."""
        if name not in self.apis:
            raise Skipped(f"request {name}")
        best = None
        for candidate in self.apis[name]["url"]["paths"]:
            parts = set(candidate.get("parts", {}))
            if parts <= set(arguments) and (best is None or len(parts) > len(best[1])):
                best = (candidate, parts)
        if best is None:
            return None
        candidate, parts = best
        path = candidate["path"]
        for part in parts:
            value = arguments.pop(part)
            text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
            path = path.replace("{" + part + "}", urllib.parse.quote(text, safe=",*"))
        methods = candidate["methods"]
        method = methods[0]
        if has_body and method == "GET" and "POST" in methods:
            method = "POST"
        if name == "index" and "id" in parts:
            method = "PUT"
        return method, path


def parameter(value):
    if isinstance(value, list):
        return ",".join(map(parameter, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


class Test:
    """One test while it runs: what it stored, and the last response."""

    def __init__(self, node, requests):
        self.node, self.requests = node, requests
        self.stored, self.response, self.text = {}, None, ""

    def filled(self, value):
        """With stored values in the place of `$name`."""
        if isinstance(value, str):
            whole = re.fullmatch(r"\$\{?(\w+)\}?", value)
            if whole and whole.group(1) in self.stored:
                return self.stored[whole.group(1)]
            return re.sub(
                r"\$\{?(\w+)\}?", lambda found: str(self.stored.get(found.group(1), found.group(0))), value
            )
        if isinstance(value, dict):
            return {self.filled(key): self.filled(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [self.filled(inner) for inner in value]
        return value

    def at(self, path):
        """The part of the response at `a.b.0`; None if there is none."""
        path = str(path)
        if path in ("", "$body"):
            return self.text if isinstance(self.response, str) else self.response
        found = self.response
        for part in re.split(r"(?<!\\)\.", path.removeprefix("$body.")):
            part = self.filled(part.replace("\\.", "."))
            if part == "_arbitrary_key_":
                return next(iter(found), None) if found else None
            if isinstance(found, list) and re.fullmatch(r"\d+", str(part)) and int(part) < len(found):
                found = found[int(part)]
            elif isinstance(found, dict) and str(part) in found:
                found = found[str(part)]
            else:
                return None
        return found

    def do(self, step):
        step = dict(step)
        catch, headers = step.pop("catch", None), dict(step.pop("headers", None) or {})
        for hint in ("warnings", "warnings_regex", "allowed_warnings", "allowed_warnings_regex", "node_selector"):
            step.pop(hint, None)
        for name, arguments in step.items():
            self.request(name, self.filled(dict(arguments or {})), catch, headers)

    def request(self, name, arguments, catch, headers):
        headers = dict(headers)
        body, ignore = arguments.pop("body", None), arguments.pop("ignore", [])
        found = self.requests.path_of(name, arguments, body is not None)
        if catch == "param" and (found is None or any(not self.requests.known(name, key) for key in arguments)):
            self.response = {}
            return
        if found is None:
            raise Failed(f"{name} needs more parts of its path")
        method, path = found
        target = path
        if arguments:
            target += "?" + urllib.parse.urlencode({key: parameter(value) for key, value in arguments.items()})
        by_lines = name in ("bulk", "msearch")
        if isinstance(body, list):
            body = "".join((line if isinstance(line, str) else json.dumps(line)).rstrip("\n") + "\n" for line in body)
        elif isinstance(body, str):
            body = body + "\n" if by_lines and not body.endswith("\n") else body
        elif body is not None:
            body = json.dumps(body)
        if body is not None:
            headers.setdefault("Content-Type", "application/x-ndjson" if by_lines else "application/json")
        plain = path.startswith("/_cat") and "format" not in arguments
        headers.setdefault("Accept", "text/plain" if plain else "application/json")
        self.send(method, target, body.encode() if body is not None else None, headers)
        self.check_status(f"{method} {target}", method, catch, ignore if isinstance(ignore, list) else [ignore])

    def send(self, method, target, body, headers):
        self.status, self.text = self.node.send(method, target, body, self.filled(headers))
        try:
            self.response = json.loads(self.text) if self.text else {}
            if headers["Accept"] == "text/plain":
                self.response = self.text
        except ValueError:
            self.response = self.text
        if method == "HEAD":
            self.response = self.status == 200

    def check_status(self, request, method, catch, ignore):
        shown = f"{request}: {self.status} {self.text[:200]}"
        if catch in STATUS:
            if self.status != STATUS[catch]:
                raise Failed(f"{shown}, expected {STATUS[catch]}")
        elif catch in ("request", "param"):
            if self.status < 400:
                raise Failed(f"{shown}, expected an error")
        elif catch:
            text = self.text.replace('\\"', '"')
            if self.status < 400 or not re.search(catch.strip().strip("/").strip(), text):
                raise Failed(f"{shown}, expected {catch}")
        elif self.status >= 400 and self.status not in map(int, ignore) and not (method == "HEAD" and self.status == 404):
            raise Failed(shown)

    def step(self, step):
        for kind, content in step.items():
            if kind == "do":
                self.do(content)
            elif kind == "skip":
                check_skip(content)
            elif kind == "set":
                self.stored.update((name, self.at(path)) for path, name in content.items())
            elif kind in ("is_true", "is_false"):
                value = self.at(content)
                is_true = value not in (None, False, "", "false", 0)
                if is_true != (kind == "is_true"):
                    raise Failed(f"{kind} {content}: {short(value)}")
            elif kind in ASSERTIONS:
                for path, expected in content.items():
                    value, expected = self.at(path), self.filled(expected)
                    if not ASSERTIONS[kind](value, expected):
                        raise Failed(f"{kind} {path}: {short(value)}, expected {short(expected)}")
            else:
                raise Skipped(f"step {kind}")


def short(value):
    return json.dumps(value, default=str)[:160]


def same(value, expected):
    if isinstance(expected, str):
        pattern = re.fullmatch(r"\s*/(.*)/\s*", expected, re.DOTALL)
        if pattern:
            return value is not None and re.search(pattern.group(1), str(value), re.VERBOSE) is not None
    if isinstance(expected, bool) or isinstance(value, bool):
        return value == expected
    if isinstance(expected, (int, float)) and isinstance(value, (int, float)):
        return abs(value - expected) <= 1e-6 * max(1, abs(expected))
    if isinstance(expected, dict) and isinstance(value, dict):
        return expected.keys() == value.keys() and all(same(value[key], expected[key]) for key in expected)
    if isinstance(expected, list) and isinstance(value, list):
        return len(expected) == len(value) and all(map(same, value, expected))
    return value == expected or (value is not None and expected is not None and str(value) == str(expected))


def contains(value, expected):
    def fits(item):
        if isinstance(expected, dict) and isinstance(item, dict):
            return all(same(item.get(key), wanted) for key, wanted in expected.items())
        return same(item, expected)

    return any(map(fits, value if isinstance(value, list) else [value]))


def number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


ASSERTIONS = {
    "match": same,
    "length": lambda value, expected: value is not None and len(value) == int(expected),
    "contains": contains,
    "close_to": lambda value, expected: number(value) and abs(value - expected["value"]) <= expected["error"],
    "gt": lambda value, expected: number(value) and value > float(expected),
    "gte": lambda value, expected: number(value) and value >= float(expected),
    "lt": lambda value, expected: number(value) and value < float(expected),
    "lte": lambda value, expected: number(value) and value <= float(expected),
}


def run_file(node, requests, path):
    """Yields the name and the result of each test of a file: passed, skipped or failed, and why."""
    with open(path, encoding="utf-8") as file:
        documents = [document for document in yaml.load_all(file, Loader) if document]
    parts = {name: steps for document in documents for name, steps in document.items()}
    setup, teardown = parts.pop("setup", None) or [], parts.pop("teardown", None) or []
    for name, steps in parts.items():
        node.clean()
        test = Test(node, requests)
        try:
            for step in setup + steps:
                test.step(step)
            yield name, "passed", ""
        except Skipped as why:
            yield name, "skipped", str(why)
        except (Failed, ValueError, TypeError, re.error) as why:
            yield name, "failed", str(why)
        try:
            for step in teardown:
                test.step(step)
        except (Failed, Skipped, ValueError, TypeError):
            pass


def read_known(path):
    known, reason = {}, None
    with open(path, encoding="utf-8") as file:
        for line in filter(None, map(str.strip, file)):
            if line.startswith("#"):
                reason = line.lstrip("# ")
            else:
                known[line] = reason
    return known


def rate(results):
    passed, failed = results.count("passed"), results.count("failed")
    share = 100 * passed / max(1, passed + failed)
    return f"{passed} of {passed + failed} ({share:.1f} %), {results.count('skipped')} skipped"


def main():
    url, spec, known_path = sys.argv[1:4]
    shows = "--failures" in sys.argv[4:]
    node, requests, known = Node(url), Requests(spec), read_known(known_path)
    settings = json.dumps({"persistent": {"action.destructive_requires_name": False}})
    node.send("PUT", "/_cluster/settings", settings, {"Content-Type": "application/json"})
    results, of_gate, reasons, failed = [], [], collections.Counter(), 0
    for folder in FOLDERS:
        for path in sorted(glob.glob(f"{spec}/test/{folder}/*.yml")):
            place = f"{folder}/{os.path.basename(path)}"
            for name, result, why in run_file(node, requests, path):
                line = f"{place}: {name.strip()}"
                results.append(result)
                if not LEFT_OUT.match(place):
                    of_gate.append(result)
                if result == "failed" and shows:
                    print(f"{line}\n    {why}")
                if result == "failed" and line in known:
                    reasons[known[line]] += 1
                elif result == "failed":
                    failed += 1
                    print(f"FAILED {line}: {why}")
                elif line in known:
                    print(f"passes, remove it from {known_path}: {line}")
    node.clean()
    for reason, count in reasons.most_common():
        print(f"{count} fail as known: {reason}")
    print(f"all tests: {rate(results)}")
    print(f"without the parts that are left out: {rate(of_gate)}")
    print(f"{results.count('passed')} passed, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
