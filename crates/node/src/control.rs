//! The control socket of a node: how commands such as `terrace status` and `terrace backup` reach a node that runs.
//!
//! A Unix socket in the data directory, so that the file system decides who may use it. One request a line, words separated by
//! blanks; one line of JSON back: `{"ok": ...}` or `{"error": "..."}`. Work that takes long sends lines ahead of it,
//! `{"progress": {"done": ..., "total": ...}}`, as often as the client reads them; it ends when the client hangs up. A request that
//! goes on by itself sends what it finds as lines ahead of its response, `{"part": ...}`: a few are made ahead of a client that reads
//! slowly, and then the work waits for it.
//!
//! The system says which user sent a request ([`LocalPeer`]); the client cannot choose it. It can put a token ahead of the request,
//! which makes it one of the token's role. The socket's file is the node's user's own: others do not get as far as being asked.
//!
//! Both ends of the socket are here. The services define the requests: see [`Requests`].

mod serving;

use std::io::{BufRead, BufReader, Read, Write};
use std::ops::ControlFlow;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream as BlockingStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use device::os::PRIVATE_FILE;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::net::UnixListener;
use tokio::sync::{Semaphore, mpsc, watch};

use crate::admission::{Admission, Bounds};
use crate::error::NodeError;
use crate::task::{session, supervised};

/// Longest request taken: one with the body of a message. Only who may open the socket's file gets as far as to send it.
const REQUEST_BYTES_MAX: u64 = 1 << 20;

/// The word of the one request that may be longer, with messages from elsewhere, and how long: a message of 63 MiB, of whose bytes half
/// take two as characters.
const LONG_REQUEST: &[u8] = b"import ";
const LONG_REQUEST_BYTES_MAX: u64 = 96 << 20;

/// How long the rest of a long request may take to come: it holds up the others of its kind.
const LONG_REQUEST_TIME: Duration = Duration::from_secs(60);

/// Longest request without a body; the longest real one names every operation of a large production. The services see to it, since
/// entries of the audit repeat such requests.
pub const PLAIN_REQUEST_BYTES_MAX: usize = 64 << 10;

/// Clients at one time. One that has sent no request for a while makes room for another.
const CLIENTS: Bounds = Bounds { sockets: 32, of_address: 32 };

/// How long a client waits for a response. A check reads all that is stored: at 100 MB/s, this much is 360 GB.
const PATIENCE: Duration = Duration::from_secs(3_600);

/// How far something has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// The progress: how much is done of the total.
    pub done: u64,
    /// All there is.
    pub total: u64,
}

/// Called by long work with how far it has come; the result can end the work.
pub type OnProgress<'a> = &'a mut dyn FnMut(Progress) -> ControlFlow<()>;

/// Parts that are made ahead of a client: of a tail with bodies each may take half a MiB.
const PARTS_AHEAD: usize = 4;

/// What a client hears of a request before its response: how far it has come, and its parts.
type Heard = (ProgressSender, watch::Receiver<Progress>, mpsc::Receiver<Value>);

/// Where long work of a request reports how far it has come, and sends the parts of what it finds.
#[derive(Debug)]
pub struct ProgressSender {
    sender: watch::Sender<Progress>,
    parts: mpsc::Sender<Value>,
    stop: watch::Receiver<bool>,
}

impl ProgressSender {
    /// One whose reports nobody hears: work that reports ends then. `stop` is set when the node stops.
    pub fn unheard(stop: watch::Receiver<bool>) -> ProgressSender {
        let (parts, _) = mpsc::channel(1);
        ProgressSender::to(parts, stop)
    }

    /// One whose parts somebody hears, and whose reports nobody hears. `stop` is set when the node stops.
    pub fn to(parts: mpsc::Sender<Value>, stop: watch::Receiver<bool>) -> ProgressSender {
        ProgressSender { sender: watch::Sender::new(Progress::default()), parts, stop }
    }

    fn heard(stop: watch::Receiver<bool>) -> Heard {
        let (sender, reported) = watch::channel(Progress::default());
        let (parts, made) = mpsc::channel(PARTS_AHEAD);
        (ProgressSender { sender, parts, stop }, reported, made)
    }

