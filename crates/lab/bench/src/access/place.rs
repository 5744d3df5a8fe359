//! The place of a measurement: a node of its own, its roles, and small blocking clients of its ports.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use interop::engine::Bodies;
use node::identity::scram::Verifier;
use serde_json::{Value, json};
use socket2::{Domain, Socket, Type};

use workload::interrupt;
use workload::node::Node;
use workload::t4::Folder;

/// How long an answer may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// How long a wait for a state looks away.
const LOOK: Duration = Duration::from_millis(5);

/// Nodes that this process has started: each has a folder of its own.
static STARTED: AtomicU32 = AtomicU32::new(0);

/// A node with a production of two services, whose messages are kept and sent nowhere.
pub(crate) struct AccessNode {
    pub(crate) node: Node,
    folder: Folder,
}

impl AccessNode {
    /// Starts a node of `program` with these settings.
    pub(crate) fn start(program: &Path, settings: &str) -> anyhow::Result<AccessNode> {
        AccessNode::start_with(program, settings, None)
    }

    /// The same on an encrypted data directory, whose key-encryption key is in the file `key`.
    pub(crate) fn start_with(program: &Path, settings: &str, key: Option<&Path>) -> anyhow::Result<AccessNode> {
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let folder = Folder::scratch(None, &format!("access-node{number}"))?;
        let put = |path: &str, text: &str| -> anyhow::Result<()> {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().context("a file in a folder")?)?;
            Ok(std::fs::write(path, text)?)
        };
        for service in ["near", "far"] {
            let text = "kind = \"mllp\"\nlisten = \"127.0.0.1:0\"\nrules = \"main\"\n";
            put(&format!("production/services/{service}.toml"), text)?;
        }
        put("production/rules/main.rules", "match first\n\notherwise {\n  drop \"kept\"\n}\n")?;
        put("terrace.toml", settings)?;
        let file = folder.path().join("terrace.toml");
        let mut node = Node::spawn_with_key(program, folder.path(), (Bodies::Full, Some(&file)), key)?;
        node.wait_until_ready()?;
        Ok(AccessNode { node, folder })
    }

    /// Where the data is.
    pub(crate) fn data(&self) -> &Path {
        self.folder.path()
    }

    /// The address of a port, once its log has it.
    pub(crate) fn address(&self, of: fn(&Node) -> Option<SocketAddr>) -> anyhow::Result<SocketAddr> {
        until(&self.node, || Ok(of(&self.node)))
    }

    /// Runs a command of the program on the data directory.
    pub(crate) fn command(&self, program: &Path, words: &[&str]) -> anyhow::Result<()> {
        let mut command = Command::new(program);
        command.args(words).arg("--data").arg(self.data()).arg("--config").arg(self.data().join("terrace.toml"));
        let output = command.output().with_context(|| format!("running {words:?}"))?;
        ensure!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    }

    /// Sends a message to a service, and waits for its acknowledgement.
    pub(crate) fn send(&self, service: &str, text: &str) -> anyhow::Result<()> {
        let address = self.node.services().get(service).with_context(|| format!("no service {service}"))?;
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(&[&[0x0b], text.as_bytes(), &[0x1c, 0x0d]].concat())?;
        let mut answer = Vec::new();
        BufReader::new(stream).read_until(0x1c, &mut answer)?;
        let answer = String::from_utf8_lossy(&answer);
        ensure!(answer.contains("MSA|AA"), "the message was not taken: {answer}");
        Ok(())
    }

    /// Makes an administrator who can log in where `trust` is set.
    pub(crate) fn administrator(&self, name: &str) -> anyhow::Result<()> {
        let verifier = Verifier::of("not asked for")?;
        Control::open(self.data())?.change(&[json!({ "create": {
            "name": name, "attributes": { "login": true, "administrator": true }, "credentials": { "scram": verifier } } })])
    }

    /// Stops the node.
    pub(crate) fn stop(self) -> anyhow::Result<()> {
        let status = self.node.stop()?;
        ensure!(status.success(), "the node ended with {status}");
        Ok(())
    }
}

/// Waits for a state of a node.
pub(crate) fn until<T>(node: &Node, mut probe: impl FnMut() -> anyhow::Result<Option<T>>) -> anyhow::Result<T> {
    let begun = std::time::Instant::now();
    loop {
        if let Some(found) = probe()? {
            return Ok(found);
        }
        interrupt::check()?;
        if begun.elapsed() > PATIENCE {
            bail!("it did not come to pass within {} s:\n{}", PATIENCE.as_secs(), node.log_tail());
        }
        std::thread::sleep(LOOK);
    }
}

