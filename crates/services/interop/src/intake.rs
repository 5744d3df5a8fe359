//! Decides about a message: whether it is accepted, its operations and outputs, the stored record, and the answer.
//! Pure: no I/O, the time is a parameter; the engine waits and writes.
//!
//! ```text
//! parse -> acceptable? (header fields, types, versions) -> rules -> transform a draft per send -> record, with all bodies
//!    \-> Rejected (AR, table 0357)        \-> Rejected      \-> Errored (AE 207)
//! ```
//!
//! Invariants: every received message is stored, also a refused one (so that users can inspect it); if one transform of
//! a message fails, the message is not delivered to any operation, since half a route is worse than none; an answer
//! contains no patient data.

mod output;

use std::sync::LazyLock;

use bytes::Bytes;
use hl7::charset::Charset;
use hl7::{Message, ParseError, Path, Reading, ReadingError, Value, ack, mllp};

use crate::lang::{Allowance, Context, Decision, Verdict};
use crate::plan::{Bodies, Plan};
use crate::production::Service;
use crate::production::settings::{Acknowledge, Intake, ServiceSettings as Settings, Unmatched};
use crate::record::search::SearchKeys;
use crate::record::{Head, MessageOrigin, Status, Writer};
use node::Clock;
use output::{OutputBody, OutputSource};

/// Outputs of one message at most: the index in records is 16 bits, and no route of sense comes near.
const OUTPUTS_MAX: usize = 1_000;

/// A message that came in.
#[derive(Debug)]
pub struct Inbound<'a> {
    /// The service that took it.
    pub service: &'a Service,
    /// Its bytes.
    pub raw: &'a Bytes,
    /// How they are read.
    pub reading: &'a Reading<'a>,
    /// Why they cannot be split, where they cannot; the reading then splits them as bytes, for the answer.
    pub unreadable: Option<ReadingError>,
    /// The same, parsed.
    pub message: Result<Message<'a>, ParseError>,
    /// What it is found and recognised by.
    pub keys: SearchKeys,
    /// When it came, microseconds since 1970.
    pub now_us: i64,
    /// The stored message that is decided on anew; none for one that came in.
    pub origin: Option<&'a MessageOrigin>,
    /// An id that no other message of this node has, for transforms and acknowledgements.
    pub control_id: &'a str,
}

impl<'a> Inbound<'a> {
    /// A message as [`read`].
    pub fn new(
        service: &'a Service,
        raw: &'a Bytes,
        (reading, unreadable): (&'a Reading<'a>, Option<ReadingError>),
        now_us: i64,
        control_id: &'a str,
    ) -> Self {
        let message = reading.message();
        let keys = SearchKeys::of(&service.name, message.as_ref().ok(), raw);
        Self { service, raw, reading, unreadable, message, keys, now_us, origin: None, control_id }
    }

    /// The same bytes as a message that is made from a stored one.
    #[must_use]
    pub fn derived(mut self, origin: Option<&'a MessageOrigin>) -> Self {
        self.origin = origin;
        self
    }
}

/// Finds out how a message is read; where it cannot be split, why, and a reading for the answer.
pub fn read<'a>(service: &Service, raw: &'a [u8]) -> (Reading<'a>, Option<ReadingError>) {
    let charset = service.settings.intake().charset();
    match Reading::of(raw, charset) {
        Ok(reading) => (reading, None),
        Err(error) => (Reading::lenient(raw, charset), Some(error)),
    }
}

/// The fault in a message, for its sender.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageProblem {
    /// Code of HL7 table 0357.
    pub code: u16,
    /// Where.
    pub location: Option<Path>,
    /// The text, without patient data.
    pub text: String,
}

/// One output to send.
#[derive(Debug)]
pub struct Sending {
    /// Position of the operation in the production.
    pub operation: usize,
    /// Hash of the value that keeps order; 0 where the order is one strict line.
    pub key_hash: u64,
    /// Its charset where it declares none.
    pub charset: Option<Charset>,
    /// The message to send.
    pub body: Bytes,
}

/// The result of a decision.
#[derive(Debug)]
pub struct Work {
    /// The record to store.
    pub record: Bytes,
    /// The outputs to send once it is stored.
    pub outputs: Vec<Sending>,
    /// The decision.
    pub status: Status,
    /// The answer to send once it is stored.
    pub code: ack::Code,
    /// The fault, if there is one.
    pub problem: Option<MessageProblem>,
}

