//! `profile` of the control socket, and `terrace profile start | stop | status | fetch | remove`: profiles of a node that runs.
//!
//! ```text
//!   terrace profile start --> ProfileRequest --rights, audit--> node::profiling::Profiling --> profiles/NAME.tprof in the data directory
//!   terrace profile fetch --> pieces of it over the control socket --> a file of the command's own user
//! ```
//!
//! The node writes in its own folder only. What a command writes, it writes itself, with the rights of who runs it.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Weak};
use std::time::Duration;

use anyhow::{Context, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::{Args, Subcommand};
use interop::production::units::Span;
use interop::running::{Audited, Needs, Requirement, RunningProduction, ServiceRequest};
use node::audit::AuditEntry;
use node::identity::{Action, Caller, Object};
use node::profiling::{
    MoreMemory, ProfileAnswer, ProfilePiece, ProfileReport, ProfileRequest, Profiling, REQUEST, RecordingState,
    RecordingStatus, StartRecording, StructureStatus,
};
use node::{Clock, control};
use serde_json::{Value, json};

use crate::place::Place;
use crate::show::{TextTable, bytes, count, time};

/// How often a command that waits asks the node.
const EVERY: Duration = Duration::from_millis(500);

/// `terrace profile ...`
#[derive(Debug, Subcommand)]
pub enum NodeProfileCommand {
    #[command(flatten)]
    Files(plan::ProfileCommand),
    /// Start recording a profile of a node that runs
    ///
    /// The node goes on as it is: recording has 16 MiB and 5,000 accesses a second at most. It ends by itself
    /// after --for, by `terrace profile stop`, or with the node; the profile is then in the folder `profiles` of
    /// the data directory. It contains hashes in place of page numbers, and no key and no byte of a message.
    ///
    ///   terrace profile start --for 24h
    ///   terrace profile status
    ///   terrace profile stop --out week.tprof
    ///   terrace profile start --for 10m --out short.tprof    # waits, and fetches it
    ///
    /// Record a day with its busiest hour. Only one profile is recorded at a time.
    #[command(verbatim_doc_comment)]
    Start(StartArgs),
    /// End the recording, and write its profile
    Stop(StopArgs),
    /// Show what is recorded, what more memory would give, and which profiles there are
    ///
    /// Exit code 1 if the last recording failed or was interrupted.
    Status(ProfileStatusArgs),
    /// Copy a profile of a node into a file
    Fetch(FetchArgs),
    /// Make a profile of a part that an interrupted recording has left; the node's next start does so itself
    ///
    ///   terrace profile recover terrace-data/profiles/week.tprof.part --out week.tprof
    #[command(verbatim_doc_comment)]
    Recover {
        /// The part
        part: PathBuf,
        /// The profile to make, which must not exist
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
    },
    /// Remove a profile of a node
    Remove {
        /// The profile, as `status` shows it
        name: String,
        #[command(flatten)]
        place: Place,
    },
}

/// `terrace profile start`
#[derive(Debug, Args)]
pub struct StartArgs {
    /// For how long, as 10m, 24h or 7d; up to 31d
    #[arg(long = "for", value_name = "TIME", default_value = "24h")]
    pub lasts: Span,
    /// Name of the profile [default: profile- and the time]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Largest size of the profile
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = size)]
    pub limit: u64,
    /// Keys of the sample of reuse distances, 64 to 16384
    #[arg(long, value_name = "MANY", default_value_t = 16_384)]
    pub keys: usize,
    /// Keys of the sampled stream, 64 to 65536
    #[arg(long, value_name = "MANY", default_value_t = 65_536)]
    pub stream_keys: usize,
    /// Wait until it is over, and copy the profile into this file, which must not exist
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    #[command(flatten)]
    pub place: Place,
}

/// `terrace profile stop`
#[derive(Debug, Args)]
pub struct StopArgs {
    /// Copy the profile into this file, which must not exist
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    #[command(flatten)]
    pub place: Place,
}

