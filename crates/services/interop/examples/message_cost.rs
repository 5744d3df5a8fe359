//! What a message costs a node, by thread: `cargo run --release -p interop --example message_cost [-- [SERVICES [MESSAGES [DIR]]]]`.
//!
//! ```text
//!   load (one thread)          node (one thread, and those of message log and store)
//!   SERVICES senders  --MLLP-->  services -> rules -> four transforms -> one record -> acknowledged when durable
//!   4 receivers       <--MLLP--  operations                                     \-> rows, pages, checkpoints
//! ```
//!
//! The production is that of the T4 bench (`crates/lab/workload/t4`), outputs are stored whole, and the sizes are like its own: half
//! of the messages are results with a log-normal number of observations. It is no bench: it checks nothing, and load and node share
//! a process. It needs neither the binary nor the bench, so that it is built in two minutes.
//!
//! The clock runs from the first message until the last delivery is acknowledged; then the store is closed, which writes what is
//! dirty, and that is counted too, apart.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use interop::engine::Bodies;
use interop::running::{Options, Origin, RunningProduction};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};

/// As in the binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const OPERATIONS: [&str; 4] = ["billing", "laboratory", "pharmacy", "registry"];
/// Where MSH-10 is told apart.
const PLACE: &[u8] = b"T4-000-0000000";
/// Prepared messages.
const BODIES: usize = 1024;
/// Microseconds of a clock tick (Linux, USER_HZ).
const TICK_US: f64 = 10_000.0;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let services: usize = arguments.next().map_or(Ok(128), |text| text.parse())?;
    let messages: usize = arguments.next().map_or(Ok(400), |text| text.parse())?;
    let dir = PathBuf::from(arguments.next().unwrap_or_else(|| "message-cost-data".into()));
    fs::create_dir_all(&dir)?;
    let load = runtime("load")?;
    let (receivers, delivered) = receive(&load)?;
    write_production(&dir.join("production"), services, &receivers)?;
    let mut options = Options::new(dir.join("data"), Origin::Folder(dir.join("production")));
    options.bodies = Bodies::Full;
    let node_runtime = runtime("node")?;
    let node = node_runtime.block_on(RunningProduction::start(options))?;
    let addresses: Vec<SocketAddr> = node.status().services.iter().map(|s| s.at.parse()).collect::<Result<_, _>>()?;
    let bodies = Arc::new(bodies());
    let total = (services * messages) as u64;
    let before = Sample::now()?;
    let begun = Instant::now();
    let senders: Vec<_> = addresses
        .iter()
        .enumerate()
        .map(|(service, address)| load.spawn(send(*address, service, messages, bodies.clone())))
        .collect();
    for sender in senders {
        load.block_on(sender)??;
    }
    while delivered.load(Ordering::Acquire) < total * OPERATIONS.len() as u64 {
        std::thread::sleep(Duration::from_millis(1));
    }
    let seconds = begun.elapsed().as_secs_f64();
    let after = Sample::now()?;
    println!("{total} messages of {} bytes, {:.0} a second", mean(&bodies), total as f64 / seconds);
    after.print(&before, total);
    node_runtime.block_on(node.stop());
    let closed = Sample::now()?;
    let (cpu, written) = (closed.ticks - after.ticks, closed.written_bytes - after.written_bytes);
    println!(
        "closing: {:.1} us of the process a message, {} bytes written",
        cpu as f64 * TICK_US / total as f64,
        written / total
    );
    drop((node, node_runtime, load));
    fs::remove_dir_all(&dir)?;
    Ok(())
}

fn runtime(name: &str) -> Result<Runtime, Box<dyn Error>> {
    Ok(Builder::new_multi_thread().worker_threads(1).thread_name(name).enable_all().build()?)
}

fn mean(bodies: &[Vec<u8>]) -> usize {
    bodies.iter().map(Vec::len).sum::<usize>() / bodies.len()
}