/// The paths that every message is looked at by.
struct Paths {
    kind: Path,
    event: Path,
    control: Path,
    processing: Path,
    version: Path,
    charset: Path,
}

static PATHS: LazyLock<Paths> = LazyLock::new(|| {
    let path = |text: &str| text.parse().expect("a constant path");
    Paths {
        kind: path("MSH-9.1"),
        event: path("MSH-9.2"),
        control: path("MSH-10"),
        processing: path("MSH-11.1"),
        version: path("MSH-12.1"),
        charset: path("MSH-18"),
    }
});

/// Decides about a message, by the plan that its service is of. `duplicate`: it was seen before. `allowance` bounds the time of rules and
/// transforms.
pub fn decide(
    inbound: &Inbound<'_>,
    plan: &Plan,
    bodies: Bodies,
    duplicate: bool,
    clock: &Clock,
    allowance: &Allowance,
) -> Work {
    let message = match &inbound.message {
        Ok(message) => message,
        Err(error) => {
            let why = inbound.unreadable.map_or_else(|| error.to_string(), |unreadable| unreadable.to_string());
            let problem = MessageProblem { code: 100, location: None, text: format!("not an HL7 message: {why}") };
            return refused(inbound, Status::Rejected, problem, duplicate);
        }
    };
    if message.get(&PATHS.kind).bytes().trim_ascii() == b"ACK" {
        let head = head(inbound, Status::Dropped, "an acknowledgement came in; it is answered by nothing", duplicate);
        return stored_only(inbound, &head, ack::Code::AA, None);
    }
    if let Some(error) = &inbound.unreadable {
        let problem = MessageProblem { code: 102, location: Some(PATHS.charset.clone()), text: error.to_string() };
        return refused(inbound, Status::Rejected, problem, duplicate);
    }
    if let Some(problem) = unacceptable(message, inbound.service.settings.intake()) {
        return refused(inbound, Status::Rejected, problem, duplicate);
    }
    let now = clock.timestamp(inbound.now_us);
    let context = Context {
        zone: clock.zone().clone(),
        allowance: Some(allowance),
        ..Context::new(now, &inbound.service.name, inbound.control_id)
    };
    let Some(rules) = &inbound.service.rules else {
        let head = head(inbound, Status::Unmatched, "the service has no rules", duplicate);
        return stored_only(inbound, &head, ack::Code::AA, None);
    };
    let decision = match rules.decide(message, &context) {
        Ok(decision) => decision,
        Err(error) => {
            let problem = MessageProblem { code: 207, location: None, text: error.to_string() };
            return refused(inbound, Status::Errored, problem, duplicate);
        }
    };
    match &decision.verdict {
        Verdict::Routed => route(inbound, message, plan, &decision, &context, bodies, duplicate),
        Verdict::Dropped { why } => {
            let reason = format!("{}: dropped: {why}", decision.reason);
            stored_only(inbound, &head(inbound, Status::Dropped, &reason, duplicate), ack::Code::AA, None)
        }
        Verdict::Rejected { why, code } => {
            let problem = MessageProblem { code: *code, location: None, text: why.clone() };
            refused(inbound, Status::Rejected, problem, duplicate)
        }
        Verdict::Unmatched if inbound.service.settings.intake().unmatched == Unmatched::Reject => {
            let problem = MessageProblem { code: 207, location: None, text: "no rule takes this message".to_owned() };
            refused(inbound, Status::Rejected, problem, duplicate)
        }
        Verdict::Unmatched => {
            stored_only(inbound, &head(inbound, Status::Unmatched, &decision.reason, duplicate), ack::Code::AA, None)
        }
    }
}

