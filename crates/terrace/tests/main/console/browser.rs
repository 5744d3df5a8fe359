//! A browser as small as can be: one connection for each request, cookies, forms, and the headers that browsers send by themselves.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Longer than any request takes on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// An answer.
#[derive(Debug)]
pub(super) struct Page {
    pub(super) status: u16,
    /// Headers by their names in small letters; of several of one name the last, but of cookies all.
    pub(super) headers: BTreeMap<String, String>,
    pub(super) cookies: Vec<String>,
    pub(super) body: String,
}

impl Page {
    /// The value of the field of a form.
    pub(super) fn field(&self, name: &str) -> String {
        let mark = format!("name=\"{name}\" value=\"");
        let found = self.body.split_once(&mark).unwrap_or_else(|| panic!("no field {name}: {}", self.body));
        found.1.split_once('"').expect("its end").0.to_owned()
    }

    /// It has this status.
    pub(super) fn is(self, status: u16) -> Page {
        assert_eq!(self.status, status, "{}", self.body);
        self
    }

    /// It has this status, and this text.
    pub(super) fn shows(self, status: u16, text: &str) -> Page {
        assert!(self.body.contains(text), "`{text}` is not in: {}", self.body);
        self.is(status)
    }
}

/// A text as a value of a form.
pub(super) fn encoded(text: &str) -> String {
    let one = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    text.bytes().map(one).collect()
}

/// See the module's text.
#[derive(Debug, Clone)]
pub(super) struct Browser {
    pub(super) address: SocketAddr,
    pub(super) cookies: BTreeMap<String, String>,
    /// What it says with a POST, in the place of what a browser would say of a page of the console.
    pub(super) origin: Option<&'static str>,
    /// What it says with a GET, in the place of what a browser would say of an address that was typed.
    pub(super) site: Option<&'static str>,
}

impl Browser {
    pub(super) fn at(address: SocketAddr) -> Browser {
        Browser { address, cookies: BTreeMap::new(), origin: None, site: None }
    }

    /// A request; its cookies are kept.
    pub(super) fn send(&mut self, method: &str, target: &str, body: &str) -> Page {
        let mut reader = self.open(method, target, body);
        let page = read(&mut reader);
        for cookie in &page.cookies {
            let (name, rest) = cookie.split_once('=').expect("a cookie");
            let value = rest.split(';').next().unwrap_or_default();
            if value.is_empty() {
                self.cookies.remove(name);
            } else {
                self.cookies.insert(name.to_owned(), value.to_owned());
            }
        }
        page
    }

    /// Sends a request, whose answer may be read later.
    pub(super) fn open(&self, method: &str, target: &str, body: &str) -> BufReader<TcpStream> {
        let mut stream = TcpStream::connect(self.address).expect("the node listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let pairs: Vec<String> = self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let own = format!("Origin: http://{}\r\nSec-Fetch-Site: same-origin\r\n", self.address);
        let typed = self.site.unwrap_or("Sec-Fetch-Site: none\r\n");
        let from = if method == "POST" { self.origin.unwrap_or(&own) } else { typed };
        let head = format!(
            "{method} {target} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nCookie: {}\r\n{from}\
             Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n{body}",
            self.address,
            pairs.join("; "),
            body.len()
        );
        stream.write_all(head.as_bytes()).expect("it is taken");
        BufReader::new(stream)
    }

    pub(super) fn get(&mut self, target: &str) -> Page {
        self.send("GET", target, "")
    }

    /// Sends a form of these fields.
    pub(super) fn post(&mut self, target: &str, fields: &[(&str, &str)]) -> Page {
        let pairs: Vec<String> = fields.iter().map(|(name, value)| format!("{name}={}", encoded(value))).collect();
        self.send("POST", target, &pairs.join("&"))
    }

    /// Signs in; the answer.
    pub(super) fn sign_in(&mut self, user: &str, password: &str) -> Page {
        let token = self.get("/sign-in").is(200).field("token");
        self.post("/sign-in", &[("token", &token), ("user", user), ("password", password), ("next", "/")])
    }

    /// A stream of events, to be read line by line.
    pub(super) fn stream(&self, target: &str) -> BufReader<TcpStream> {
        self.open("GET", target, "")
    }
}

/// Reads an answer to its end; of one without a length, until the connection ends.
fn read(reader: &mut BufReader<TcpStream>) -> Page {
    let (mut status, mut headers, mut cookies) = (0, BTreeMap::new(), Vec::new());
    for number in 0.. {
        let mut line = String::new();
        assert!(reader.read_line(&mut line).expect("an answer") > 0, "no answer");
        let line = line.trim_end();
        match line.split_once(": ") {
            _ if line.is_empty() => break,
            _ if number == 0 => status = line.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status"),
            Some((name, value)) if name.eq_ignore_ascii_case("set-cookie") => cookies.push(value.to_owned()),
            Some((name, value)) => _ = headers.insert(name.to_ascii_lowercase(), value.to_owned()),
            None => {}
        }
    }
    let mut body = Vec::new();
    reader.read_to_end(&mut body).expect("the body");
    Page { status, headers, cookies, body: String::from_utf8_lossy(&body).into_owned() }
}
