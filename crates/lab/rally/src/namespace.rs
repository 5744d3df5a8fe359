//! A program in a process and network namespace of its own, with a relay to the node outside: esrally allows one race for each
//! machine, since it looks for other processes of its name and listens on a fixed port.
//!
//! ```text
//!   inside    esrally --> 127.0.0.1:9200      the listener belongs to the namespace, which a thread entered to open it
//!                              |
//!   outside              relay: two threads for each connection --> the node
//! ```
//!
//! esrally also needs an address that is not the loopback's, and a default route, or its actors work in a mode without the network: the
//! namespace gets both, on its loopback interface. Needs root, `unshare` of util-linux and `ip` of iproute2.
//!
//! Invariants: what runs inside ends with its `Enclosed`; the relay copies bytes and reads nothing.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, ensure};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Where the node is reached inside.
pub const INSIDE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9200);
/// How often the relay looks for a new connection, and for its end.
const LOOK: Duration = Duration::from_millis(2);
/// Bytes that are copied at once.
const PART: usize = 64 << 10;

/// Prepares the namespace, reports that, waits for a line, and becomes the program `$@`, whose output goes to the file `$RACE_LOG`.
const INIT: &str = "ip link set lo up && ip address add 10.255.255.1/32 dev lo && ip route add default dev lo && \
                    echo ready && read -r go && \
                    exec \"$@\" >\"$RACE_LOG\" 2>&1 </dev/null";

/// Why namespaces cannot be used here, if they cannot.
pub fn obstacle() -> Option<&'static str> {
    if !rustix::process::geteuid().is_root() {
        return Some("it needs root");
    }
    let works = |program: &str, argument: &str| {
        let tried = Command::new(program).arg(argument).stdout(Stdio::null()).stderr(Stdio::null()).status();
        tried.is_ok_and(|status| status.success())
    };
    if !works("unshare", "--version") {
        return Some("it needs unshare, of the package util-linux");
    }
    if !works("ip", "-V") {
        return Some("it needs ip, of the package iproute2");
    }
    None
}

/// A program in its namespaces.
#[derive(Debug)]
pub struct Enclosed {
    child: Child,
    ends: Arc<AtomicBool>,
}

impl Enclosed {
    /// Starts `command` (program and arguments, environment and folder) with a relay to `node`; its output goes to `log`.
    ///
    /// # Errors
    /// The system's, as where namespaces are not allowed.
    pub fn start(command: &Command, node: SocketAddr, log: &Path) -> anyhow::Result<Enclosed> {
        let mut unshare = Command::new("unshare");
        unshare
            .args(["--net", "--pid", "--fork", "--mount-proc", "--kill-child=KILL", "sh", "-c", INIT, "race"])
            .arg(command.get_program())
            .args(command.get_args())
            .env("RACE_LOG", log)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => unshare.env(name, value),
                None => unshare.env_remove(name),
            };
        }
        if let Some(folder) = command.get_current_dir() {
            unshare.current_dir(folder);
        }
        let child = unshare.spawn().context("starting unshare")?;
        let mut enclosed = Enclosed { child, ends: Arc::default() };
        let mut ready = String::new();
        BufReader::new(enclosed.child.stdout.take().context("it is piped")?).read_line(&mut ready)?;
        ensure!(ready == "ready\n", "the namespaces cannot be made: {:?}", enclosed.child.wait()?);
        let listener = listen_inside(enclosed.child.id()).context("listening inside the namespace")?;
        let ends = Arc::clone(&enclosed.ends);
        thread::spawn(move || relay(&listener, node, &ends));
        enclosed.child.stdin.take().context("it is piped")?.write_all(b"go\n")?;
        Ok(enclosed)
    }

    /// How it ended, if it has.
    ///
    /// # Errors
    /// The system's.
    pub fn poll(&mut self) -> anyhow::Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }
}

impl Drop for Enclosed {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        // Both fail only if it has ended already. The first process of a process namespace takes all others with it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A listener in the network namespace of a process. Only the thread that opens it enters the namespace, and ends.
fn listen_inside(pid: u32) -> anyhow::Result<TcpListener> {
    let space = File::open(format!("/proc/{pid}/ns/net"))?;
    let opened = thread::spawn(move || -> std::io::Result<TcpListener> {
        move_into_link_name_space(space.as_fd(), Some(LinkNameSpaceType::Network))?;
        TcpListener::bind(INSIDE)
    });
    Ok(opened.join().map_err(|_| anyhow::anyhow!("the thread has panicked"))??)
}

/// Accepts connections until `ends` is set, and connects each to the node.
fn relay(listener: &TcpListener, node: SocketAddr, ends: &AtomicBool) {
    // A listener that cannot be asked without waiting would keep this thread for ever: nothing is relayed then, and the race fails.
    if listener.set_nonblocking(true).is_err() {
        return;
    }
    while !ends.load(Ordering::Relaxed) {
        match listener.accept() {
            Ok((inside, _)) => {
                // One that cannot be relayed is closed, which the program inside notices.
                let _ = connect(inside, node);
            }
            Err(_) => thread::sleep(LOOK),
        }
    }
}

fn connect(inside: TcpStream, node: SocketAddr) -> std::io::Result<()> {
    inside.set_nonblocking(false)?;
    inside.set_nodelay(true)?;
    let outside = TcpStream::connect(node)?;
    outside.set_nodelay(true)?;
    let (inside_again, outside_again) = (inside.try_clone()?, outside.try_clone()?);
    thread::spawn(move || copy(&inside, &outside));
    thread::spawn(move || copy(&outside_again, &inside_again));
    Ok(())
}

/// Copies until one side ends, and then ends the other one's half.
fn copy(mut from: &TcpStream, mut to: &TcpStream) {
    let mut part = vec![0; PART];
    loop {
        match from.read(&mut part) {
            Ok(read) if read > 0 && to.write_all(&part[..read]).is_ok() => {}
            _ => break,
        }
    }
    // Closed already: the other side has ended first.
    let _ = to.shutdown(Shutdown::Write);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_inside_reaches_the_node_outside_has_an_address_of_its_own_and_sees_no_process_but_its_own() {
        if let Some(obstacle) = obstacle() {
            println!("skipped: {obstacle}");
            return;
        }
        let node = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = node.local_addr().expect("an address");
        let serving = thread::spawn(move || {
            let (mut stream, _) = node.accept().expect("the program connects");
            let mut asked = String::new();
            let _ = BufReader::new(&stream).read_line(&mut asked);
            let _ = stream.write_all(b"pong\n");
            asked
        });
        let folder = tempfile::tempdir().expect("a folder");
        let log = folder.path().join("log");
        let mut shell = Command::new("bash");
        let script = "exec 3<>/dev/tcp/127.0.0.1/9200; echo $GREETING >&3; read -r line <&3; echo $line; \
                      ip -o -4 address show dev lo | grep -c 10.255.255.1; ls -d /proc/[0-9]* | wc -l";
        shell.args(["-c", script]).env("GREETING", "ping");
        let mut enclosed = Enclosed::start(&shell, address, &log).expect("it starts");
        let status = loop {
            if let Some(status) = enclosed.poll().expect("it can be asked") {
                break status;
            }
            thread::sleep(LOOK);
        };
        let told = std::fs::read_to_string(&log).expect("it is there");
        assert!(status.success(), "{told}");
        assert_eq!(serving.join().expect("it ends"), "ping\n");
        let lines: Vec<&str> = told.lines().map(str::trim).collect();
        assert_eq!(lines[..2], ["pong", "1"]);
        assert!(lines[2].parse::<u32>().expect("a number") < 10, "{told}");
    }
}