/// Why the service does not take the message, if so.
fn unacceptable(message: &Message<'_>, intake: &Intake) -> Option<MessageProblem> {
    let paths = &*PATHS;
    let problem = |code, location: &Path, text: &str| {
        Some(MessageProblem { code, location: Some(location.clone()), text: text.to_owned() })
    };
    let kind = message.get(&paths.kind).bytes();
    if !message.get(&paths.kind).is_valued() {
        return problem(101, &paths.kind, "the message type, MSH-9.1, is required");
    }
    if !message.get(&paths.control).is_valued() {
        return problem(101, &paths.control, "the message control id, MSH-10, is required");
    }
    if !intake.types.is_empty() {
        let event = message.get(&paths.event).bytes();
        let of_kind: Vec<&str> = intake.types.iter().map(String::as_str).filter(|t| same_kind(t, kind)).collect();
        if of_kind.is_empty() {
            return problem(200, &paths.kind, "this service does not take messages of this type");
        }
        let takes = |t: &&str| t.split_once('^').is_none_or(|(_, wanted)| wanted.as_bytes() == event);
        if !of_kind.iter().any(takes) {
            return problem(201, &paths.event, "this service does not take messages of this event");
        }
    }
    let listed = |list: &[String], path: &Path| {
        let value = message.get(path).bytes();
        list.is_empty() || list.iter().any(|item| item.as_bytes() == value)
    };
    if !listed(&intake.processing_ids, &paths.processing) {
        return problem(202, &paths.processing, "this service does not take messages of this processing id");
    }
    if !listed(&intake.versions, &paths.version) {
        return problem(203, &paths.version, "this service does not take messages of this version");
    }
    None
}

fn same_kind(wanted: &str, kind: &[u8]) -> bool {
    wanted.split('^').next().unwrap_or_default().as_bytes() == kind
}

fn head<'a>(inbound: &Inbound<'a>, status: Status, reason: &'a str, duplicate: bool) -> Head<'a> {
    let (service, charset) = (&inbound.service.name, inbound.service.settings.intake().charset());
    let (received_us, generation) = (inbound.now_us, inbound.service.generation());
    Head { status, duplicate, origin: inbound.origin, received_us, generation, service, charset, reason }
}

/// A message that is stored and goes nowhere.
fn stored_only(inbound: &Inbound<'_>, head: &Head<'_>, code: ack::Code, problem: Option<MessageProblem>) -> Work {
    let record = Writer::with_keys(head, inbound.raw, &inbound.keys).finish();
    Work { record, outputs: Vec::new(), status: head.status, code, problem }
}

/// A message that is stored and refused: AR where the sender must change it, AE where the fault is here.
pub(crate) fn refused(inbound: &Inbound<'_>, status: Status, problem: MessageProblem, duplicate: bool) -> Work {
    let code = if status == Status::Rejected { ack::Code::AR } else { ack::Code::AE };
    let reason = problem.text.clone();
    stored_only(inbound, &head(inbound, status, &reason, duplicate), code, Some(problem))
}

/// Makes the outputs of a routed message.
#[allow(
    clippy::too_many_arguments,
    reason = "the ingredients of one output; a struct of them would be used here alone"
)]
fn route(
    inbound: &Inbound<'_>,
    message: &Message<'_>,
    plan: &Plan,
    decision: &Decision,
    context: &Context<'_>,
    bodies: Bodies,
    duplicate: bool,
) -> Work {
    if decision.sends.len() > OUTPUTS_MAX {
        let text = format!("the rules make more than {OUTPUTS_MAX} outputs of one message");
        return refused(inbound, Status::Errored, MessageProblem { code: 207, location: None, text }, duplicate);
    }
    let head = head(inbound, Status::Routed, &decision.reason, duplicate);
    let whole = if bodies == Bodies::Full { decision.sends.len() } else { 0 };
    let mut writer = Writer::with_room(&head, inbound.raw, &inbound.keys, whole);
    let mut outputs = Vec::with_capacity(decision.sends.len());
    let operations = &plan.production.operations;
    debug_assert!(
        plan.production
            .services
            .get(&inbound.service.name)
            .is_some_and(|service| std::ptr::eq(&**service, inbound.service)),
        "the places that rules name are those of their own production"
    );
    let converts = decision.sends.iter().any(|send| output::converts(inbound, &operations[send.operation]));
    let text = match converts.then(|| inbound.reading.text()).transpose() {
        Ok(text) => text,
        Err(error) => {
            let text = format!("an operation converts the message, but {error}");
            return refused(inbound, Status::Errored, MessageProblem { code: 207, location: None, text }, duplicate);
        }
    };
    let converted = text.as_deref().map(Reading::of_text);
    let converted = converted.as_ref().and_then(|reading| reading.message().ok());
    let converted = converted.as_ref();
    let source = OutputSource { inbound, message, converted, plan, context, bodies };
    for send in &decision.sends {
        match source.make(send, &mut writer) {
            Ok(Some(body)) => outputs.push((send.operation, body)),
            Ok(None) => {}
            Err(text) => {
                let problem = MessageProblem { code: 207, location: None, text };
                return refused(inbound, Status::Errored, problem, duplicate);
            }
        }
    }
    if outputs.is_empty() {
        let reason = format!("{}: every transform skipped it", decision.reason);
        let head = Head { status: Status::Dropped, reason: &reason, ..head };
        return stored_only(inbound, &head, ack::Code::AA, None);
    }
    let record = writer.finish();
    let sending = |(operation, body): (usize, OutputBody)| Sending {
        operation,
        key_hash: plan.queues[operation].key_hash(message),
        charset: inbound.service.settings.intake().charset(),
        body: body.of(&record),
    };
    let outputs = outputs.into_iter().map(sending).collect();
    Work { record, outputs, status: Status::Routed, code: ack::Code::AA, problem: None }
}

