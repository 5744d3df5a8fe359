//! A folder with settings and a data directory, and the node that runs on them as a process of its own.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

/// How long a state may take to come about: far beyond what a loaded machine needs.
const PATIENCE: Duration = Duration::from_secs(60);

/// The program under test.
const PROGRAM: &str = env!("CARGO_BIN_EXE_terrace");

/// Looks again and again until `probe` holds.
pub(crate) fn until(what: &str, mut probe: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !probe() {
        assert!(Instant::now() < deadline, "it did not come to pass: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// An admission with this control id.
pub(crate) fn message(id: &str) -> String {
    format!("MSH|^~\\&|HIS|NORTH|HUB|X|20260101120000||ADT^A01|{id}|P|2.5\rPID|1||1||SAMPLE^ANN\r")
}

/// See the module's text.
pub(crate) struct Bed {
    dir: TempDir,
    /// `TERRACE_KEY` of its node and of commands.
    key: Mutex<Option<String>>,
}

impl Bed {
    pub(crate) fn new() -> Bed {
        let bed = Bed { dir: tempfile::tempdir().expect("a folder"), key: Mutex::default() };
        bed.configure("");
        bed
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.path("data")
    }

    /// Writes `terrace.toml`: a small journal, a port that the system chooses, and `placement`.
    pub(crate) fn configure(&self, placement: &str) {
        let (keys, tables) = match placement.find("[") {
            Some(at) => placement.split_at(at),
            None => (placement, ""),
        };
        let text = format!(
            "data = \"data\"\nlisten = \"127.0.0.1:0\"\n{keys}[journal]\nsegment = \"4MiB\"\nkeep = \"64MiB\"\n[messages]\nretention = \"16MiB\"\n[pages]\ndevice = \"16MiB\"\nimages = \"4MiB\"\n{tables}"
        );
        fs::write(self.path("terrace.toml"), text).expect("a file");
    }

    /// From now on the node and commands are told that the key-encryption key is there, or nowhere.
    pub(crate) fn set_key(&self, place: Option<&str>) {
        *self.key.lock().expect("nobody panicked") = place.map(str::to_owned);
    }

    /// All that nodes of this bed logged.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    fn command(&self, args: &[&str]) -> Command {
        self.prepared(Command::new(PROGRAM), args)
    }

    /// `serve` under `ulimit -n` with these arguments.
    fn limited(&self, ulimit: &str) -> Command {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("ulimit {ulimit} && exec \"$0\" \"$@\""), PROGRAM]);
        self.prepared(shell, &["serve"])
    }

    fn prepared(&self, mut command: Command, args: &[&str]) -> Command {
        command.args(args).current_dir(self.dir.path()).env_remove("TERRACE_LOG").stdin(Stdio::null());
        match &*self.key.lock().expect("nobody panicked") {
            Some(key) => command.env("TERRACE_KEY", key),
            None => command.env_remove("TERRACE_KEY"),
        };
        command
    }

    /// Runs a command unchanged.
    pub(crate) fn command_line(&self, args: &[&str]) -> Ran {
        Ran { output: self.command(args).output().expect("the program runs"), what: args.join(" ") }
    }

    /// Runs a command whose last argument is the data directory.
    pub(crate) fn run(&self, args: &[&str]) -> Ran {
        let data = self.data().display().to_string();
        let args: Vec<&str> = args.iter().copied().chain([data.as_str()]).collect();
        Ran { output: self.command(&args).output().expect("the program runs"), what: args.join(" ") }
    }

    /// Grants the right to read bodies, without the mask, to who runs the node, which it has no more than others at first.
    pub(crate) fn grant_bodies(&self) {
        let grant =
            ["role", "grant", "message-body", "unmasked", "--on", "service *", "--to", "terrace_local", "--data"];
        self.run(&grant).succeeds("");
    }

    /// The node does not start, and its error contains `why`.
    pub(crate) fn refuses(&self, why: &str) {
        self.refused(self.command(&["serve"]), why);
    }

    /// As `refuses`, of a node that may have so many descriptors.
    pub(crate) fn refuses_with(&self, descriptors: u32, why: &str) {
        self.refused(self.limited(&format!("-n {descriptors}")), why);
    }

    fn refused(&self, mut command: Command, why: &str) {
        let output = command.output().expect("the program runs");
        let ran = Ran { output, what: "serve".to_owned() };
        ran.fails(why);
    }

    /// Starts a node and waits until it is ready.
    pub(crate) fn start(&self) -> Node<'_> {
        self.launch(self.command(&["serve"]))
    }

    /// As `start`; the node may have so many descriptors, and no more.
    pub(crate) fn start_with(&self, descriptors: u32) -> Node<'_> {
        self.launch(self.limited(&format!("-n {descriptors}")))
    }

    /// As `start`; the node may have so many descriptors until it asks for more.
    pub(crate) fn start_softly(&self, descriptors: u32) -> Node<'_> {
        self.launch(self.limited(&format!("-S -n {descriptors}")))
    }

    /// As `start`, under a shell that has done `first`.
    pub(crate) fn start_after(&self, first: &str) -> Node<'_> {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("{first}; exec {PROGRAM} serve")]).current_dir(self.dir.path());
        shell.env_remove("TERRACE_LOG").stdin(Stdio::null());
        self.launch(shell)
    }

    /// As `start`; a thread or task whose name is written to the file `panic` panics at its next piece of work.
    #[cfg(debug_assertions)]
    pub(crate) fn start_rehearsing(&self) -> Node<'_> {
        let mut serve = self.command(&["serve"]);
        serve.env("TERRACE_PANIC", self.path("panic"));
        self.launch(serve)
    }

    fn launch(&self, mut command: Command) -> Node<'_> {
        let log = File::options().create(true).append(true).open(self.path("log")).expect("a file");
        let child = command.stdout(Stdio::null()).stderr(log).spawn().expect("the program runs");
        let mut node = Node { bed: self, child, address: String::new() };
        until("the node is ready", || {
            assert!(node.child.try_wait().expect("it can be asked").is_none(), "the node ended:\n{}", self.log());
            let Ok(text) = fs::read_to_string(self.data().join("node.json")) else { return false };
            let ready: Value = serde_json::from_str(&text).expect("it is written whole");
            // A killed node leaves its file behind.
            if ready["pid"] != node.child.id() {
                return false;
            }
            node.address = ready["services"][0]["at"].as_str().expect("it has a service").to_owned();
            true
        });
        node
    }

    /// Control ids of all stored messages, oldest first.
    pub(crate) fn stored(&self) -> Vec<String> {
        let lines = self.run(&["message", "list", "--last", "0", "--json", "--data"]).succeeds("");
        let id = |line: &str| serde_json::from_str::<Value>(line).expect("a line of JSON")["control_id"].clone();
        lines.lines().map(|line| id(line).as_str().expect("a text").to_owned()).collect()
    }
}