/// `terrace profile status`
#[derive(Debug, Args)]
pub struct ProfileStatusArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub place: Place,
}

/// `terrace profile fetch`
#[derive(Debug, Args)]
pub struct FetchArgs {
    /// The profile, as `status` shows it
    pub name: String,
    /// The file, which must not exist
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    #[command(flatten)]
    pub place: Place,
}

fn size(text: &str) -> Result<u64, String> {
    catalogue::provision::geometry::parse_bytes(text)
        .filter(|bytes| *bytes > 0)
        .ok_or_else(|| "write a size as 64MiB, 1.5GiB or a number of bytes".to_owned())
}

/// A request, and who answers it: the node may have ended.
struct Requested {
    profiling: Weak<Profiling>,
    request: ProfileRequest,
}

impl ServiceRequest for Requested {
    fn requirement(&self) -> Requirement<'_> {
        let right = Needs::Right(Action::NodeProfile, Object::Node);
        let change = |entry| (right, Some((Audited::Change, entry)));
        let (needs, entry) = match &self.request {
            ProfileRequest::Status => (Needs::Right(Action::NodeMetrics, Object::Node), None),
            ProfileRequest::Start(start) => {
                let entry = AuditEntry::new("profile.start", start.name.as_deref().unwrap_or_default());
                change(entry.with("seconds", start.seconds.to_string()))
            }
            ProfileRequest::Stop => change(AuditEntry::new("profile.stop", "")),
            // One entry for a fetch, not one for each of its pieces: a later piece needs the number that came with the first one.
            ProfileRequest::Read { name, offset: 0, .. } => {
                (right, Some((Audited::Allowed, AuditEntry::new("profile.fetch", name))))
            }
            ProfileRequest::Read { .. } => (right, None),
            ProfileRequest::Remove { name } => change(AuditEntry::new("profile.remove", name)),
        };
        Requirement { needs, entry }
    }

    fn answer(&self, _: &Caller) -> Result<Value, String> {
        let profiling = self.profiling.upgrade().ok_or("the node is stopping")?;
        let answer = profiling.handle(self.request.clone());
        answer.map(|answer| json!(answer)).map_err(|error| error.to_string())
    }
}

/// Takes up what an interrupted recording has left, and answers requests from now on.
pub fn start(node: &RunningProduction) -> Arc<Profiling> {
    let profiling = Profiling::start(node.data(), node.store(), Clock::system());
    let answers = Arc::downgrade(&profiling);
    node.serve_requests(
        REQUEST,
        true,
        Box::new(move |text| match serde_json::from_str(text) {
            Ok(request) => Ok(Box::new(Requested { profiling: Weak::clone(&answers), request })),
            Err(error) => Err(format!("`{REQUEST} {text}` is not a request: {error}")),
        }),
    );
    profiling
}

impl NodeProfileCommand {
    /// Runs it.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        match self {
            NodeProfileCommand::Files(command) => command.run(),
            NodeProfileCommand::Start(args) => args.run(),
            NodeProfileCommand::Stop(args) => args.run(),
            NodeProfileCommand::Status(args) => args.run(),
            NodeProfileCommand::Fetch(args) => {
                check_out(Some(&args.out))?;
                fetch(&args.place, &args.name, &args.out)?;
                Ok(ExitCode::SUCCESS)
            }
            NodeProfileCommand::Recover { part, out } => recover(part, out),
            NodeProfileCommand::Remove { name, place } => {
                report(place, &ProfileRequest::Remove { name: name.clone() })?;
                println!("removed");
                Ok(ExitCode::SUCCESS)
            }
        }
    }
}