    /// Sends a part; waits while the client has enough to read. `Break` where it has hung up or the node stops. Nothing is sent where this is
    /// dropped while it waits.
    pub async fn part(&self, part: Value) -> ControlFlow<()> {
        let mut stop = self.stop.clone();
        tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => ControlFlow::Break(()),
            sent = self.parts.send(part) => match sent {
                Ok(()) => ControlFlow::Continue(()),
                Err(_) => ControlFlow::Break(()),
            },
        }
    }

    /// Returns when parts are of no use any more: the client has hung up, or the node stops.
    pub async fn is_over(&self) {
        let mut stop = self.stop.clone();
        tokio::select! {
            () = self.parts.closed() => {}
            _ = stop.wait_for(|stop| *stop) => {}
        }
    }

    /// Whether the client still waits, and the node goes on: for work between two reports.
    pub fn goes_on(&self) -> bool {
        !self.sender.is_closed() && !*self.stop.borrow()
    }

    /// Reports progress; `Break` where the client has hung up or the node stops.
    pub fn send(&self, progress: Progress) -> ControlFlow<()> {
        match self.sender.send(progress) {
            Ok(()) if !*self.stop.borrow() => ControlFlow::Continue(()),
            _ => ControlFlow::Break(()),
        }
    }
}

/// Who sent a request over the control socket, as the system reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalPeer {
    /// The user's number; none where the system did not say.
    pub uid: Option<u32>,
    /// The user's name, as far as the machine's list of users has one; else empty.
    pub name: String,
    /// Number of its process.
    pub pid: Option<i32>,
    /// Number of the connection since the start of the node, as in the list of connections.
    pub connection: u64,
}

impl LocalPeer {
    /// The user of this process: for commands that work on the data of a stopped node.
    pub fn this_process() -> LocalPeer {
        // The process's own entry belongs to the user that it runs as.
        let uid = std::fs::metadata("/proc/self").ok().map(|found| found.uid());
        LocalPeer::of(uid, i32::try_from(std::process::id()).ok(), 0)
    }

    fn of(uid: Option<u32>, pid: Option<i32>, connection: u64) -> LocalPeer {
        LocalPeer { uid, name: uid.and_then(user_name).unwrap_or_default(), pid, connection }
    }
}

/// The list of users of the machine. Users that a directory service adds are not in it, and have only a number here.
const USERS: &str = "/etc/passwd";
const USERS_BYTES_MAX: u64 = 1 << 20;

/// The name of a user of the machine.
fn user_name(uid: u32) -> Option<String> {
    let mut text = String::new();
    std::fs::File::open(USERS).ok()?.take(USERS_BYTES_MAX).read_to_string(&mut text).ok()?;
    name_in(&text, uid)
}

fn name_in(users: &str, uid: u32) -> Option<String> {
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (name, number) = (fields.next()?, fields.nth(1)?);
        (number.parse() == Ok(uid) && !name.is_empty()).then(|| name.to_owned())
    })
}

/// The handler of requests on the control socket.
pub trait Requests: Send + Sync + 'static {
    /// Handles one line of a user of this machine; the result is the response, or the text of an error.
    fn handle(
        &self,
        line: &str,
        peer: &LocalPeer,
        progress: ProgressSender,
    ) -> impl Future<Output = Result<Value, String>> + Send;
}

fn socket_path(data: &Path) -> PathBuf {
    data.join("control.sock")
}

/// Listens on the control socket of the data directory `data`, whose lock the caller has, until `stop` is set. `fail` gets the
/// reason where the listener panics.
///
/// # Errors
/// `File` where the socket cannot be made.
pub fn listen(
    data: &Path,
    admission: &Arc<Admission>,
    mut stop: watch::Receiver<bool>,
    requests: Arc<impl Requests>,
    fail: impl FnOnce(&str) + Send + 'static,
) -> Result<(), NodeError> {
    let path = socket_path(data);
    // The data directory's lock is held: a socket that lies here belongs to a node that is gone.
    let _ = std::fs::remove_file(&path);
    let listener = UnixListener::bind(&path).map_err(NodeError::file("listen on", &path))?;
    // A client can read every message.
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(PRIVATE_FILE))
        .map_err(NodeError::file("protect", &path))?;
    let door = admission.door("control", "control", CLIENTS);
    let long = Arc::new(Semaphore::new(1));
    let work = async move {
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                _ = stop.wait_for(|stop| *stop) => break,
            };
            match accepted {
                Ok((stream, _)) => {
                    device::supervise::rehearse("control-listener");
                    if let Some(permit) = door.admit_local(&stream, CLIENTS) {
                        let bounds = (Arc::clone(&long), permit);
                        session("control", serving::client(Arc::clone(&requests), stream, bounds, stop.clone()));
                    }
                }
                Err(error) => door.not_accepted(&error).await,
            }
        }
        let _ = std::fs::remove_file(&path);
    };
    supervised("control", work, fail);
    Ok(())
}

