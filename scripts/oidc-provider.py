"""A provider of logins (OpenID Connect) for test-console.sh: discovery, keys, a page to sign in on, tokens by RS256, a page to sign out on.

usage: oidc-provider.py    (prints its issuer; ends when its standard input does)

Of the standard library alone: RSA is numbers, and its key is drawn at the start. Who comes is ben, of the group doctors. It is at `localhost`, which is
another site than 127.0.0.1 for a browser.
"""

import base64
import hashlib
import html
import json
import secrets
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlencode, urlsplit

BITS = 2048
EXPONENT = 65537
# RFC 8017, 9.2: what stands before a SHA-256.
PREFIX = bytes.fromhex("3031300d060960864801650304020105000420")


def is_prime(number):
    if any(number % small == 0 for small in (3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47)):
        return False
    odd, twos = number - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    for _ in range(20):
        power = pow(secrets.randbelow(number - 3) + 2, odd, number)
        if power in (1, number - 1):
            continue
        for _ in range(twos - 1):
            power = power * power % number
            if power == number - 1:
                break
        else:
            return False
    return True


def prime():
    while True:
        number = secrets.randbits(BITS // 2) | 3 << BITS // 2 - 2 | 1
        if number % EXPONENT != 1 and is_prime(number):
            return number


def in_base64(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


P, Q = prime(), prime()
MODULUS = P * Q
PRIVATE = pow(EXPONENT, -1, (P - 1) * (Q - 1))
CODES = {}


def signed(claims):
    header = {"alg": "RS256", "typ": "JWT", "kid": "k1"}
    text = ".".join(in_base64(json.dumps(part).encode()) for part in (header, claims))
    digest = PREFIX + hashlib.sha256(text.encode()).digest()
    padded = b"\x00\x01" + b"\xff" * (BITS // 8 - len(digest) - 3) + b"\x00" + digest
    signature = pow(int.from_bytes(padded, "big"), PRIVATE, MODULUS)
    return f"{text}.{in_base64(signature.to_bytes(BITS // 8, 'big'))}"


class Provider(BaseHTTPRequestHandler):
    def log_message(self, *arguments):
        pass

    def answer(self, status, body, kind="application/json", **headers):
        data = body.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def page(self, title, text):
        self.answer(200, f"<!DOCTYPE html><html lang=en><title>{title}</title><h1>{title}</h1>{text}", "text/html; charset=utf-8")

    def do_GET(self):
        place, query = urlsplit(self.path), parse_qs(urlsplit(self.path).query)
        fields = {name: values[0] for name, values in query.items()}
        if place.path == "/.well-known/openid-configuration":
            names = {"authorization_endpoint": "authorize", "token_endpoint": "token", "jwks_uri": "keys", "end_session_endpoint": "logout"}
            self.answer(200, json.dumps({"issuer": ISSUER, **{name: f"{ISSUER}/{path}" for name, path in names.items()}}))
        elif place.path == "/keys":
            key = {"kty": "RSA", "kid": "k1", "use": "sig", "alg": "RS256", "n": in_base64(MODULUS.to_bytes(BITS // 8, "big")), "e": "AQAB"}
            self.answer(200, json.dumps({"keys": [key]}))
        elif place.path == "/authorize":
            # A person decides here: coming back is a step of the browser from another site.
            inputs = "".join(f'<input type=hidden name="{html.escape(name)}" value="{html.escape(value)}">' for name, value in fields.items())
            self.page("The clinic's login", f"<form action=/authorized>{inputs}<button>Continue as ben</button></form>")
        elif place.path == "/authorized":
            code = secrets.token_urlsafe(16)
            CODES[code] = (fields["code_challenge"], fields["nonce"], fields["redirect_uri"])
            back = f"{fields['redirect_uri']}?{urlencode({'code': code, 'state': fields['state']})}"
            self.answer(302, "", Location=back)
        elif place.path == "/logout":
            assert fields["id_token_hint"].count(".") == 2
            self.page("Signed out of the clinic", f'<a href="{html.escape(fields["post_logout_redirect_uri"])}">Back</a>')
        else:
            self.answer(404, "{}")

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        fields = {name: values[0] for name, values in parse_qs(body).items()}
        challenge, nonce, back = CODES.pop(fields.get("code"), (None, None, None))
        proven = in_base64(hashlib.sha256(fields.get("code_verifier", "").encode()).digest())
        if self.path != "/token" or proven != challenge or fields.get("redirect_uri") != back or fields.get("client_id") != "terrace":
            self.answer(400, json.dumps({"error": "invalid_grant"}))
            return
        now = int(time.time())
        claims = {"iss": ISSUER, "aud": "terrace", "sub": "b-1", "exp": now + 300, "iat": now, "nonce": nonce}
        claims |= {"preferred_username": "ben", "groups": ["doctors"]}
        self.answer(200, json.dumps({"access_token": "x", "token_type": "Bearer", "id_token": signed(claims)}))


SERVER = ThreadingHTTPServer(("127.0.0.1", 0), Provider)
ISSUER = f"http://localhost:{SERVER.server_port}"
threading.Thread(target=SERVER.serve_forever, daemon=True).start()
print(ISSUER, flush=True)
sys.stdin.read()
