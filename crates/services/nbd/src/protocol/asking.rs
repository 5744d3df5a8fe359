//! The client's side of negotiation, as a state machine: bytes of the server in, bytes to send and steps out.
//!
//! ```text
//!   Greeting --> [StartTls] --> Structured --> Contexts --> Go ---------------> Ready
//!                                   |                        |  unknown there
//!                                   +--- refused ----------->+--> Name -------> Ready
//! ```
//!
//! Invariants: with TLS wanted, nothing but `STARTTLS` is sent before TLS has begun, and a server without it ends the
//! attempt; bytes that the server sent early, before TLS, are an error. An epoch counts as confirmed only if the server
//! knows the context `terrace:epoch` for this export and opened it under the name with the epoch.

use super::{
    ALLOCATION_CONTEXT, CLIENT_QUERY, EPOCH_CONTEXT, ExportFacts, Front, GREETING_MAGIC, OPTION_MAGIC,
    OPTION_REPLY_MAGIC, PAYLOAD_BYTES_MAX, PREFERRED_BLOCK_BYTES, answer, greeting, info, option, put_string,
};

/// The longest reply to an option that is read.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// Replies to one option: a server that sends more of them is not understood.
const ANSWERS_MAX: usize = 1000;

/// The unit of a server that does not state one: what the protocol advises a client to keep to.
const ASSUMED_BLOCK_BYTES: u32 = 512;

/// What is wanted of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wish {
    /// The name of the export, with its epoch, if any.
    pub name: String,
    /// Whether the session has to use TLS.
    pub tls: bool,
    /// Who the client is, the same on each of its connections: [`CLIENT_QUERY`]; 0: it does not say.
    pub client: u64,
}

/// What was agreed on.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Opened {
    /// The export.
    pub facts: ExportFacts,
    /// Structured replies.
    pub structured: bool,
    /// The id of `base:allocation`, if the server has it.
    pub allocation: Option<u32>,
}

/// Why the server cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AskingError {
    /// It speaks another protocol, or makes no sense.
    #[error("no NBD server that can be understood: {0}")]
    Broken(&'static str),
    /// It refused an option.
    #[error("the server refuses: {text} ({kind})")]
    Refused {
        /// [`answer`].
        kind: Refusal,
        /// Its text, shortened, without control characters.
        text: String,
    },
}

/// Why a server refused, as far as it changes what to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// There is no such export.
    Unknown,
    /// A rule of the server: an epoch that is over, for example.
    Policy,
    /// It requires TLS.
    TlsRequired,
    /// It has no TLS.
    NoTls,
    /// It ends.
    Shutdown,
    /// Anything else, by its number.
    Other(u32),
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Refusal::Unknown => f.write_str("unknown export"),
            Refusal::Policy => f.write_str("policy"),
            Refusal::TlsRequired => f.write_str("TLS is required"),
            Refusal::NoTls => f.write_str("no TLS"),
            Refusal::Shutdown => f.write_str("it ends"),
            Refusal::Other(kind) => write!(f, "error {}", kind & !answer::ERROR),
        }
    }
}

/// How far negotiation is.
#[derive(Debug, PartialEq, Eq)]
pub enum Progress {
    /// More bytes are needed.
    More,
    /// Begin TLS; then go on with [`Asking::secured`].
    StartTls,
    /// Transmission begins.
    Ready(Opened),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Greeting,
    StartTls,
    Structured,
    Contexts,
    Go,
    Name,
    Done,
}

/// The state of one negotiation.
#[derive(Debug)]
pub struct Asking {
    wish: Wish,
    phase: Phase,
    leaves_out_zeros: bool,
    answers: usize,
    has_block_sizes: bool,
    opened: Opened,
}

impl Asking {
    /// Before the first byte.
    pub fn new(wish: Wish) -> Asking {
        let facts = ExportFacts {
            name: wish.name.clone(),
            min_block: ASSUMED_BLOCK_BYTES,
            preferred_block: PREFERRED_BLOCK_BYTES,
            max_payload: PAYLOAD_BYTES_MAX,
            ..ExportFacts::default()
        };
        let opened = Opened { facts, ..Opened::default() };
        Asking { wish, phase: Phase::Greeting, leaves_out_zeros: false, answers: 0, has_block_sizes: false, opened }
    }

