//! `terrace message`: lists, searches and shows stored messages, and sends them again.

mod again;
mod export;
mod import;
pub mod search;
mod tail;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use hl7::charset::Charset;
use hl7::{Reading, mllp};
use interop::history::{Filter, History, OutputState};
use interop::record::{DeliveryOutcome, Status, Stored, shown_source};

use crate::cli::{MessageCommand, MessageFilterArgs, MessageListArgs, OutputName, StatusName};
use crate::moments::moment;
use crate::production_requests;
use crate::show::{TextTable, bytes, count, time};
use crate::terminal;

/// How long `send` waits for an acknowledgement.
const PATIENCE: Duration = Duration::from_secs(30);

/// Runs one of the commands.
pub fn run(command: MessageCommand) -> anyhow::Result<ExitCode> {
    match command {
        MessageCommand::List(args) => list(&args),
        MessageCommand::Search(args) => search::run(&args),
        MessageCommand::Show { id, output, raw, place } => show(&place.data, id, output.as_deref(), raw),
        MessageCommand::Trace { id, place, json } => trace(&place.data, id, json),
        MessageCommand::Tail(args) => tail::run(&args),
        MessageCommand::Resend { id, to, edited, place } => again::resend(&place.data, id, to, edited.as_deref()),
        MessageCommand::Reprocess(args) => again::reprocess(&args),
        MessageCommand::Export(args) => export::run(&args),
        MessageCommand::Import(args) => import::run(&args),
        MessageCommand::Send { file, to } => send(&file, to),
        MessageCommand::Count { place, json } => counts(&place.data, json),
    }
}

/// The selection that these options ask for, the newest `last` of it; 0 = all.
pub fn filter(args: &MessageFilterArgs, last: usize) -> anyhow::Result<Filter> {
    let wanted = args.wanted.iter().map(|text| {
        let (path, value) = text.split_once('=').with_context(|| format!("`{text}` is not PATH=VALUE"))?;
        path.parse::<hl7::Path>().with_context(|| format!("`{path}` is not a path"))?;
        Ok((path.to_owned(), value.to_owned()))
    });
    Ok(Filter {
        service: args.service.clone(),
        status: args.status.map(|status| match status {
            StatusName::Routed => Status::Routed,
            StatusName::Dropped => Status::Dropped,
            StatusName::Unmatched => Status::Unmatched,
            StatusName::Rejected => Status::Rejected,
            StatusName::Errored => Status::Errored,
        }),
        output: args.output.map(|output| match output {
            OutputName::Waiting => OutputState::Waiting,
            OutputName::Delivered => OutputState::Delivered,
            OutputName::Failed => OutputState::Failed,
            OutputName::SetAside => OutputState::SetAside,
        }),
        control_id: args.control.clone(),
        mrn: args.mrn.clone(),
        kind: args.kind.clone(),
        interface: args.interface.clone(),
        wanted: wanted.collect::<anyhow::Result<_>>()?,
        since_us: args.since.as_deref().map(moment).transpose()?,
        until_us: args.until.as_deref().map(moment).transpose()?,
        last,
    })
}

fn list(args: &MessageListArgs) -> anyhow::Result<ExitCode> {
    let lines = History::open(&args.place.data)?.list(&filter(&args.filter, args.last)?)?;
    let is_damaged = lines.iter().any(|line| line.damaged.is_some());
    let code = if is_damaged { ExitCode::from(1) } else { ExitCode::SUCCESS };
    let mut out = terminal::out();
    if args.json {
        for line in &lines {
            writeln!(out, "{}", serde_json::to_string(line)?)?;
        }
        return Ok(code);
    }
    let mut table = TextTable::new(&["id", "received", "service", "type", "control id", "bytes", "status", "outputs"]);
    for line in lines.iter().filter(|line| line.damaged.is_none()) {
        let mut status = format!("{:?}", line.status).to_lowercase();
        if line.duplicate {
            status += ", duplicate";
        }
        if let Some(origin) = line.resent_from {
            status = format!("resent from {origin}");
        }
        if line.imported {
            status += ", imported";
        }
        if let Some(origin) = line.reprocessed_from {
            status += &format!(", reprocessed from {origin}");
        }
        table.row(&[
            &line.id.to_string(),
            &time(line.received_us),
            &line.service,
            &line.kind,
            &line.control_id,
            &count(line.bytes as u64),
            &status,
            &outputs(&line.outputs),
        ]);
    }
    if table.is_empty() {
        writeln!(out, "no message is stored that matches")?;
    } else {
        write!(out, "{table}")?;
    }
    for (id, why) in lines.iter().filter_map(|line| Some((line.id, line.damaged.as_ref()?))) {
        writeln!(out, "damaged: message {id} cannot be read, so that it is not known whether it matches: {why}")?;
    }
    Ok(code)
}

