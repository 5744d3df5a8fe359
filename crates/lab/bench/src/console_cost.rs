//! What it costs to look at a node: T4 with the console open and metrics scraped, in turns with neither; and many open tabs.
//!
//! ```text
//!   T4     with: a Production page and a Media page are live, and `/metrics` is read every 5 s, which is more often than
//!          Prometheus does by default; without: the node has neither port
//!   tabs   a node with messages stored and nothing to do: its processor time with so many live pages and with none, in turns
//! ```
//!
//! Invariants: see `turns`; the node is the real program; a live page that ends, or a scrape that fails, ends the run.
//!
//! Not here: what a browser does with the pages (scripts/test-console.sh).

use std::io::{BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde::Serialize;
use serde_json::json;

use crate::access::place::{Control, PATIENCE, http, until};
use crate::turns::{CostRun, CostTurn, compared, in_turns, table};
use workload::interrupt;
use workload::machine::{Machine, load_average};
use workload::node::Node;
use workload::t4::{Session, T4Options};

/// The least ratio of the rates.
const LEAST: f64 = 0.98;

/// The most of a core that the tabs may take.
const MOST_OF_A_CORE: f64 = 0.02;

/// Between two scrapes.
const SCRAPE: Duration = Duration::from_secs(5);

/// How long a wait looks away.
const LOOK: Duration = Duration::from_millis(20);

/// The options of a run.
#[derive(Clone, Debug)]
pub struct ConsoleCostOptions {
    /// Pairs of turns.
    pub pairs: usize,
    /// Inbound services of T4, and messages to each.
    pub t4: (usize, usize),
    /// Open tabs beside a node that has nothing to do.
    pub tabs: usize,
    /// Length of a turn with tabs or without.
    pub turn: Duration,
    /// The seed.
    pub seed: u64,
}

impl ConsoleCostOptions {
    /// The run for results.
    pub fn full() -> ConsoleCostOptions {
        ConsoleCostOptions { pairs: 20, t4: (128, 400), tabs: 100, turn: Duration::from_secs(5), seed: 1 }
    }

    /// A run of about a minute, whose figures say nothing.
    pub fn quick() -> ConsoleCostOptions {
        ConsoleCostOptions { pairs: 2, t4: (4, 25), tabs: 10, turn: Duration::from_secs(2), seed: 1 }
    }
}

/// Open tabs beside a node that has nothing to do.
#[derive(Clone, Debug, Serialize)]
pub struct TabsRun {
    /// Live pages, half of them Production, half Media.
    pub tabs: usize,
    /// Processor time of the node as a part of one core, with them, the median of the turns.
    pub with: f64,
    /// Without.
    pub without: f64,
    /// The median of the differences within pairs.
    pub cost: f64,
    /// Events that the pages received.
    pub events: u64,
}

/// The result: as one JSON object for scripts, as a table for people. Keys may be added, never renamed.
#[derive(Clone, Debug, Serialize)]
pub struct ConsoleCostReport {
    /// Always `console`.
    pub bench: &'static str,
    /// Version of Terrace.
    pub version: &'static str,
    /// The machine.
    pub machine: Machine,
    /// Whether the programs were optimised.
    pub optimised: bool,
    /// The seed.
    pub seed: u64,
    /// The machine's load at the end.
    pub load_average: Option<f64>,
    /// Messages: looked at and not.
    pub runs: Vec<CostRun>,
    /// Open tabs.
    pub tabs: TabsRun,
}

impl ConsoleCostReport {
    /// As JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_else(|error| format!("{{\"error\": \"{error}\"}}"))
    }

    /// As text.
    pub fn to_text(&self) -> String {
        let optimised = if self.optimised { "" } else { "; not optimised: the figures say nothing" };
        let TabsRun { tabs, with, without, cost, events } = &self.tabs;
        format!(
            "{}\n{} pairs of turns; with: two live pages of the console, and metrics read every {} s\n\n\
             {tabs} tabs beside an idle node: {:.2} % of a core (with {:.2} %, without {:.2} %; {events} events)\n\
             {}, {} processors, seed {}{optimised}",
            table(self.runs.iter(), LEAST),
            self.runs.first().map_or(0, |run| run.pairs),
            SCRAPE.as_secs(),
            cost * 100.0,
            with * 100.0,
            without * 100.0,
            self.machine.cpu,
            self.machine.cores,
            self.seed
        )
    }

    /// The targets that were missed, a line each.
    pub fn missed(&self) -> Vec<String> {
        let rate = |run: &CostRun| {
            let (name, median) = (&run.name, run.ratio.median);
            format!("target missed: {name}: {median:.3} of the rate without, at least {LEAST} is wanted: MISSED")
        };
        let mut missed: Vec<String> = self.runs.iter().filter(|run| !run.holds).map(rate).collect();
        if self.tabs.cost > MOST_OF_A_CORE {
            let (tabs, cost) = (self.tabs.tabs, self.tabs.cost * 100.0);
            missed.push(format!("target missed: {tabs} tabs take {cost:.2} % of a core, at most 2 is wanted: MISSED"));
        }
        missed
    }
}