/// Builds what goes back to the sender, as MLLP frames.
#[derive(Debug)]
pub struct Answers<'a> {
    inbound: &'a Inbound<'a>,
    timestamp: String,
    second_id: String,
}

impl<'a> Answers<'a> {
    /// For one message; `second_id` is the control id of an application acknowledgement that follows a commit one.
    pub fn new(inbound: &'a Inbound<'a>, timestamp: String, second_id: String) -> Self {
        Self { inbound, timestamp, second_id }
    }

    /// The message to answer.
    pub fn raw(&self) -> &'a Bytes {
        self.inbound.raw
    }

    /// The frames that acknowledge with `code` (AA, AE or AR): none, one, or a commit acknowledgement followed by an application
    /// acknowledgement, by MSH-15, MSH-16 and the settings of the service.
    pub fn frames(&self, code: ack::Code, problem: Option<&MessageProblem>) -> Vec<u8> {
        let mut out = Vec::new();
        let policy = match &self.inbound.service.settings {
            Settings::Mllp(mllp) => mllp.acknowledge,
            Settings::File(_) => Acknowledge::Never,
        };
        if policy == Acknowledge::Never {
            return out;
        }
        let Ok(message) = &self.inbound.message else {
            mllp::encode(&ack::build_without_header(&self.reply(code, self.inbound.control_id, problem)), &mut out);
            return out;
        };
        // A response with content (ORR, RSP ...) may be committed, where its header requests that; it is itself an application
        // acknowledgement, and those are not acknowledged. A plain ACK never is.
        let kind = message.get(&PATHS.kind).bytes().trim_ascii();
        let mode = if policy == Acknowledge::Auto { ack::mode(message) } else { ack::Mode::Original };
        if kind == b"ACK" || (ack::is_acknowledgement(message) && mode == ack::Mode::Original) {
            return out;
        }
        let (accept, application) = match mode {
            ack::Mode::Enhanced { accept, application } => (accept, application),
            ack::Mode::Original => {
                let reply = self.reply(code, self.inbound.control_id, problem);
                mllp::encode(&self.build(message, &reply), &mut out);
                return out;
            }
        };
        // Stored, it is committed whatever became of it then; not taken, no acknowledgement is due.
        let commit = if code == ack::Code::AR { ack::Code::CR } else { ack::Code::CA };
        let committed = accept.wants(commit);
        if committed {
            let problem = problem.filter(|_| commit == ack::Code::CR);
            mllp::encode(&self.build(message, &self.reply(commit, self.inbound.control_id, problem)), &mut out);
        }
        let answers = !ack::is_acknowledgement(message);
        if answers && application.wants(code) && !(committed && commit == ack::Code::CR) {
            mllp::encode(&self.build(message, &self.reply(code, &self.second_id, problem)), &mut out);
        }
        out
    }

    /// An answer in the charset of the message.
    fn build(&self, message: &Message<'_>, reply: &ack::Reply<'_>) -> Vec<u8> {
        self.inbound.reading.encode_answer(ack::build(message, reply))
    }

    fn reply<'r>(
        &'r self,
        code: ack::Code,
        control_id: &'r str,
        problem: Option<&'r MessageProblem>,
    ) -> ack::Reply<'r> {
        ack::Reply {
            code,
            control_id,
            timestamp: &self.timestamp,
            text: problem.map(|p| p.text.as_str()),
            problem: problem.map(|p| ack::Problem { code: p.code, location: p.location.as_ref(), text: &p.text }),
        }
    }
}

/// The value at `path`, as text for people.
pub fn text(message: &Message<'_>, path: &Path) -> String {
    match message.get(path) {
        Value::Present(_) => message.text(path).into_owned(),
        _ => String::new(),
    }
}
