//! The server's side of negotiation, as a state machine: one option in, an action out.
//!
//! ```text
//!                        STARTTLS                GO, EXPORT_NAME of an export that opens
//!     Plain  ---------------------->  Secured  ------------------------------------------->  transmission
//!       |        (nothing of before counts)            ^
//!       +----------------------------------------------+    unless TLS is required
//! ```
//!
//! One option:
//!
//! ```text
//!   "IHAVEOPT" (8)   option (4)   length (4)   data (length)
//! ```
//!
//! Invariants: bytes that came before TLS was agreed on count for nothing afterwards (a peer in the middle could have
//! sent them), so the caller must have no bytes left behind `STARTTLS`; an option longer than [`OPTION_BYTES_MAX`] is
//! skipped and answered, never collected; each option has exactly one last reply.
//!
//! Whether an export exists and may be opened is not known here: the caller decides, and lets [`Negotiation`] write it.

use super::{
    ALLOCATION_CONTEXT, ALLOCATION_ID, CLIENT_QUERY, EPOCH_CONTEXT, EPOCH_ID, ExportFacts, Front, GREETING_MAGIC,
    OPTION_MAGIC, OPTION_REPLY_MAGIC, STRING_BYTES_MAX, answer, greeting, info, option, put_string,
};

/// The longest option that is read: a name, and as many queries of contexts as anybody has.
pub const OPTION_BYTES_MAX: usize = 32 << 10;

/// An option longer than this ends the session instead of being skipped.
pub const OPTION_SKIP_BYTES_MAX: usize = 32 << 20;

/// Head of an option: magic, option, length.
pub const OPTION_HEAD_BYTES: usize = 16;

/// Zeros behind the answer to `EXPORT_NAME`, for clients that did not agree to leave them out.
const ZEROS: usize = 124;

/// Whether a listener has TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsPolicy {
    /// It has none.
    Off,
    /// Clients may use it.
    Offered,
    /// Clients have to use it before anything else.
    Required,
}

/// The greeting of the server.
pub fn greeting() -> [u8; 18] {
    let mut bytes = [0; 18];
    bytes[..8].copy_from_slice(&GREETING_MAGIC.to_be_bytes());
    bytes[8..16].copy_from_slice(&OPTION_MAGIC.to_be_bytes());
    bytes[16..].copy_from_slice(&(greeting::FIXED_NEWSTYLE | greeting::NO_ZEROES).to_be_bytes());
    bytes
}

/// What lies at the front of the bytes received.
#[derive(Debug, PartialEq, Eq)]
pub enum OptionFrame {
    /// Not a whole option yet.
    Incomplete,
    /// An option with so many bytes of data behind its head.
    Whole {
        /// Which option.
        option: u32,
        /// Bytes of data.
        length: usize,
    },
    /// An option that is too long: skip as many bytes, then answer [`answer::TOO_BIG`].
    TooLong {
        /// Which option.
        option: u32,
        /// Bytes of data.
        length: usize,
    },
    /// Not an option, or longer than anything: the session ends.
    Broken,
}

/// Looks for an option at the front of `bytes`.
pub fn frame(bytes: &[u8]) -> OptionFrame {
    let mut front = Front(bytes);
    match front.u64() {
        None => return OptionFrame::Incomplete,
        Some(OPTION_MAGIC) => {}
        Some(_) => return OptionFrame::Broken,
    }
    let (Some(option), Some(length)) = (front.u32(), front.u32()) else { return OptionFrame::Incomplete };
    match length as usize {
        length if length > OPTION_SKIP_BYTES_MAX => OptionFrame::Broken,
        length if length > OPTION_BYTES_MAX => OptionFrame::TooLong { option, length },
        length if length > front.0.len() => OptionFrame::Incomplete,
        length => OptionFrame::Whole { option, length },
    }
}

/// Why an export is looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// `EXPORT_NAME`: open it, without a way to refuse.
    Name,
    /// `INFO`.
    Look,
    /// `GO`: open it.
    Open,
}

/// What the caller has to do after an option. In any case it sends the bytes in `out`.
#[derive(Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing more.
    Continue,
    /// Write the list of exports: [`Negotiation::list`].
    List,
    /// Look an export up, and answer by [`Negotiation::opened`] or [`refuse`].
    Find {
        /// Its name.
        name: String,
        /// Why.
        purpose: Purpose,
        /// Whether name or description were requested.
        wants_names: bool,
    },
    /// Look an export up, and answer by [`Negotiation::contexts`] or [`refuse`].
    FindContexts {
        /// Its name.
        name: String,
        /// The requested contexts; none for all of a list.
        queries: Vec<String>,
        /// Whether they are to be in force.
        set: bool,
    },
    /// Begin TLS; no byte may have been received behind this option.
    StartTls,
    /// The session ends.
    End,
}

/// The metadata contexts in force.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Contexts {
    /// `base:allocation`.
    pub allocation: bool,
    /// `terrace:epoch`.
    pub epoch: bool,
    /// Who the client is: [`CLIENT_QUERY`]; 0 if it does not say.
    pub client: u64,
}