/// Runs it.
///
/// # Errors
/// If a node cannot be started or fails, or does not answer who looks at it. What is missed is in the report.
pub fn run(options: &ConsoleCostOptions) -> anyhow::Result<ConsoleCostReport> {
    let runs = vec![t4(options)?];
    interrupt::check()?;
    let tabs = tabs(options)?;
    Ok(ConsoleCostReport {
        bench: "console",
        version: env!("CARGO_PKG_VERSION"),
        machine: Machine::here(),
        optimised: !cfg!(debug_assertions),
        seed: options.seed,
        load_average: load_average(),
        runs,
        tabs,
    })
}

fn session(options: &ConsoleCostOptions, ports: bool, tabs: usize) -> anyhow::Result<Session> {
    let (services, messages) = options.t4;
    // The node holds those of the turn before for a moment after they were closed.
    let settings = format!(
        "[console]\nlisten = \"127.0.0.1:0\"\ntabs = {}\n[metrics]\nlisten = \"127.0.0.1:0\"\n",
        2 * tabs.max(1)
    );
    Session::start(&T4Options {
        services,
        messages: Some(messages),
        seed: options.seed,
        settings: ports.then_some(settings),
        ..T4Options::default()
    })
}

fn t4(options: &ConsoleCostOptions) -> anyhow::Result<CostRun> {
    let mut medium = (String::new(), true);
    let sides = in_turns(options.pairs, |with| {
        let mut session = session(options, with, 2)?;
        let watch = if with { Some(ConsoleWatch::of(&session)?) } else { None };
        let over = AtomicBool::new(false);
        let report = std::thread::scope(|scope| {
            let looking = watch.as_ref().map(|watch| scope.spawn(|| watch.look(2, true, &over)));
            let report = session.measure();
            over.store(true, Ordering::Relaxed);
            if let Some(looking) = looking {
                let events = looking.join().map_err(|_| anyhow::anyhow!("who looks has panicked"))??;
                ensure!(events > 0, "the live pages received nothing");
            }
            report
        })?;
        session.stop()?;
        let run = report.runs.first().context("T4 has no run")?;
        ensure!(report.is_clean(), "T4 lost something:\n{}", report.to_text());
        medium = (run.durability.clone(), run.real);
        Ok(CostTurn { per_s: run.inbound_per_s, cpu_us: run.server_cpu_us_per_inbound })
    })?;
    Ok(compared("T4, inbound messages", medium, sides, LEAST))
}