impl StartArgs {
    fn run(&self) -> anyhow::Result<ExitCode> {
        check_out(self.out.as_deref())?;
        let seconds = self.lasts.0.as_secs();
        let start = StartRecording {
            name: self.name.clone(),
            seconds,
            limit_bytes: self.limit,
            keys: self.keys,
            stream_keys: self.stream_keys,
        };
        let started = report(&self.place, &ProfileRequest::Start(start))?;
        let recording = started.recording.context("the node does not say what it records")?;
        let Some(out) = &self.out else {
            println!("recording {}; `terrace profile status` shows it, `terrace profile stop` ends it", recording.name);
            return Ok(ExitCode::SUCCESS);
        };
        eprintln!("recording {}; it goes on if this command is ended", recording.name);
        loop {
            std::thread::sleep(EVERY);
            let now = report(&self.place, &ProfileRequest::Status)?.recording;
            let now = now.filter(|now| now.name == recording.name);
            let now = now.context("the node was started again: see `terrace profile status`")?;
            match now.state {
                RecordingState::Running | RecordingState::Recovering => {}
                RecordingState::Complete => break,
                RecordingState::Interrupted | RecordingState::Failed => anyhow::bail!("{}", line(&now)),
            }
        }
        fetch(&self.place, &recording.name, out)?;
        Ok(ExitCode::SUCCESS)
    }
}