impl Contexts {
    /// Whether there are any.
    pub fn any(self) -> bool {
        self.allocation || self.epoch
    }
}

/// The state of one session.
#[derive(Debug)]
pub struct Negotiation {
    tls: TlsPolicy,
    is_secured: bool,
    leaves_out_zeros: bool,
    structured: bool,
    contexts: Contexts,
    /// The export that the contexts are for.
    contexts_of: String,
}

impl Negotiation {
    /// After the greeting, with the flags that the client sent. `None`: it does not speak the fixed newstyle, or has
    /// flags that nobody knows; the session ends.
    pub fn new(tls: TlsPolicy, client_flags: u32) -> Option<Negotiation> {
        let known = u32::from(greeting::FIXED_NEWSTYLE | greeting::NO_ZEROES);
        let accepted = client_flags & !known == 0 && client_flags & u32::from(greeting::FIXED_NEWSTYLE) != 0;
        accepted.then(|| Negotiation {
            tls,
            is_secured: false,
            leaves_out_zeros: client_flags & u32::from(greeting::NO_ZEROES) != 0,
            structured: false,
            contexts: Contexts::default(),
            contexts_of: String::new(),
        })
    }

    /// TLS has begun. Nothing that was agreed on before is in force.
    pub fn secured(&mut self) {
        self.is_secured = true;
        self.structured = false;
        self.contexts = Contexts::default();
        self.contexts_of.clear();
    }

    /// Whether structured replies were agreed on.
    pub fn is_structured(&self) -> bool {
        self.structured
    }

    /// The contexts in force for an export that was opened under this name.
    pub fn contexts_for(&self, name: &str) -> Contexts {
        if self.contexts_of == name { self.contexts } else { Contexts::default() }
    }

    /// The client sends an option.
    pub fn apply(&mut self, code: u32, data: &[u8], out: &mut Vec<u8>) -> Action {
        if self.tls == TlsPolicy::Required && !self.is_secured {
            match code {
                option::STARTTLS | option::ABORT => {}
                option::EXPORT_NAME => return Action::End,
                _ => return self.refused(code, answer::TLS_REQUIRED, "use TLS first", out),
            }
        }
        match code {
            option::EXPORT_NAME => match std::str::from_utf8(data) {
                Ok(name) if name.len() <= STRING_BYTES_MAX => {
                    Action::Find { name: name.to_owned(), purpose: Purpose::Name, wants_names: false }
                }
                _ => Action::End,
            },
            option::ABORT => {
                reply(code, answer::ACK, &[], out);
                Action::End
            }
            option::LIST if data.is_empty() => Action::List,
            option::LIST => self.refused(code, answer::INVALID, "a list has no data", out),
            option::STARTTLS => self.start_tls(data, out),
            option::INFO | option::GO => self.find(code, data, out),
            option::STRUCTURED_REPLY if data.is_empty() => {
                self.structured = true;
                reply(code, answer::ACK, &[], out);
                Action::Continue
            }
            option::STRUCTURED_REPLY => self.refused(code, answer::INVALID, "this option has no data", out),
            option::LIST_META_CONTEXT | option::SET_META_CONTEXT => self.find_contexts(code, data, out),
            _ => self.refused(code, answer::UNSUPPORTED, "unknown option", out),
        }
    }

    fn start_tls(&self, data: &[u8], out: &mut Vec<u8>) -> Action {
        if !data.is_empty() {
            return self.refused(option::STARTTLS, answer::INVALID, "this option has no data", out);
        }
        if self.is_secured {
            return self.refused(option::STARTTLS, answer::INVALID, "TLS has begun already", out);
        }
        if self.tls == TlsPolicy::Off {
            return self.refused(option::STARTTLS, answer::POLICY, "this server has no TLS", out);
        }
        reply(option::STARTTLS, answer::ACK, &[], out);
        Action::StartTls
    }

    fn find(&self, code: u32, data: &[u8], out: &mut Vec<u8>) -> Action {
        let mut front = Front(data);
        let parsed = front.string().and_then(|name| {
            let count = usize::from(front.u16()?);
            (front.0.len() == 2 * count).then_some(name)
        });
        let Some(name) = parsed else {
            return self.refused(code, answer::INVALID, "name and requests do not fit the length", out);
        };
        let mut wants_names = false;
        while let Some(kind) = front.u16() {
            wants_names |= matches!(kind, info::NAME | info::DESCRIPTION);
        }
        let purpose = if code == option::GO { Purpose::Open } else { Purpose::Look };
        Action::Find { name: name.to_owned(), purpose, wants_names }
    }