fn tabs(options: &ConsoleCostOptions) -> anyhow::Result<TabsRun> {
    let few = ConsoleCostOptions { t4: (options.t4.0, options.t4.1.min(50)), ..options.clone() };
    let mut session = session(&few, true, options.tabs)?;
    session.measure()?;
    let watch = ConsoleWatch::of(&session)?;
    // What follows a load (a checkpoint, a merge) is over.
    std::thread::sleep(options.turn);
    let events = AtomicU64::new(0);
    let [without, with] = in_turns(options.pairs, |with| {
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let looking = with.then(|| scope.spawn(|| watch.look(options.tabs, false, &over)));
            // The pages are open and have been sent whole.
            std::thread::sleep(Duration::from_millis(500));
            let (before, begun) = (session.node().usage()?.cpu_us, Instant::now());
            std::thread::sleep(options.turn);
            let (cpu, seconds) = (session.node().usage()?.cpu_us - before, begun.elapsed().as_secs_f64());
            over.store(true, Ordering::Relaxed);
            if let Some(looking) = looking {
                let seen = looking.join().map_err(|_| anyhow::anyhow!("who looks has panicked"))??;
                ensure!(seen >= options.tabs as u64, "{seen} events of {} live pages", options.tabs);
                events.fetch_add(seen, Ordering::Relaxed);
            }
            Ok(CostTurn { per_s: 1.0, cpu_us: cpu as f64 / seconds })
        })
    })?;
    session.stop()?;
    let median = |mut of: Vec<f64>| {
        of.sort_by(f64::total_cmp);
        of.get(of.len() / 2).copied().unwrap_or_default() / 1e6
    };
    let cpu = |turns: &[CostTurn]| median(turns.iter().map(|turn| turn.cpu_us).collect());
    let cost = median(with.iter().zip(&without).map(|(with, without)| with.cpu_us - without.cpu_us).collect());
    Ok(TabsRun { tabs: options.tabs, with: cpu(&with), without: cpu(&without), cost, events: events.into_inner() })
}

/// Somebody who looks at a node.
struct ConsoleWatch {
    console: SocketAddr,
    metrics: SocketAddr,
    authorization: String,
}

impl ConsoleWatch {
    /// Makes the user, and finds the ports.
    fn of(session: &Session) -> anyhow::Result<ConsoleWatch> {
        let address = |of: fn(&Node) -> Option<SocketAddr>| until(session.node(), || Ok(of(session.node())));
        let rights = ["node-status", "node-metrics"].map(|action| (action, json!({ "kind": "node" })));
        let token = Control::open(session.data())?.user("watch", None, &rights)?;
        Ok(ConsoleWatch {
            console: address(Node::console_address)?,
            metrics: address(Node::metrics_address)?,
            authorization: format!("Bearer {token}"),
        })
    }

    /// Looks until it is over; returns the events that came.
    fn look(&self, tabs: usize, scrapes: bool, over: &AtomicBool) -> anyhow::Result<u64> {
        let pages = ["/live/production", "/live/media"].into_iter().cycle().take(tabs);
        let mut pages = pages.map(|page| self.open(page)).collect::<anyhow::Result<Vec<TcpStream>>>()?;
        let mut metrics = BufReader::new(TcpStream::connect(self.metrics)?);
        metrics.get_ref().set_read_timeout(Some(PATIENCE))?;
        let (mut events, mut scraped, mut chunk) = (0, None::<Instant>, vec![0; 64 << 10]);
        while !over.load(Ordering::Relaxed) {
            if scrapes && scraped.is_none_or(|at| at.elapsed() >= SCRAPE) {
                let (status, text) = http(&mut metrics, &self.authorization, "/metrics")?;
                ensure!(status == 200 && text.contains("\nterrace_"), "the metrics: {status}, {} bytes", text.len());
                scraped = Some(Instant::now());
            }
            for page in &mut pages {
                events += received(page, &mut chunk)?;
            }
            std::thread::sleep(LOOK);
        }
        Ok(events)
    }

    /// Opens a live page; what it sends first is read.
    fn open(&self, page: &str) -> anyhow::Result<TcpStream> {
        let mut stream = TcpStream::connect(self.console)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let authorization = &self.authorization;
        write!(stream, "GET {page} HTTP/1.1\r\nHost: {}\r\nAuthorization: {authorization}\r\n\r\n", self.console)?;
        let mut first = vec![0; 64 << 10];
        let count = stream.read(&mut first)?;
        let first = String::from_utf8_lossy(&first[..count]);
        ensure!(first.starts_with("HTTP/1.1 200"), "{page}: {}", first.lines().next().unwrap_or("no answer"));
        stream.set_nonblocking(true)?;
        Ok(stream)
    }
}

/// Reads what a page has been sent; returns the events in it.
fn received(page: &mut TcpStream, chunk: &mut [u8]) -> anyhow::Result<u64> {
    let mut events = 0;
    loop {
        match page.read(chunk) {
            Ok(0) => anyhow::bail!("a live page has ended"),
            Ok(count) => events += memchr::memmem::find_iter(&chunk[..count], b"data:").count().min(1) as u64,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Ok(events),
            Err(error) => return Err(error).context("a live page"),
        }
    }
}