    /// The server sent `bytes`. Returns how many of them were used, and appends what is to be sent.
    ///
    /// # Errors
    /// The server cannot be used.
    pub fn apply(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<(usize, Progress), AskingError> {
        let mut used = 0;
        loop {
            let rest = &bytes[used..];
            let step = match self.phase {
                Phase::Greeting => self.greeting(rest, out)?,
                Phase::Name => self.name(rest),
                Phase::Done => None,
                _ => self.answer(rest, out)?,
            };
            let Some((count, progress)) = step else { return Ok((used, Progress::More)) };
            used += count;
            match progress {
                Progress::More => {}
                Progress::StartTls if used < bytes.len() => {
                    return Err(AskingError::Broken("it sent bytes before TLS began"));
                }
                progress => return Ok((used, progress)),
            }
        }
    }

    /// TLS has begun: the negotiation goes on inside.
    pub fn secured(&mut self, out: &mut Vec<u8>) {
        self.send_option(Phase::Structured, out);
    }

    fn greeting(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<Option<(usize, Progress)>, AskingError> {
        let mut front = Front(bytes);
        let (Some(first), Some(second), Some(flags)) = (front.u64(), front.u64(), front.u16()) else {
            // A wrong server may be silent after fewer bytes.
            let wrong = bytes.iter().zip(GREETING_MAGIC.to_be_bytes()).any(|(byte, expected)| *byte != expected);
            return if wrong { Err(AskingError::Broken("the greeting is another one")) } else { Ok(None) };
        };
        if first != GREETING_MAGIC || second != OPTION_MAGIC {
            return Err(AskingError::Broken("the greeting is another one, or of the old protocol"));
        }
        if flags & greeting::FIXED_NEWSTYLE == 0 {
            return Err(AskingError::Broken("it does not speak the fixed newstyle"));
        }
        self.leaves_out_zeros = flags & greeting::NO_ZEROES != 0;
        let own = greeting::FIXED_NEWSTYLE | (flags & greeting::NO_ZEROES);
        out.extend_from_slice(&u32::from(own).to_be_bytes());
        self.send_option(if self.wish.tls { Phase::StartTls } else { Phase::Structured }, out);
        Ok(Some((18, Progress::More)))
    }

    /// Sends the option of a phase.
    fn send_option(&mut self, phase: Phase, out: &mut Vec<u8>) {
        self.phase = phase;
        self.answers = 0;
        let mut data = Vec::new();
        let code = match phase {
            Phase::StartTls => option::STARTTLS,
            Phase::Structured => option::STRUCTURED_REPLY,
            Phase::Contexts => {
                put_string(&mut data, &self.wish.name);
                let client = format!("{CLIENT_QUERY}{:016x}", self.wish.client);
                let queries = [ALLOCATION_CONTEXT, EPOCH_CONTEXT, &client];
                let queries = &queries[..if self.wish.client == 0 { 2 } else { 3 }];
                data.extend_from_slice(&(queries.len() as u32).to_be_bytes());
                queries.iter().for_each(|query| put_string(&mut data, query));
                option::SET_META_CONTEXT
            }
            Phase::Go => {
                put_string(&mut data, &self.wish.name);
                data.extend_from_slice(&1u16.to_be_bytes());
                data.extend_from_slice(&info::BLOCK_SIZE.to_be_bytes());
                option::GO
            }
            Phase::Name => {
                data.extend_from_slice(self.wish.name.as_bytes());
                option::EXPORT_NAME
            }
            Phase::Greeting | Phase::Done => return,
        };
        out.extend_from_slice(&OPTION_MAGIC.to_be_bytes());
        out.extend_from_slice(&code.to_be_bytes());
        out.extend_from_slice(&(data.len() as u32).to_be_bytes());
        out.extend_from_slice(&data);
    }

    fn code(&self) -> u32 {
        match self.phase {
            Phase::StartTls => option::STARTTLS,
            Phase::Structured => option::STRUCTURED_REPLY,
            Phase::Contexts => option::SET_META_CONTEXT,
            _ => option::GO,
        }
    }

    /// One reply to the option of this phase.
    fn answer(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<Option<(usize, Progress)>, AskingError> {
        let mut front = Front(bytes);
        let (Some(magic), Some(code), Some(kind), Some(length)) = (front.u64(), front.u32(), front.u32(), front.u32())
        else {
            return Ok(None);
        };
        if magic != OPTION_REPLY_MAGIC || code != self.code() {
            return Err(AskingError::Broken("its reply is to another option"));
        }
        self.answers += 1;
        if length as usize > ANSWER_BYTES_MAX || self.answers > ANSWERS_MAX {
            return Err(AskingError::Broken("its reply is too long"));
        }
        let Some(data) = front.bytes(length as usize) else {
            self.answers -= 1;
            return Ok(None);
        };
        let used = 20 + data.len();
        let progress = if kind & answer::ERROR != 0 {
            self.refused(kind, data, out)?;
            Progress::More
        } else {
            self.accepted(kind, data, out)?
        };
        Ok(Some((used, progress)))
    }

    fn accepted(&mut self, kind: u32, data: &[u8], out: &mut Vec<u8>) -> Result<Progress, AskingError> {
        match (self.phase, kind) {
            (Phase::StartTls, answer::ACK) => return Ok(Progress::StartTls),
            (Phase::Structured, answer::ACK) => {
                self.opened.structured = true;
                self.send_option(Phase::Contexts, out);
            }
            (Phase::Contexts, answer::META_CONTEXT) => {
                let mut front = Front(data);
                let id = front.u32().ok_or(AskingError::Broken("a context without id"))?;
                if front.0 == ALLOCATION_CONTEXT.as_bytes() {
                    self.opened.allocation = Some(id);
                } else if front.0 == EPOCH_CONTEXT.as_bytes() {
                    self.opened.facts.has_epochs = true;
                }
            }
            (Phase::Contexts, answer::ACK) => self.send_option(Phase::Go, out),
            (Phase::Go, answer::INFO) => self.fact(data)?,
            (Phase::Go, answer::ACK) => {
                self.phase = Phase::Done;
                if self.opened.facts.bytes == 0 {
                    return Err(AskingError::Broken("the export has no bytes"));
                }
                return Ok(Progress::Ready(self.opened.clone()));
            }
            _ => return Err(AskingError::Broken("its reply does not fit the option")),
        }
        Ok(Progress::More)
    }

    fn refused(&mut self, kind: u32, data: &[u8], out: &mut Vec<u8>) -> Result<(), AskingError> {
        let unsupported = kind == answer::UNSUPPORTED;
        match self.phase {
            Phase::Structured if kind != answer::TLS_REQUIRED && kind != answer::SHUTDOWN => {
                self.send_option(Phase::Go, out)
            }
            Phase::Contexts if kind != answer::SHUTDOWN => self.send_option(Phase::Go, out),
            Phase::Go if unsupported => self.send_option(Phase::Name, out),
            _ => {
                let refusal = match (self.phase, kind) {
                    (Phase::StartTls, _) => Refusal::NoTls,
                    (_, answer::UNKNOWN) => Refusal::Unknown,
                    (_, answer::POLICY) => Refusal::Policy,
                    (_, answer::TLS_REQUIRED) => Refusal::TlsRequired,
                    (_, answer::SHUTDOWN) => Refusal::Shutdown,
                    (_, kind) => Refusal::Other(kind),
                };
                let text = String::from_utf8_lossy(&data[..data.len().min(200)]);
                let text = text.chars().filter(|character| !character.is_control()).collect();
                return Err(AskingError::Refused { kind: refusal, text });
            }
        }
        Ok(())
    }

    fn fact(&mut self, data: &[u8]) -> Result<(), AskingError> {
        let mut front = Front(data);
        let facts = &mut self.opened.facts;
        match front.u16() {
            Some(info::EXPORT) => {
                let (Some(bytes), Some(flags)) = (front.u64(), front.u16()) else {
                    return Err(AskingError::Broken("it does not state the size"));
                };
                (facts.bytes, facts.flags) = (bytes, flags);
            }
            Some(info::BLOCK_SIZE) => {
                let (Some(min), Some(preferred), Some(max)) = (front.u32(), front.u32(), front.u32()) else {
                    return Err(AskingError::Broken("it does not state its block sizes"));
                };
                if !min.is_power_of_two() || !preferred.is_power_of_two() || max < min {
                    return Err(AskingError::Broken("its block sizes make no sense"));
                }
                self.has_block_sizes = true;
                (facts.min_block, facts.preferred_block) = (min, preferred);
                facts.max_payload = max.min(PAYLOAD_BYTES_MAX);
            }
            Some(_) => {}
            None => return Err(AskingError::Broken("a fact without a kind")),
        }
        Ok(())
    }

    /// The answer to `EXPORT_NAME`: size, flags, and perhaps zeros.
    fn name(&mut self, bytes: &[u8]) -> Option<(usize, Progress)> {
        let mut front = Front(bytes);
        let (size, flags) = (front.u64()?, front.u16()?);
        let zeros = if self.leaves_out_zeros { 0 } else { 124 };
        front.bytes(zeros)?;
        self.phase = Phase::Done;
        (self.opened.facts.bytes, self.opened.facts.flags) = (size, flags);
        Some((10 + zeros, Progress::Ready(self.opened.clone())))
    }

    /// Whether the server stated its block sizes.
    pub fn has_block_sizes(&self) -> bool {
        self.has_block_sizes
    }
}