/// The bench's rules, transforms and tables, with services and operations of one's own.
fn write_production(folder: &Path, services: usize, receivers: &[SocketAddr]) -> Result<(), Box<dyn Error>> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/workload/t4");
    for part in ["rules", "transforms", "tables", "services", "operations"] {
        fs::create_dir_all(folder.join(part))?;
        let Ok(files) = fs::read_dir(source.join(part)) else { continue };
        for file in files {
            let file = file?.path();
            fs::copy(&file, folder.join(part).join(file.file_name().unwrap_or_default()))?;
        }
    }
    fs::write(folder.join("production.toml"), "name = \"cost\"\n")?;
    for service in 0..services {
        let text = "kind = \"mllp\"\nlisten = \"127.0.0.1:0\"\nrules = \"main\"\n";
        fs::write(folder.join(format!("services/s{service:03}.toml")), text)?;
    }
    for (name, address) in OPERATIONS.iter().zip(receivers) {
        let text = format!("kind = \"mllp\"\naddress = \"{address}\"\n");
        fs::write(folder.join(format!("operations/{name}.toml")), text)?;
    }
    Ok(())
}

/// Messages as the bench's are in size: see its `messages`.
fn bodies() -> Vec<Vec<u8>> {
    let mut random = fastrand::Rng::with_seed(1);
    (0..BODIES).map(|_| body(&mut random).replace('\n', "\r").into_bytes()).collect()
}

fn body(random: &mut fastrand::Rng) -> String {
    let (mrn, account) = (random.u32(100_000..10_000_000), random.u32(..));
    let is_result = random.u32(0..100) < 52;
    let kind = if is_result { "ORU^R01^ORU_R01" } else { "ADT^A08^ADT_A01" };
    let place = String::from_utf8_lossy(PLACE);
    let mut text = format!("MSH|^~\\&|LAB|NORTH|TERRACE|HUB|20261122101112||{kind}|{place}|P|2.5\n");
    text += "EVN|A08|20261122101112|||OPER001^CLERK^TEST\n";
    text += &format!(
        "PID|1|EX{mrn}|{mrn:08}^^^TERRACE^MR~{account:09}^^^NATIONAL^NI||SAMPLE^ANNA|EXAMPLE^EVE|19600102|F||2106-3^White^HL70005|\
         17 TEST STREET^^TOWN^XX^12345^XZZ^H||(555)555-0101|(555)555-0102|en^English|M|NON^None|AC{account:08}^^^TERRACE\n"
    );
    text += "PV1|1|I|W07^101^3^TERRACE||||1234^SAMPLE^JO^^^DR|5678^EXAMPLE^MO^^^DR||MED||||1|A0||1234^SAMPLE^JO^^^DR|SELF|\
             V1234567^^^TERRACE^VN|||||||||||||||||||||||||20261122091112\n";
    if !is_result {
        for set in 1..=random.u32(6..18) {
            text += &format!(
                "IN1|{set}|PLAN{set}^Example plan {set}|INS00{set}|EXAMPLE MUTUAL|17 TEST STREET^^TOWN^XX^12345|||GRP4711\n"
            );
        }
        return text;
    }
    text += "ORC|RE|P1234567^ORDERS|F1234567^LABSYS||CM||1^once^^20261122||20261122101112|||1234^SAMPLE^JO\n";
    text += "OBR|1|P1234567^ORDERS|F1234567^LABSYS|GLUPAN^Glucose panel^L|||20261122101112||||L|||20261122101112|BLD^Blood|\
             1234^SAMPLE^JO||||||20261122101112||LAB|F||1^once\n";
    let (u, v) = (1.0 - random.f64(), random.f64());
    let normal = (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos();
    for set in 1..=((9.0 * (1.15 * normal).exp()).round() as usize).clamp(1, 300) {
        text += &format!(
            "OBX|{set}|NM|GLU^Glucose^L^12345^Glucose in blood^LN|1|{set}.25|mmol/l|3.9-5.5|N|||F|||20261122101112|LAB1^Central \
             laboratory|TECH7^EXAMPLE^OF THE NIGHT SHIFT\n"
        );
    }
    text
}

/// One sending system: a message, its acknowledgement, the next.
async fn send(
    address: SocketAddr,
    service: usize,
    messages: usize,
    bodies: Arc<Vec<Vec<u8>>>,
) -> Result<(), std::io::Error> {
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let (mut frame, mut answer) = (Vec::new(), vec![0; 4096]);
    for number in 0..messages {
        let body = &bodies[(service * 31 + number) % bodies.len()];
        frame.clear();
        hl7::mllp::encode(body, &mut frame);
        let place = frame.windows(PLACE.len()).position(|bytes| bytes == PLACE).unwrap_or_default();
        frame[place..place + PLACE.len()].copy_from_slice(format!("T4-{service:03}-{number:07}").as_bytes());
        stream.write_all(&frame).await?;
        let mut read = 0;
        while !answer[..read].ends_with(&hl7::mllp::TRAILER) {
            match stream.read(&mut answer[read..]).await? {
                0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
                bytes => read += bytes,
            }
        }
        assert!(answer[..read].windows(6).any(|bytes| bytes == b"MSA|AA"), "refused");
    }
    Ok(())
}

/// Receiving systems that acknowledge everything; where they listen, and how many they had.
fn receive(load: &Runtime) -> Result<(Vec<SocketAddr>, Arc<AtomicU64>), Box<dyn Error>> {
    let delivered = Arc::new(AtomicU64::new(0));
    let mut addresses = Vec::new();
    for _ in OPERATIONS {
        let listener = load.block_on(TcpListener::bind("127.0.0.1:0"))?;
        addresses.push(listener.local_addr()?);
        let delivered = delivered.clone();
        load.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(acknowledge(stream, delivered.clone()));
            }
        });
    }
    Ok((addresses, delivered))
}