/// Whether a node runs on the data directory `data`: whether its control socket accepts.
pub fn is_running(data: &Path) -> bool {
    BlockingStream::connect(socket_path(data)).is_ok()
}

/// The token of this process's requests.
static TOKEN: OnceLock<String> = OnceLock::new();

/// From now on requests of this process come with a token: they are those of its role, and not of the user of the machine.
pub fn present_token(token: &str) {
    // The first one counts; a program has one.
    _ = TOKEN.set(token.trim().to_owned());
}

/// Sends a request to the node whose data directory is `data`; its response.
///
/// # Errors
/// `NoNode` where none runs there; `NodeRefused` with its reason.
pub fn request(data: &Path, request: &str) -> Result<Value, NodeError> {
    request_with_progress(data, request, &mut |_| ())
}

/// The same, of which `on_part` is called with each part as it comes.
///
/// # Errors
/// As [`request`]; `Refused`: it is too long.
pub fn request_with_parts(data: &Path, request: &str, on_part: &mut dyn FnMut(Value)) -> Result<Value, NodeError> {
    exchange(data, request, &mut |_| (), on_part)
}

/// The same, of which `on_progress` is called with how far it has come.
///
/// # Errors
/// As [`request`]; `Refused`: it is too long.
pub fn request_with_progress(
    data: &Path,
    request: &str,
    on_progress: &mut dyn FnMut(Progress),
) -> Result<Value, NodeError> {
    exchange(data, request, on_progress, &mut |_| ())
}

fn exchange(
    data: &Path,
    request: &str,
    on_progress: &mut dyn FnMut(Progress),
    on_part: &mut dyn FnMut(Value),
) -> Result<Value, NodeError> {
    let path = socket_path(data);
    let no_node = |source| NodeError::NoNode { path: path.clone(), source };
    let mut stream = BlockingStream::connect(&path).map_err(no_node)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(no_node)?;
    let token = TOKEN.get().map(|token| format!("as {token} ")).unwrap_or_default();
    let line = format!("{token}{request}\n");
    let most = if serving::is_long(line.as_bytes()) { LONG_REQUEST_BYTES_MAX } else { REQUEST_BYTES_MAX };
    if line.len() as u64 > most {
        let text = format!("a request has {most} bytes at most, and this one has {}", line.len());
        return Err(NodeError::Refused(text));
    }
    stream.write_all(line.as_bytes()).map_err(no_node)?;
    let mut lines = BufReader::new(stream).lines();
    let mut response = loop {
        let Some(line) = lines.next().transpose().map_err(no_node)? else {
            let text = "nothing, and the connection ended: the node has stopped, or somebody closed the connection";
            return Err(NodeError::NodeRefused(text.to_owned()));
        };
        let mut response: Value = serde_json::from_str(&line)
            .map_err(|_| NodeError::NodeRefused("nothing that can be read; is it of the same release?".to_owned()))?;
        if let Some(part) = response.get_mut("part").map(Value::take) {
            on_part(part);
            continue;
        }
        match response.get_mut("progress").map(Value::take).map(serde_json::from_value) {
            None => break response,
            // Progress in the words of another release is left out.
            Some(progress) => progress.into_iter().for_each(&mut *on_progress),
        }
    };
    match response.get("error").and_then(Value::as_str) {
        Some(error) => Err(NodeError::NodeRefused(error.to_owned())),
        None => Ok(response["ok"].take()),
    }
}