/// The result of a command.
pub(crate) struct Ran {
    output: Output,
    what: String,
}

impl Ran {
    fn output(&self) -> (String, String) {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (text(&self.output.stdout), text(&self.output.stderr))
    }

    /// Its exit code; none where a signal ended it.
    pub(crate) fn code(&self) -> Option<i32> {
        self.output.status.code()
    }

    /// Its output.
    pub(crate) fn printed(&self) -> String {
        self.output().0
    }

    /// What it said beside its output.
    pub(crate) fn warned(&self) -> String {
        self.output().1
    }

    /// It succeeded and printed `said`; everything it printed.
    pub(crate) fn succeeds(&self, said: &str) -> String {
        let (out, error) = self.output();
        assert!(self.output.status.success() && out.contains(said), "{}: {out}\n{error}", self.what);
        out
    }

    /// It ran, and its report contains `wrong`.
    pub(crate) fn finds(&self, wrong: &str) -> String {
        let (out, error) = self.output();
        assert_eq!(self.output.status.code(), Some(1), "{}: {out}\n{error}", self.what);
        assert!(out.contains(wrong), "{}: `{wrong}` is not in: {out}", self.what);
        out
    }

    /// It could not run, and its error contains `why`.
    pub(crate) fn fails(&self, why: &str) {
        let (out, error) = self.output();
        assert_eq!(self.output.status.code(), Some(2), "{}: {out}\n{error}", self.what);
        assert!(error.contains(why), "{}: `{why}` is not in: {error}", self.what);
    }
}