async fn acknowledge(mut stream: TcpStream, delivered: Arc<AtomicU64>) -> Result<(), std::io::Error> {
    stream.set_nodelay(true)?;
    let (mut held, mut buffer, mut answer) = (Vec::new(), vec![0; 256 << 10], Vec::new());
    loop {
        let read = stream.read(&mut buffer).await?;
        if read == 0 {
            return Ok(());
        }
        held.extend_from_slice(&buffer[..read]);
        while let Some(end) = held.windows(2).position(|bytes| bytes == hl7::mllp::TRAILER) {
            let id = held.split(|byte| *byte == b'|').nth(9).unwrap_or_default();
            let id = String::from_utf8_lossy(id);
            answer.clear();
            let text = format!("MSH|^~\\&|R|R|S|S|20261122101112||ACK|{id}|P|2.5\rMSA|AA|{id}\r");
            hl7::mllp::encode(text.as_bytes(), &mut answer);
            held.drain(..end + 2);
            stream.write_all(&answer).await?;
            delivered.fetch_add(1, Ordering::Release);
        }
    }
}

/// What the kernel has counted for this process.
struct Sample {
    /// Nanoseconds of processor time by thread, those of one name together: proc(5), schedstat.
    threads: BTreeMap<String, u64>,
    /// Of the process, threads that ended included: proc(5), stat.
    ticks: u64,
    minor_faults: u64,
    written_bytes: u64,
}

impl Sample {
    fn now() -> Result<Sample, Box<dyn Error>> {
        let mut threads = BTreeMap::new();
        for task in fs::read_dir("/proc/self/task")? {
            let task = task?.path();
            // A thread may have ended meanwhile.
            let (Ok(name), Ok(stat)) =
                (fs::read_to_string(task.join("comm")), fs::read_to_string(task.join("schedstat")))
            else {
                continue;
            };
            let nanos: u64 = stat.split(' ').next().unwrap_or_default().parse()?;
            *threads.entry(name.trim().to_owned()).or_default() += nanos;
        }
        let io = fs::read_to_string("/proc/self/io")?;
        let written = io.lines().find_map(|line| line.strip_prefix("write_bytes: ")).unwrap_or("0");
        let stat = fs::read_to_string("/proc/self/stat")?;
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_ascii_whitespace().collect();
        let field = |number: usize| fields.get(number - 3).map_or(Ok(0), |text| text.parse::<u64>());
        let ticks = field(14)? + field(15)?;
        Ok(Sample { threads, ticks, minor_faults: field(10)?, written_bytes: written.parse()? })
    }

    fn print(&self, before: &Sample, messages: u64) {
        let of = |nanos: u64| nanos as f64 / 1000.0 / messages as f64;
        let spent = |name: &String, nanos: u64| nanos.saturating_sub(before.threads.get(name).copied().unwrap_or(0));
        let node = self.threads.iter().filter(|(name, _)| *name != "load");
        let sum: u64 = node.map(|(name, nanos)| spent(name, *nanos)).sum();
        let written = (self.written_bytes - before.written_bytes) / messages;
        let faults = (self.minor_faults - before.minor_faults) as f64 / messages as f64;
        println!("running: {:.1} us of the node a message, {written} bytes written, {faults:.2} page faults", of(sum));
        for (name, nanos) in &self.threads {
            println!("  {name:<16} {:>7.1} us", of(spent(name, *nanos)));
        }
    }
}