/// A connection to the control socket.
pub(crate) struct Control(BufReader<UnixStream>);

impl Control {
    pub(crate) fn open(data: &Path) -> anyhow::Result<Control> {
        let stream = UnixStream::connect(data.join("control.sock")).context("the control socket")?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Control(BufReader::new(stream)))
    }

    /// Sends a request and reads its answer, refused or not.
    pub(crate) fn send(&mut self, request: &str) -> anyhow::Result<Value> {
        self.0.get_mut().write_all(format!("{request}\n").as_bytes())?;
        loop {
            let mut line = String::new();
            self.0.read_line(&mut line)?;
            let answer: Value = serde_json::from_str(&line).with_context(|| format!("{request}: {line}"))?;
            if answer.get("progress").is_none() {
                return Ok(answer);
            }
        }
    }

    /// The same, of a request that must succeed.
    pub(crate) fn must(&mut self, request: &str) -> anyhow::Result<Value> {
        let mut answer = self.send(request)?;
        match answer["error"].as_str() {
            None => Ok(answer["ok"].take()),
            Some(error) => bail!("{request}: {error}"),
        }
    }

    /// Makes a user with these rights, each an action on an object, and returns a token of it.
    pub(crate) fn user(
        &mut self,
        name: &str,
        password: Option<&str>,
        rights: &[(&str, Value)],
    ) -> anyhow::Result<String> {
        let scram = password.map(Verifier::of).transpose()?;
        let create = json!({ "create": {
            "name": name, "attributes": { "login": true }, "credentials": { "scram": scram } } });
        self.change(&[create])?;
        let grant = |(action, object): &(&str, Value)| {
            let privileges = json!({ "actions": [action], "object": object, "columns": [], "grantee": name });
            json!({ "grant": { "privileges": privileges, "grant_option": false } })
        };
        for few in rights.chunks(8) {
            self.change(&few.iter().map(grant).collect::<Vec<_>>())?;
        }
        let draw = json!({ "verb": "draw-token", "role": name, "name": "bench", "until_us": null });
        let drawn = self.must(&format!("identity {draw}"))?;
        drawn["token"].as_str().map(str::to_owned).context("no token")
    }

    /// Changes roles and rights.
    pub(crate) fn change(&mut self, changes: &[Value]) -> anyhow::Result<()> {
        self.must(&format!("identity {}", json!({ "verb": "change", "changes": changes }))).map(drop)
    }
}

/// An address of this machine that was not used before: the `number`-th of 127.0.0.0/8 behind 127.1.0.0.
pub(crate) fn own_address(number: u32) -> Ipv4Addr {
    let first = u32::from(Ipv4Addr::new(127, 1, 0, 0));
    Ipv4Addr::from(first + number % (1 << 23))
}

/// Connects from an address of this machine.
pub(crate) fn connect_from(from: Ipv4Addr, to: SocketAddr) -> anyhow::Result<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.bind(&SocketAddr::from((from, 0)).into())?;
    socket.connect(&to.into())?;
    let stream = TcpStream::from(socket);
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// Sends a request over HTTP and reads its answer: the status and the body.
pub(crate) fn http(
    stream: &mut BufReader<TcpStream>,
    authorization: &str,
    target: &str,
) -> anyhow::Result<(u16, String)> {
    let request = format!(
        "GET {target} HTTP/1.1\r\nHost: localhost\r\nAuthorization: {authorization}\r\nContent-Length: 0\r\n\r\n"
    );
    stream.get_mut().write_all(request.as_bytes())?;
    let (mut status, mut length) = (0, 0);
    for number in 0.. {
        let mut line = String::new();
        ensure!(stream.read_line(&mut line)? > 0, "{target}: no answer");
        let line = line.trim_end().to_ascii_lowercase();
        match line.split_once(':') {
            _ if line.is_empty() => break,
            _ if number == 0 => status = line.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0),
            Some(("content-length", value)) => length = value.trim().parse()?,
            _ => {}
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    Ok((status, String::from_utf8_lossy(&body).into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_sample_has_an_address_of_this_machine_of_its_own() {
        let addresses: std::collections::BTreeSet<Ipv4Addr> = (0..100_000).map(own_address).collect();
        assert_eq!(addresses.len(), 100_000);
        assert!(addresses.iter().all(Ipv4Addr::is_loopback));
    }
}