/// A node that runs; killed when the test ends before it was stopped.
pub(crate) struct Node<'a> {
    bed: &'a Bed,
    child: Child,
    address: String,
}

impl Node<'_> {
    /// Sends a message and waits for its acknowledgement.
    pub(crate) fn send(&self, id: &str) {
        self.send_bytes(&message(id));
    }

    /// The same with this text.
    pub(crate) fn send_bytes(&self, text: &str) {
        let file = self.bed.path("message.hl7");
        fs::write(&file, text).expect("a file");
        let file = file.display().to_string();
        let output = self.bed.command(&["message", "send", &file, "--to", &self.address]).output();
        let ran = Ran { output: output.expect("the program runs"), what: "send".to_owned() };
        ran.succeeds("MSA|AA");
    }

    /// Sends many, over one connection.
    pub(crate) fn send_bytes_many(&self, texts: &[String]) {
        let all: Vec<String> = texts.iter().map(|text| text.replace('\r', "\n")).collect();
        self.send_bytes(&all.join(""));
    }

    /// Its process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Where its one MLLP service listens.
    pub(crate) fn mllp(&self) -> SocketAddr {
        self.address.parse().expect("an address")
    }

    /// Waits until it has ended by itself or on request; its exit code.
    pub(crate) fn ended(mut self) -> Option<i32> {
        self.child.wait().expect("it can be waited for").code()
    }

    /// Requests its end as a service manager does.
    pub(crate) fn terminate(&self) {
        let pid = self.pid().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().expect("there is kill").success());
    }

    /// Waits until it has ended, for so long; its exit code.
    pub(crate) fn ends_within(mut self, patience: Duration) -> Option<i32> {
        let deadline = Instant::now() + patience;
        loop {
            if let Some(status) = self.child.try_wait().expect("it can be asked") {
                return status.code();
            }
            assert!(Instant::now() < deadline, "it has not ended:\n{}", self.bed.log());
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// The address of its SQL service.
    pub(crate) fn sql(&self) -> SocketAddr {
        self.served(" sql address=")
    }

    /// The address of its search service.
    #[cfg(feature = "search")]
    pub(crate) fn search(&self) -> SocketAddr {
        self.served(" search address=")
    }

    /// The address of its metrics, which it listens on before it opens its store.
    pub(crate) fn metrics(&self) -> SocketAddr {
        let log = self.bed.log();
        let said = log.lines().rev().find_map(|line| line.split_once(" metrics address=")?.1.trim().parse().ok());
        said.expect("it listened before anything else")
    }

    /// The address of its console.
    pub(crate) fn console(&self) -> SocketAddr {
        self.served(" console address=")
    }

    /// The address of a service: the last one in the log, once the log has one of this process.
    fn served(&self, mark: &str) -> SocketAddr {
        let mut address = None;
        until("the service is served", || {
            let log = self.bed.log();
            let started = log.rmatch_indices("store opened").next().map_or("", |(at, _)| &log[at..]);
            let said = started.lines().find_map(|line| line.split_once(mark)?.1.trim().parse().ok());
            address = said;
            said.is_some()
        });
        address.expect("it was said")
    }

    /// Its status.
    pub(crate) fn status(&self) -> Value {
        let told = self.bed.run(&["status", "--json", "--data"]).succeeds("");
        serde_json::from_str(&told).expect("JSON")
    }

    /// Requests it to stop and waits until it has stopped.
    pub(crate) fn stop(mut self) {
        self.bed.run(&["stop", "--data"]).succeeds("");
        let ended = self.child.wait().expect("it can be waited for");
        assert!(ended.success(), "{ended}:\n{}", self.bed.log());
    }

    /// Kills it as a power failure of the process would.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it can be waited for");
    }
}

impl Drop for Node<'_> {
    fn drop(&mut self) {
        // A test that failed leaves no process behind; one that ended in order has none any more.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