impl StopArgs {
    fn run(&self) -> anyhow::Result<ExitCode> {
        check_out(self.out.as_deref())?;
        let stopped = report(&self.place, &ProfileRequest::Stop)?;
        let recording = stopped.recording.context("the node does not say what it recorded")?;
        ensure!(recording.state == RecordingState::Complete, "{}", line(&recording));
        println!("{}", line(&recording));
        match &self.out {
            Some(out) => fetch(&self.place, &recording.name, out)?,
            None => println!("`terrace profile fetch {} --out FILE` copies it", recording.name),
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl ProfileStatusArgs {
    fn run(&self) -> anyhow::Result<ExitCode> {
        let ProfileReport { recording, files } = report(&self.place, &ProfileRequest::Status)?;
        let is_well = recording
            .as_ref()
            .is_none_or(|recording| !matches!(recording.state, RecordingState::Interrupted | RecordingState::Failed));
        let code = if is_well { ExitCode::SUCCESS } else { ExitCode::from(1) };
        if self.json {
            println!("{:#}", json!(ProfileReport { recording, files }));
            return Ok(code);
        }
        match &recording {
            None => println!("nothing was recorded since the node started; `terrace profile start` does it"),
            Some(recording) => print!("{}", text(recording)),
        }
        if !files.is_empty() {
            let mut table = TextTable::new(&["profile", "size"]);
            files.iter().for_each(|file| table.row(&[&file.name, &bytes(file.bytes)]));
            println!("\n{table}");
        }
        Ok(code)
    }
}

fn report(place: &Place, request: &ProfileRequest) -> anyhow::Result<ProfileReport> {
    match answer(&place.data, request)? {
        ProfileAnswer::Report(report) => Ok(*report),
        ProfileAnswer::Piece(_) => anyhow::bail!("the node's answer is another one"),
    }
}

fn answer(data: &Path, request: &ProfileRequest) -> anyhow::Result<ProfileAnswer> {
    let text = serde_json::to_string(request)?;
    let answer = control::request(data, &format!("{REQUEST} {text}"))?;
    serde_json::from_value(answer).context("the node's answer cannot be read by this release")
}

fn check_out(out: Option<&Path>) -> anyhow::Result<()> {
    out.map_or(Ok(()), |out| {
        ensure!(!out.exists(), "{} exists: name another file", out.display());
        Ok(())
    })
}

/// Copies a profile: under another name until it is whole.
fn fetch(place: &Place, name: &str, out: &Path) -> anyhow::Result<()> {
    let folder = out.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file =
        tempfile::NamedTempFile::new_in(folder).with_context(|| format!("making a file in {}", folder.display()))?;
    let (mut offset, mut fetch) = (0, None);
    loop {
        let request = ProfileRequest::Read { name: name.to_owned(), offset, fetch };
        let ProfileAnswer::Piece(ProfilePiece { bytes: whole, piece, fetch: number }) = answer(&place.data, &request)?
        else {
            anyhow::bail!("the node's answer is another one");
        };
        fetch = Some(number);
        let piece = STANDARD.decode(piece).context("the node's answer cannot be read by this release")?;
        file.write_all(&piece).with_context(|| format!("writing {}", out.display()))?;
        offset += piece.len() as u64;
        if offset >= whole || piece.is_empty() {
            ensure!(offset == whole, "the profile changed while it was copied: do it again");
            break;
        }
    }
    file.as_file().sync_all().with_context(|| format!("writing {}", out.display()))?;
    file.persist_noclobber(out).with_context(|| format!("writing {}", out.display()))?;
    println!("{}: {}; `terrace profile show {}` shows it", out.display(), bytes(offset), out.display());
    Ok(())
}

fn recover(part: &Path, out: &Path) -> anyhow::Result<ExitCode> {
    check_out(Some(out))?;
    let folder = out.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file =
        tempfile::NamedTempFile::new_in(folder).with_context(|| format!("making a file in {}", folder.display()))?;
    let summary = plan::profile::recover(part, &mut file, &plan::profile::WriteGuard::default())
        .with_context(|| format!("reading {}", part.display()))?;
    file.as_file().sync_all().with_context(|| format!("writing {}", out.display()))?;
    file.persist_noclobber(out).with_context(|| format!("writing {}", out.display()))?;
    println!("{}: the {} until it was last saved", out.display(), span(summary.seconds));
    Ok(ExitCode::SUCCESS)
}

/// As a line.
fn line(recording: &RecordingStatus) -> String {
    let RecordingStatus { name, why, seconds, for_seconds, .. } = recording;
    let reached = format!("{} of {}", span(*seconds), span(*for_seconds));
    match recording.state {
        RecordingState::Running => {
            format!("profile {name} is being recorded since {}: {reached}", time(recording.begun_us))
        }
        RecordingState::Recovering => {
            format!("what an interrupted recording of profile {name} has left is being made a profile")
        }
        RecordingState::Complete => format!("profile {name} is complete after {reached}: {why}"),
        RecordingState::Interrupted => format!("profile {name} was interrupted: {why}"),
        RecordingState::Failed => format!("profile {name} failed: {why}"),
    }
}

fn span(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        _ => format!("{} h", seconds / 3600),
    }
}

/// Several lines.
fn text(recording: &RecordingStatus) -> String {
    let mut out = format!("{}\n", line(recording));
    if recording.accesses == 0 && recording.structures.is_empty() {
        return out;
    }
    out += &format!(
        "{} accesses to {} of pages; {} of them in the stream, {:.3} % of all pages\n",
        count(recording.accesses),
        bytes(recording.touched_bytes),
        count(recording.sampled),
        recording.rate * 100.0
    );
    for (number, what) in [
        (recording.dropped, "sampled accesses were lost, since their buffer was full or in use"),
        (recording.left_out, "pages are left out, since they alone would fill the sample"),
    ] {
        if number > 0 {
            out += &format!("{} {what}\n", count(number));
        }
    }
    if recording.memory_bytes > 0 {
        out += &format!("it takes {}\n", bytes(recording.memory_bytes));
    }
    for line in more_memory(recording).into_iter().chain(beside(recording)) {
        out += &format!("{line}\n");
    }
    out
}

/// What more memory would give, in words: a line with the cache as it is, and one with each larger one.
fn more_memory(recording: &RecordingStatus) -> Vec<String> {
    let percent = |part: f64| format!("{:.1} %", part * 100.0);
    let Some((now, more)) = recording.more_memory.split_first() else { return Vec::new() };
    let measured =
        recording.measured_hit_ratio.map_or_else(String::new, |measured| format!("; measured {}", percent(measured)));
    let mut lines = vec![format!("the cache, {}: hits {} by LRU{measured}", bytes(now.bytes), percent(now.hit_ratio))];
    let line = |MoreMemory { bytes: size, hit_ratio }: &MoreMemory| {
        let (before, after) = (percent(now.hit_ratio), percent(*hit_ratio));
        format!("with {} more: hits {before} -> {after}", bytes(size - now.bytes))
    };
    lines.extend(more.iter().map(line));
    lines
}

/// What is beside the page cache, in words: a line for each.
fn beside(recording: &RecordingStatus) -> Vec<String> {
    let line = |one: &StructureStatus| {
        let touched = one.touched_bytes.unwrap_or(0);
        let found = [touched / 4, touched / 2, touched].map(|size| {
            let at = one.points.iter().find(|(bytes, _)| *bytes >= size).or(one.points.last());
            at.map(|(at, missed)| format!("{} {:.0} %", bytes(*at), 100.0 * (1.0 - missed)))
        });
        let found: Vec<String> = found.into_iter().flatten().collect();
        let made = if one.made > 0 { format!(", {} made", count(one.made)) } else { String::new() };
        let memory =
            if found.is_empty() { String::new() } else { format!("; a memory would find: {}", found.join(", ")) };
        format!(
            "{}, beside the cache: {} reads, {} writes{made}, {} used{memory}",
            one.name,
            count(one.reads),
            count(one.writes),
            bytes(touched)
        )
    };
    recording.structures.iter().filter(|one| one.beside).map(line).collect()
}

/// The recording of a node that runs, if there is one, for its status; none where the caller may not see it.
pub fn of_running(data: &Path) -> Option<RecordingStatus> {
    let text = serde_json::to_string(&ProfileRequest::Status).ok()?;
    let answer = control::request(data, &format!("{REQUEST} {text}")).ok()?;
    serde_json::from_value::<ProfileReport>(answer).ok()?.recording
}

/// The lines of `terrace status` about it.
pub fn status_lines(recording: &RecordingStatus) -> Vec<String> {
    let mut lines = vec![line(recording)];
    lines.extend(more_memory(recording));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_says_what_more_memory_gives() {
        let report = json!({"recording": {
            "name": "week", "state": "running", "why": "", "begun_us": 0, "seconds": 90, "for_seconds": 86400, "accesses": 10,
            "sampled": 10, "rate": 1.0, "dropped": 0, "left_out": 0, "touched_bytes": 1u64 << 38, "memory_bytes": 1 << 20,
            "measured_hit_ratio": 0.92,
            "more_memory": [{"bytes": 64u64 << 30, "hit_ratio": 0.91}, {"bytes": 128u64 << 30, "hit_ratio": 0.97}],
            "structures": [
                {"name": "page cache", "beside": false, "reads": 9, "writes": 1, "made": 0, "touched_bytes": 1u64 << 38, "points": []},
                {"name": "volumes", "beside": true, "reads": 1000, "writes": 20, "made": 0, "touched_bytes": 64 << 20,
                 "points": [[16 << 20, 0.75], [32 << 20, 0.5], [64 << 20, 0.1]]}
            ]
        }, "files": []});
        let report: ProfileReport = serde_json::from_value(report).expect("a report");
        let recording = report.recording.expect("one is recorded");
        let lines = status_lines(&recording);
        assert!(lines[0].contains("week is being recorded") && lines[0].ends_with("90 s of 24 h"), "{lines:?}");
        assert!(lines[1].contains("hits 91.0 % by LRU; measured 92.0 %"), "{lines:?}");
        assert!(lines[2].contains("more: hits 91.0 % -> 97.0 %"), "{lines:?}");
        let text = text(&recording);
        let beside = "volumes, beside the cache: 1,000 reads, 20 writes, 64.0 MiB used; a memory would find: 16.0 MiB 25 %, 32.0 MiB 50 %, 64.0 MiB 90 %";
        assert!(text.contains(beside), "{text}");
    }
}
