"""What the cases of test-console.sh share: the node's commands, messages to send, and a visit of a browser that notes what it should not
have to: no other host has an address for it, and a request to one counts as a failure, as does every message of the browser about a breach
of the policy of contents.
"""

import json
import os
import re
import subprocess
import sys
import time
import urllib.request

URL, TERRACE, FOLDER, AXE, SEARCH, ISSUER = sys.argv[1:7]
PICTURES = os.environ.get("PICTURES")
PASSWORD = "correct horse battery"
ARGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--disable-dev-shm-usage",
    # Not by routes of playwright: they switch the cache off.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
]
# Texts that would be a script if a page wrote them as they are; what runs sets `window.ran`.
EVIL = [
    "<script>window.ran=1</script>",
    "\"><img src=x onerror=window.ran=1>",
    "'><svg onload=window.ran=1>",
    "</textarea><script>window.ran=1</script>",
    "javascript:window.ran=1",
    "{{constructor.constructor('window.ran=1')()}}",
]
# What a first visit may load over the wire.
FIRST_VISIT = 150_000


def terrace(*arguments, stdin=None):
    done = subprocess.run([TERRACE, *arguments], cwd=FOLDER, input=stdin, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{arguments}: {done.stdout} {done.stderr}"
    return done.stdout


def services():
    text = terrace("status")
    return dict(re.findall(r"^(adt-in|lab-in) +mllp +(\S+)", text, re.M))


def until(what, probe):
    deadline = time.monotonic() + 60
    while not probe():
        assert time.monotonic() < deadline, f"it did not come to pass: {what}"
        time.sleep(0.05)


def message(number, kind, ward="ICU", mrn=None):
    event = {"ADT": "ADT^A01", "ORU": "ORU^R01", "SIU": "SIU^S12"}[kind]
    mrn = mrn or 4700 + number
    text = (
        f"MSH|^~\\&|HIS|NORTH|HUB|X|20260101120000||{event}|MSG{number:07}|P|2.5\n"
        f"PID|1||{mrn}^^^NORTH^MR||M\u00fcller^Ann||19700101|F|||Main Street 1^^Springfield\nPV1|1|I|{ward}^12^1\n"
    )
    if kind == "ORU":
        text += f"OBR|1|A{number}|B{number}|GLU^Glucose\nOBX|1|NM|GLU^Glucose||{80 + number % 40}|mg/dL|70-110|N|||F\n"
    return text


def send(service, texts):
    path = os.path.join(FOLDER, "messages.hl7")
    with open(path, "w", encoding="utf-8") as file:
        file.write("".join(texts))
    subprocess.run([TERRACE, "message", "send", path, "--to", services()[service]], cwd=FOLDER, capture_output=True, check=False)


def prepare():
    password = os.path.join(FOLDER, "password")
    with open(password, "w", encoding="utf-8") as file:
        file.write(PASSWORD)
    for user in ("ann", "masked"):
        terrace("user", "add", user, "--password-file", password)
    rights = {
        "ann": ["message-body", "unmasked"],
        "masked": ["message-metadata", "message-body"],
    }
    for user, names in rights.items():
        terrace("role", "grant", *names, "--on", "service *", "--to", user)
    terrace("role", "grant", "message-metadata", "message-resend", "--on", "service *", "--to", "ann")
    terrace("role", "grant", "message-edit", "--on", "service *", "--to", "ann")
    terrace("role", "grant", "operation-suspend", "operation-set-aside", "--on", "operation *", "--to", "ann")
    terrace("role", "grant", "schema-use", "--on", "schema hl7", "--to", "ann")
    terrace("role", "grant", "table-select", "--on", "table hl7.messages", "--to", "ann")
    terrace("role", "grant", "index-read", "--on", "index notes", "--to", "ann")
    node = ["node-status", "production-load", "production-read", "audit-read", "user-administer", "break-glass", "sql-connect", "node-metrics", "node-profile"]
    terrace("role", "grant", *node, "--on", "node", "--to", "ann")
    terrace("role", "grant", "volume-list", "--on", "volume *", "--to", "ann")
    terrace("role", "grant", "node-status", "--on", "node", "--to", "masked")
    terrace("role", "create", "doctors")
    terrace("role", "grant", "node-status", "--on", "node", "--to", "doctors")
    terrace("volume", "create", "scratch", "--size", "4MiB")
    send("adt-in", [message(number, "ADT") for number in range(60)])
    send("lab-in", [message(number, "ORU", "W7") for number in range(100, 130)])
    send("lab-in", [message(200, "ORU", "NOWHERE"), message(201, "SIU")])
    send("adt-in", [message(4711, "ADT", "W7", "884711")])
    for number, text in enumerate(EVIL):
        document(f"/notes/_doc/{number}", {"text": f"a strange note {text}", "ward": text})
    document("/notes/_doc/plain?refresh=true", {"text": "severe chest pain, sent to the laboratory", "ward": "ICU"})


def document(target, body):
    data = json.dumps(body).encode()
    request = urllib.request.Request(SEARCH + target, data, {"Content-Type": "application/json"}, method="PUT")
    with urllib.request.urlopen(request, timeout=60) as answer:
        answer.read()


class Visit:
    """A browser's context that notes what it should not have to."""

    def __init__(self, browser, scheme="light", width=1280, height=900, script=True):
        self.context = browser.new_context(
            color_scheme=scheme,
            viewport={"width": width, "height": height},
            java_script_enabled=script,
            permissions=["clipboard-read", "clipboard-write"] if script else [],
            timezone_id="Europe/Berlin",
        )
        self.wrong, self.bytes, self.allowed = [], 0, (URL,)
        self.page = self.context.new_page()
        self.page.on("request", self.asked)
        self.page.on("console", self.said)
        self.page.on("pageerror", lambda error: self.wrong.append(f"error of a script: {error}"))
        self.page.set_default_timeout(20_000)

    def asked(self, request):
        if not request.url.startswith(self.allowed):
            self.wrong.append(f"a request to {request.url}")

    def said(self, line):
        if line.type in ("error", "warning") and "status of" not in line.text:
            self.wrong.append(f"the browser says: {line.text}")

    def sign_in(self, user="ann"):
        self.page.goto(f"{URL}/sign-in")
        self.page.fill("#user", user)
        self.page.fill("#password", PASSWORD)
        self.page.keyboard.press("Enter")
        self.page.wait_for_url(lambda url: "sign-in" not in url)
        return self.page

    def clean(self):
        assert not self.wrong, self.wrong
        return True

    def close(self):
        self.context.close()


def axe(page):
    page.add_init_script("")
    with open(AXE, encoding="utf-8") as file:
        page.evaluate(file.read())
    found = page.evaluate("axe.run(document, {runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice']})")
    wrong = [
        f"{one['id']} ({one['impact']}): {one['help']}: {[node['html'][:160] + ' ' + str(node.get('failureSummary'))[:300] for node in one['nodes'][:3]]}"
        for one in found["violations"]
    ]
    assert not wrong, "\n".join(wrong)
    return len(found["passes"])


def newest(page, query):
    page.goto(f"{URL}/messages?{query}")
    return page.locator("tbody a[href^='/messages/']").first.get_attribute("href")


def picture(page, name):
    if PICTURES:
        os.makedirs(PICTURES, exist_ok=True)
        page.screenshot(path=os.path.join(PICTURES, f"{name}.png"), full_page=True)
