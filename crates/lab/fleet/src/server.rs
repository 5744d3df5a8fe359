//! The server under test, a process of its own: this program again, with the layout as its argument.
//!
//! ```text
//!   measurement                                server: terrace-lab fleet --serve '{...}'
//!      |  standard input:  counts  ----------->  |
//!      |  standard output: ready {...} <-------  |   after opening, or making and filling
//!      |                   {...} <-------------  |   one line of JSON for each line of input
//!      |  unix socket: NBD ------------------->  |   exports volume-0 .. and bare-0 ..
//!      |  end of input ----------------------->  ends
//! ```
//!
//! It is a process of its own so that its processor time is the server's alone: user and system time of the process, divided by the
//! requests that clients counted meanwhile.
//!
//! Invariants: the server ends when its input ends, so it never outlives the measurement; the socket is reachable for this user only.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;

use anyhow::{Context, bail};
use device::Device;
use nbd::{ClientOptions, Export, NbdDevice, NbdServer, NbdUri, ServerOptions};
use node::{Admission, Descriptors};
use serde::{Deserialize, Serialize};
use workload::process;

use crate::media::{Layout, Making, VolumeCounts};

/// What the line begins with that says that clients can come.
const READY: &str = "ready ";

/// The request for counts.
const COUNTS: &str = "counts";

/// The argument before the layout.
pub const SERVE: &str = "--serve";

/// Which device of a volume's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The volume.
    Volume,
    /// The bare device beside it.
    Bare,
}

impl Side {
    /// `volume` or `bare`.
    pub fn as_str(self) -> &'static str {
        match self {
            Side::Volume => "volume",
            Side::Bare => "bare",
        }
    }

    fn export(self, number: usize) -> String {
        format!("{}-{number}", self.as_str())
    }
}

/// How to start the server.
#[derive(Clone, Debug)]
pub struct ServerProgram {
    /// The program.
    pub program: PathBuf,
    /// Its arguments before [`SERVE`].
    pub arguments: Vec<String>,
}

/// What the server is to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct ServerSetup {
    layout: Layout,
    making: Making,
    socket: PathBuf,
}

/// What a process that serves has counted so far.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ServerCounts {
    /// User and system time of the process, nanoseconds.
    pub cpu_ns: f64,
    /// Of each volume.
    pub volumes: Vec<VolumeCounts>,
}

/// What the server says of its devices.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Durabilities {
    volume: String,
    bare: String,
}

/// A running server.
#[derive(Debug)]
pub struct ServerProcess {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    socket: PathBuf,
    durabilities: Durabilities,
}

impl ServerProcess {
    /// Starts a server for a layout and waits until clients can come.
    ///
    /// # Errors
    /// It does not start; what was wrong is on standard error.
    pub fn start(program: &ServerProgram, layout: &Layout, making: Making) -> anyhow::Result<ServerProcess> {
        let socket = layout.folder.join("nbd.sock");
        let setup = ServerSetup { layout: layout.clone(), making, socket: socket.clone() };
        let mut command = Command::new(&program.program);
        command.args(&program.arguments).arg(SERVE).arg(serde_json::to_string(&setup)?);
        let started = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = started.with_context(|| format!("starting {}", program.program.display()))?;
        let output = BufReader::new(child.stdout.take().context("its output is a pipe")?);
        let input = child.stdin.take();
        let nothing = Durabilities { volume: String::new(), bare: String::new() };
        let mut server = ServerProcess { child, input, output, socket, durabilities: nothing };
        let line = server.line()?;
        let said = line.strip_prefix(READY).with_context(|| format!("the server said: {line}"))?;
        server.durabilities = serde_json::from_str(said)?;
        Ok(server)
    }

    fn line(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        if self.output.read_line(&mut line)? == 0 {
            bail!("the server has ended; what was wrong is above");
        }
        Ok(line.trim_end().to_owned())
    }

    /// What it has counted so far.
    ///
    /// # Errors
    /// It has ended.
    pub fn counts(&mut self) -> anyhow::Result<ServerCounts> {
        let input = self.input.as_mut().context("the server was told to end")?;
        writeln!(input, "{COUNTS}").context("asking the server")?;
        Ok(serde_json::from_str(&self.line()?)?)
    }

    /// The durability of its devices.
    pub fn durability(&self, side: Side) -> &str {
        match side {
            Side::Volume => &self.durabilities.volume,
            Side::Bare => &self.durabilities.bare,
        }
    }

    /// Opens an export on a connection of its own.
    ///
    /// # Errors
    /// Those of the client.
    pub fn connect(&self, side: Side, number: usize) -> anyhow::Result<Arc<dyn Device>> {
        let uri = NbdUri::unix(&self.socket, &side.export(number));
        Ok(NbdDevice::connect(ClientOptions::new(uri))?)
    }

    /// Lets it close its volumes and end.
    ///
    /// # Errors
    /// It failed.
    pub fn stop(mut self) -> anyhow::Result<()> {
        drop(self.input.take());
        let status = self.child.wait()?;
        anyhow::ensure!(status.success(), "the server ended with {status}");
        Ok(())
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        if self.input.take().is_some() {
            // After an error there is nothing left to write in place; the folder goes too.
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}

/// Serves until standard input ends: the other process of this program.
///
/// # Errors
/// The layout cannot be opened, or the socket.
pub fn serve(setup: &str) -> anyhow::Result<()> {
    let ServerSetup { layout, making, socket } = serde_json::from_str(setup).context("the layout")?;
    let fleet = layout.open(making)?;
    let admission = Admission::new(Descriptors::raise()?, 0);
    let server = NbdServer::start(ServerOptions::default(), &admission, |why| eprintln!("the server: {why}"))?;
    let mut durabilities = None;
    for (number, (volume, bare)) in fleet.volumes.iter().zip(&fleet.bare).enumerate() {
        let volume: Arc<dyn Device> = volume.volume.clone();
        durabilities.get_or_insert_with(|| Durabilities {
            volume: volume.durability().as_str().to_owned(),
            bare: bare.durability().as_str().to_owned(),
        });
        server.add(Export::new(&Side::Volume.export(number), volume))?;
        server.add(Export::new(&Side::Bare.export(number), Arc::clone(bare)))?;
    }
    server.listen_unix(&socket)?;
    let mut output = std::io::stdout();
    writeln!(output, "{READY}{}", serde_json::to_string(&durabilities.context("a fleet has a volume")?)?)?;
    for line in std::io::stdin().lock().lines() {
        if line? == COUNTS {
            let counts = ServerCounts { cpu_ns: process::cpu_ns(), volumes: fleet.counts() };
            writeln!(output, "{}", serde_json::to_string(&counts)?)?;
        }
    }
    drop(server);
    fleet.close()
}