/// `4 delivered`, or each one that is not.
fn outputs(outputs: &[(String, OutputState)]) -> String {
    let of = |wanted: OutputState| outputs.iter().filter(move |(_, state)| *state == wanted);
    let mut parts = Vec::new();
    let delivered = of(OutputState::Delivered).count();
    if delivered > 0 {
        parts.push(format!("{delivered} delivered"));
    }
    for (state, name) in
        [(OutputState::Waiting, "waiting"), (OutputState::Failed, "failed"), (OutputState::SetAside, "set aside")]
    {
        let names: Vec<&str> = of(state).map(|(operation, _)| operation.as_str()).collect();
        if !names.is_empty() {
            parts.push(format!("{name}: {}", names.join(" ")));
        }
    }
    if parts.is_empty() { "-".to_owned() } else { parts.join(", ") }
}

fn show(data: &Path, id: u64, output: Option<&str>, raw: bool) -> anyhow::Result<ExitCode> {
    let stored = History::open(data)?.show(id)?;
    let charset = stored.charset;
    let body = match output {
        None => stored.raw,
        Some(operation) => {
            let made = stored.outputs.iter().find(|o| o.operation == operation);
            let names: Vec<&str> = stored.outputs.iter().map(|o| o.operation.as_str()).collect();
            made.with_context(|| format!("message {id} has no output to {operation}; it has: {}", names.join(", ")))?
                .body
                .clone()
        }
    };
    if raw {
        terminal::raw(&body)?;
    } else {
        let mut out = terminal::out();
        let text = hl7_text(&body, charset).replace("\r\n", "\n").replace('\r', "\n");
        writeln!(out, "{}", text.trim_end())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A message as text, by its own charset, or `charset` where it declares none.
fn hl7_text(body: &[u8], charset: Option<Charset>) -> String {
    Reading::lenient(body, charset).shown().into_owned()
}

fn trace(data: &Path, id: u64, json: bool) -> anyhow::Result<ExitCode> {
    let history = History::open(data)?;
    if json {
        println!("{}", history.outline_json(id)?);
        return Ok(ExitCode::SUCCESS);
    }
    let trace = history.outline(id)?;
    // The data directory of a stopped node is opened again, for the rules.
    drop(history);
    let stored = &trace.stored;
    let mut out = terminal::out();
    writeln!(out, "message   {id}")?;
    writeln!(
        out,
        "received  {} by service {}, {}",
        time(stored.received_us),
        stored.service,
        bytes(trace.bytes as u64)
    )?;
    if let Some(origin) = stored.origin.as_ref().filter(|origin| origin.stored().is_none()) {
        let source = shown_source(&origin.key);
        writeln!(out, "imported  number {} of {source}", origin.id)?;
    } else if let Some(origin) = &stored.origin {
        let key = if origin.key.is_empty() { String::new() } else { format!(", key {}", origin.key) };
        writeln!(out, "made      from message {}, {}{key}", origin.id, origin.derivation.name())?;
    }
    for derived in &trace.derived {
        writeln!(out, "{:<9} as message {}", derived.how.name(), derived.id)?;
    }
    if stored.duplicate {
        writeln!(out, "duplicate its sender and control id were seen before")?;
    }
    writeln!(out, "decision  {}: {}", format!("{:?}", stored.status).to_lowercase(), stored.reason)?;
    decided_by(&mut out, data, stored)?;
    if stored.outputs.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = TextTable::new(&["output", "transform", "bytes", "stored anew", "state", "when", "answer"]);
    for (n, output) in stored.outputs.iter().enumerate() {
        let outcome = trace.deliveries.iter().find(|d| usize::from(d.output) == n);
        let wait = trace.waits.iter().find(|wait| usize::from(wait.output) == n);
        let (state, when, detail) = match outcome {
            None => ("waiting", "-".to_owned(), wait.map_or_else(|| "-".to_owned(), |wait| wait.cause.clone())),
            Some(d) if d.outcome == DeliveryOutcome::SetAside => {
                ("set aside", time(d.at_us), format!("by {}: {}", d.by, d.detail))
            }
            Some(d) => (d.outcome.name(), time(d.at_us), d.detail.clone()),
        };
        let transform = if output.transform.is_empty() { "-" } else { &output.transform };
        let size = count(trace.output_bytes.get(n).copied().unwrap_or(0) as u64);
        table.row(&[&output.operation, transform, &size, &count(output.new_bytes as u64), state, &when, &detail]);
    }
    write!(out, "\n{table}")?;
    Ok(ExitCode::SUCCESS)
}

/// The generation that decided, and the rules of then.
fn decided_by(out: &mut impl Write, data: &Path, stored: &Stored) -> anyhow::Result<()> {
    if stored.generation == 0 {
        return Ok(());
    }
    writeln!(out, "by        generation {} of the production", stored.generation)?;
    // Who may see the message may not see the production, and its text may be gone: the message is shown all the same.
    match production_requests::rule(data, stored.generation, &stored.service, &stored.reason) {
        Ok(Some(text)) => text.lines().try_for_each(|line| writeln!(out, "          {line}"))?,
        Ok(None) => {}
        Err(error) => writeln!(out, "          its rules are not shown: {error:#}")?,
    }
    Ok(())
}

fn counts(data: &Path, json: bool) -> anyhow::Result<ExitCode> {
    let counts = History::open(data)?.count()?;
    if json {
        println!("{}", serde_json::to_string(&counts)?);
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = TextTable::new(&["stored", ""]);
    for (name, n) in [
        ("messages received", counts.inbound),
        ("messages resent", counts.resent),
        ("outputs", counts.outputs),
        ("outputs delivered", counts.delivered),
        ("outputs failed", counts.failed),
        ("outputs set aside", counts.set_aside),
        ("message objects", counts.objects),
    ] {
        table.row(&[name, &count(n)]);
    }
    print!("{table}");
    Ok(ExitCode::SUCCESS)
}

fn send(file: &Path, to: SocketAddr) -> anyhow::Result<ExitCode> {
    let mut raw = Vec::new();
    if file == Path::new("-") {
        std::io::stdin().read_to_end(&mut raw)?;
    } else {
        raw = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    }
    let batch = hl7::batch::split(&raw);
    if batch.messages.is_empty() {
        bail!("{} holds no HL7 message (none begins with MSH)", file.display());
    }
    let mut stream = TcpStream::connect(to).with_context(|| format!("cannot connect to {to}"))?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut decoder = mllp::Decoder::new(mllp::Limits::default());
    let mut accepted = true;
    for range in batch.messages {
        let mut frame = Vec::new();
        mllp::encode(&hl7::batch::with_segment_ends(&raw[range]), &mut frame);
        stream.write_all(&frame)?;
        let answer = receive(&mut stream, &mut decoder)?;
        println!("{}", hl7_text(&answer, None).replace('\r', "\n").trim_end());
        let code = hl7::Message::parse(&answer).ok().and_then(|m| hl7::ack::read(&m).map(|r| r.code));
        accepted &= matches!(code, Some(hl7::ack::Code::AA | hl7::ack::Code::CA));
    }
    Ok(if accepted { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn receive(stream: &mut TcpStream, decoder: &mut mllp::Decoder) -> anyhow::Result<bytes::Bytes> {
    loop {
        for event in decoder.by_ref() {
            if let mllp::Event::Frame(frame) = event {
                return Ok(frame);
            }
        }
        let mut chunk = [0; 4096];
        let read = stream.read(&mut chunk).context("no acknowledgement came")?;
        if read == 0 {
            bail!("the connection was closed without an acknowledgement");
        }
        decoder.buffer().extend_from_slice(&chunk[..read]);
    }
}