    fn find_contexts(&mut self, code: u32, data: &[u8], out: &mut Vec<u8>) -> Action {
        let set = code == option::SET_META_CONTEXT;
        if set {
            // Whatever becomes of this option, an earlier choice is over.
            self.contexts = Contexts::default();
            self.contexts_of.clear();
        }
        if !self.structured {
            return self.refused(code, answer::INVALID, "contexts need structured replies", out);
        }
        let mut front = Front(data);
        let parsed = front.string().and_then(|name| {
            let count = front.u32()?;
            // Each query has four bytes at least: a count that is larger than the data is refused at once.
            let queries = (0..count).map(|_| front.string().map(str::to_owned)).collect::<Option<Vec<_>>>()?;
            front.0.is_empty().then(|| (name.to_owned(), queries))
        });
        match parsed {
            Some((name, queries)) => Action::FindContexts { name, queries, set },
            None => self.refused(code, answer::INVALID, "name and queries do not fit the length", out),
        }
    }

    fn refused(&self, code: u32, kind: u32, text: &str, out: &mut Vec<u8>) -> Action {
        refuse(code, kind, text, out);
        Action::Continue
    }

    /// Writes the list of exports.
    pub fn list<'n>(&self, names: impl Iterator<Item = &'n str>, out: &mut Vec<u8>) {
        let mut data = Vec::new();
        for name in names {
            data.clear();
            put_string(&mut data, name);
            reply(option::LIST, answer::SERVER, &data, out);
        }
        reply(option::LIST, answer::ACK, &[], out);
    }

    /// Writes what an export is, which opens it unless it was only looked at.
    pub fn opened(&self, purpose: Purpose, wants_names: bool, facts: &ExportFacts, out: &mut Vec<u8>) {
        let code = match purpose {
            Purpose::Name => {
                out.extend_from_slice(&facts.bytes.to_be_bytes());
                out.extend_from_slice(&facts.flags.to_be_bytes());
                if !self.leaves_out_zeros {
                    out.extend_from_slice(&[0; ZEROS]);
                }
                return;
            }
            Purpose::Look => option::INFO,
            Purpose::Open => option::GO,
        };
        let mut data = Vec::new();
        data.extend_from_slice(&info::EXPORT.to_be_bytes());
        data.extend_from_slice(&facts.bytes.to_be_bytes());
        data.extend_from_slice(&facts.flags.to_be_bytes());
        reply(code, answer::INFO, &data, out);
        if wants_names {
            for (kind, text) in [(info::NAME, &facts.name), (info::DESCRIPTION, &facts.description)] {
                data.clear();
                data.extend_from_slice(&kind.to_be_bytes());
                data.extend_from_slice(text.as_bytes());
                reply(code, answer::INFO, &data, out);
            }
        }
        data.clear();
        data.extend_from_slice(&info::BLOCK_SIZE.to_be_bytes());
        for bytes in [facts.min_block, facts.preferred_block, facts.max_payload] {
            data.extend_from_slice(&bytes.to_be_bytes());
        }
        reply(code, answer::INFO, &data, out);
        reply(code, answer::ACK, &[], out);
    }

    /// Writes the contexts that an export has of those requested, and puts them in force if they are to be.
    pub fn contexts(&mut self, name: &str, queries: &[String], set: bool, has_epochs: bool, out: &mut Vec<u8>) {
        let code = if set { option::SET_META_CONTEXT } else { option::LIST_META_CONTEXT };
        // A namespace alone requests, in a list, all of it; without queries a list has everything.
        let wanted = |context: &str, namespace: &str| {
            queries.iter().any(|query| query == context || (!set && query == namespace)) || (!set && queries.is_empty())
        };
        let chosen = Contexts {
            allocation: wanted(ALLOCATION_CONTEXT, "base:"),
            epoch: has_epochs && wanted(EPOCH_CONTEXT, "terrace:"),
            client: queries.iter().find_map(|query| client_of(query)).unwrap_or(0),
        };
        let each = [(chosen.allocation, ALLOCATION_ID, ALLOCATION_CONTEXT), (chosen.epoch, EPOCH_ID, EPOCH_CONTEXT)];
        for (_, id, context) in each.iter().filter(|(is_chosen, ..)| *is_chosen) {
            let mut data = if set { id.to_be_bytes() } else { [0; 4] }.to_vec();
            data.extend_from_slice(context.as_bytes());
            reply(code, answer::META_CONTEXT, &data, out);
        }
        reply(code, answer::ACK, &[], out);
        if set {
            self.contexts = chosen;
            name.clone_into(&mut self.contexts_of);
        }
    }
}

/// Who a client is, if the query says that.
fn client_of(query: &str) -> Option<u64> {
    let digits = query.strip_prefix(CLIENT_QUERY)?;
    let is_number = digits.len() == 16 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    is_number.then(|| u64::from_str_radix(digits, 16).ok()).flatten()
}

/// Writes an error as the last reply to an option.
pub fn refuse(code: u32, kind: u32, text: &str, out: &mut Vec<u8>) {
    reply(code, kind, text.as_bytes(), out);
}

/// Writes one reply to an option.
pub(crate) fn reply(code: u32, kind: u32, data: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&OPTION_REPLY_MAGIC.to_be_bytes());
    out.extend_from_slice(&code.to_be_bytes());
    out.extend_from_slice(&kind.to_be_bytes());
    out.extend_from_slice(&(data.len() as u32).to_be_bytes());
    out.extend_from_slice(data);
}