/// Decodes a response of a running node.
///
/// # Errors
/// `NodeRefused` where it is something else.
pub fn read_response<T: DeserializeOwned>(response: Value) -> Result<T, NodeError> {
    serde_json::from_value(response).map_err(|_| {
        NodeError::NodeRefused("a response that this release cannot read; is the node of the same release?".to_owned())
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::Descriptors;
    use crate::admission::FRAME_BYTES;

    /// Answers with the length of the request.
    struct Lengths;

    impl Requests for Lengths {
        async fn handle(&self, line: &str, _: &LocalPeer, _: ProgressSender) -> Result<Value, String> {
            Ok(json!(line.len()))
        }
    }

    #[tokio::test]
    async fn a_few_parts_are_made_ahead_of_a_client_that_reads_nothing() {
        let (_stop, stopped) = watch::channel(false);
        let (sender, _reported, mut parts) = ProgressSender::heard(stopped);
        let mut made = 0;
        // Each may have a body of 256 KiB, as JSON.
        while tokio::time::timeout(Duration::ZERO, sender.part(json!(made))).await.is_ok() {
            made += 1;
        }
        assert!((1..=4).contains(&made), "{made}");
        assert_eq!(parts.recv().await, Some(json!(0)), "in their order");
        assert!(sender.part(json!("next")).await.is_continue(), "one more has room");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn each_request_of_a_connection_may_be_as_long_as_one_and_a_longer_one_is_refused_with_the_reason() {
        let data = tempfile::tempdir().expect("a folder");
        let admission = Admission::new(Descriptors::current(), FRAME_BYTES);
        let (_stop, stopped) = watch::channel(false);
        listen(data.path(), &admission, stopped, Arc::new(Lengths), |why| panic!("{why}")).expect("it listens");
        let path = socket_path(data.path());
        let ask = move || {
            let mut stream = BlockingStream::connect(path).expect("it listens");
            let mut lines = BufReader::new(stream.try_clone().expect("a descriptor")).lines();
            let mut answers = Vec::new();
            for (ahead, bytes) in [
                ("", 40_000),
                ("", 1_000_000),
                ("import ", 3_000_000),
                ("as T import ", 1_100_000),
                ("as import ", 1_100_000),
            ] {
                let written = stream.write_all(format!("{ahead}{}\n", "x".repeat(bytes - ahead.len())).as_bytes());
                // What is too long is not read to its end: the answer is there before the connection ends.
                assert!(written.is_ok() || bytes as u64 > REQUEST_BYTES_MAX, "{written:?}");
                answers.push(lines.next().expect("an answer").expect("it is whole"));
            }
            answers
        };
        let answers = tokio::task::spawn_blocking(ask).await.expect("no panic");
        assert_eq!(answers[..4], [40_000, 1_000_000, 3_000_000, 1_100_000].map(|bytes| format!("{{\"ok\":{bytes}}}")));
        assert!(answers[4].contains("1048576 bytes at most"), "{}", answers[4]);
    }

    /// Answers with more than a socket holds.
    struct Large;

    impl Requests for Large {
        async fn handle(&self, _: &str, _: &LocalPeer, _: ProgressSender) -> Result<Value, String> {
            Ok(json!("y".repeat(4 << 20)))
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn who_does_not_read_its_response_holds_up_no_other_long_request() {
        let data = tempfile::tempdir().expect("a folder");
        let admission = Admission::new(Descriptors::current(), FRAME_BYTES);
        let (_stop, stopped) = watch::channel(false);
        listen(data.path(), &admission, stopped, Arc::new(Large), |why| panic!("{why}")).expect("it listens");
        let path = socket_path(data.path());
        let ask = move || {
            let request = format!("import {}\n", "x".repeat(1_100_000));
            let send = || {
                let mut stream = BlockingStream::connect(&path).expect("it listens");
                stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a timeout");
                stream.write_all(request.as_bytes()).expect("it is taken");
                stream
            };
            let mut slow = send();
            slow.read_exact(&mut [0; 1]).expect("its response begins");
            let mut line = String::new();
            BufReader::new(send()).read_line(&mut line).expect("a response");
            assert!(line.starts_with("{\"ok\":\"yyy") && line.ends_with('\n'), "{} bytes", line.len());
        };
        tokio::task::spawn_blocking(ask).await.expect("no panic");
    }

    #[test]
    fn a_user_of_the_list_has_a_name_and_any_other_only_a_number() {
        let users = "root:x:0:0:root:/root:/bin/sh\nbroken\n:x:5:5::/:\nada:x:1000:1000:Ada,,,:/srv/ada:/bin/sh\n";
        let names = [0, 5, 10, 1000].map(|uid| name_in(users, uid));
        assert_eq!(names, [Some("root".to_owned()), None, None, Some("ada".to_owned())]);
        assert!(LocalPeer::this_process().uid.is_some());
    }
}
