//! `terrace demo`: shows a working node from a clean checkout, with one command and without setup.
//!
//! A node and the T4 load, smaller than published, each a process of its own, over real sockets on a real disk in a
//! temporary directory. Without the flag to exit, the node and the receivers keep running, so that a user can send a
//! message by hand and inspect it.

use std::net::{Ipv4Addr, TcpListener};
use std::process::ExitCode;

use anyhow::Context;
use workload::interrupt;
use workload::t4::{Session, T4Options, demo_table, service_name};

use crate::cli::DemoArgs;

/// The console's usual port.
const CONSOLE: u16 = 8480;

/// A message to send by hand; invented.
const SAMPLE: &str = "MSH|^~\\&|DEMO|WARD7|TERRACE|HERE|20260101120000||ADT^A01|BYHAND1|P|2.5\n\
PID|1||4711^^^DEMO^MR||Testperson^Toni||19800229|F\nPV1|1|I|7^12^1\n";

/// Runs it.
pub fn run(args: &DemoArgs) -> anyhow::Result<ExitCode> {
    interrupt::heed()?;
    interrupt::in_order(show(args))
}

fn show(args: &DemoArgs) -> anyhow::Result<ExitCode> {
    println!("A node, 128 senders and 4 receivers, for a few seconds ...\n");
    let console = console_port()?;
    let settings = Some(format!("[console]\nlisten = \"127.0.0.1:{console}\"\n"));
    let mut session = Session::start(&T4Options { quick: true, settings, ..T4Options::default() })?;
    let report = session.measure()?;
    println!("{}", demo_table(&report));
    if !report.is_clean() {
        println!("{}", report.to_text());
        session.stop()?;
        return Ok(ExitCode::from(1));
    }
    if !args.exit {
        stay(&mut session, console)?;
    }
    session.stop()?;
    Ok(ExitCode::SUCCESS)
}

/// The port of the console: its usual one, or where that is taken one that is free.
fn console_port() -> anyhow::Result<u16> {
    let usual = TcpListener::bind((Ipv4Addr::LOCALHOST, CONSOLE));
    let found =
        usual.or_else(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).context("finding a port for the console")?;
    Ok(found.local_addr().context("finding a port for the console")?.port())
}

/// The load of a demo or of t4: the whole of the hidden command that they start.
pub fn load(settings: &str) -> anyhow::Result<ExitCode> {
    workload::t4::load(serde_json::from_str(settings).context("the settings of the load cannot be read")?)?;
    Ok(ExitCode::SUCCESS)
}

/// Prints how to go on by hand, and waits for Ctrl-C, SIGTERM, or the end of the node.
fn stay(session: &mut Session, console: u16) -> anyhow::Result<()> {
    let program = std::env::current_exe().context("finding this program")?;
    let program = program.display();
    let data = session.data();
    let sample = data.join("sample.hl7");
    std::fs::write(&sample, SAMPLE).with_context(|| format!("cannot write {}", sample.display()))?;
    let service = service_name(0);
    let address = session.node().services().get(&service).context("the node serves the first service")?;
    println!("The node stays up until Ctrl-C (or SIGTERM). In another terminal:\n");
    println!("  # send a message by hand, and see the acknowledgement");
    println!("  {program} message send {} --to {address}\n", sample.display());
    println!("  # list the stored messages, newest last, with their status");
    println!("  {program} message list --data {} --last 5", data.display());
    println!("  {program} message trace ID --data {}", data.display());
    println!("  # bodies, and patient data without a mask, are for who was granted that; each read is in the audit");
    let right = "message-body unmasked --on \"service *\" --to terrace_local";
    println!("  {program} role grant {right} --data {}", data.display());
    println!("  {program} message show ID --output billing --data {}\n", data.display());
    println!("  # the console: make a user, and open http://127.0.0.1:{console} in a browser");
    println!("  {program} user add me --administrator --data {}\n", data.display());
    println!("  # see what the node is doing");
    println!("  {program} status --data {}\n", data.display());
    // `terrace stop` ends the node, and the receivers have nothing left to do then.
    interrupt::wait_until(|| session.has_ended())?;
    println!("\nstopping");
    Ok(())
}
