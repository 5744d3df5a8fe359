//! A connection from its greeting to its end: the shell around negotiation, then a session.
//!
//! Negotiation has a time limit as a whole, a bound of options, and holds at most one option in memory: a client that
//! does half of it and waits loses its place. It counts as proven once it has opened an export.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use node::{OpenConnection, Permit};
use parking_lot::RwLock;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::TlsAcceptor;

use super::export::{Session, split_epoch, unknown};
use super::origin::Origin;
use super::pool::{BufferPool, Share};
use super::registry::Registry;
use super::rights::{Rights, Visitor};
use super::transmission::Transmission;
use crate::protocol::negotiation::{
    self, Action, Contexts, Negotiation, OPTION_HEAD_BYTES, OptionFrame, Purpose, TlsPolicy, refuse,
};
use crate::protocol::{answer, export_flag};
use crate::socket::{Carrier, Socket};

/// Options of one negotiation.
const OPTIONS_MAX: usize = 2000;

/// How long the end of a TLS session may take to be sent.
const GOODBYE_TIME: Duration = Duration::from_secs(1);

/// What all connections of a listener share.
#[derive(Clone)]
pub(super) struct Shared {
    pub(super) registry: Arc<Registry>,
    /// The certificates in force for new connections.
    pub(super) tls: Arc<RwLock<Option<TlsAcceptor>>>,
    pub(super) policy: TlsPolicy,
    pub(super) handshake: Duration,
    pub(super) rights: Option<Arc<Rights>>,
}

/// What was negotiated.
struct Agreed {
    session: Session,
    structured: bool,
    contexts: Contexts,
    epoch: u64,
    /// What the client sent behind it.
    rest: Vec<u8>,
}

/// How a part of negotiation ended.
enum Outcome {
    Opened(Agreed),
    StartTls(Negotiation),
    Ended,
}

/// Serves a connection to its end.
pub(super) async fn serve(
    shared: Shared,
    (socket, origin): (Socket, Origin),
    mut permit: Permit,
    pool: Arc<BufferPool>,
) {
    let mut ending = permit.ending();
    let handshake = tokio::time::timeout(shared.handshake, negotiate(&shared, socket, origin, &permit));
    let (carried, agreed) = tokio::select! {
        // It had too little time, or its place is needed: closing it is all the answer there is.
        _ = ending.ended() => return,
        done = handshake => match done {
            Ok(Ok(Some(opened))) => opened,
            Ok(Ok(None)) => return,
            Ok(Err(error)) => return tracing::debug!(%error, "a client left during negotiation"),
            Err(_) => return permit.note(node::Reason::Handshake, ""),
        },
    };
    permit.prove();
    let noted = (pool, Arc::clone(permit.connection()));
    match carried {
        Carried::Plain(socket) => transmit(socket, agreed, noted, &shared).await,
        Carried::Tls(stream) => transmit(*stream, agreed, noted, &shared).await,
    }
}

enum Carried {
    Plain(Socket),
    Tls(Box<tokio_rustls::server::TlsStream<Socket>>),
}

async fn negotiate(
    shared: &Shared,
    mut socket: Socket,
    origin: Origin,
    permit: &Permit,
) -> io::Result<Option<(Carried, Agreed)>> {
    socket.write_all(&negotiation::greeting()).await?;
    let flags = socket.read_u32().await?;
    let Some(state) = Negotiation::new(shared.policy, flags) else { return Ok(None) };
    if let Origin::Local(uid) = origin {
        permit.connection().of_user(|| uid.map_or_else(|| "not known".to_owned(), |uid| format!("user {uid}")));
    }
    let visitor = Visitor::new(shared.rights.clone(), origin);
    let mut state = match options((shared, &visitor, permit), &mut socket, state).await? {
        Outcome::Opened(agreed) => return Ok(Some((Carried::Plain(socket), agreed))),
        Outcome::StartTls(state) => state,
        Outcome::Ended => return Ok(None),
    };
    let Some(acceptor) = shared.tls.read().clone() else { return Ok(None) };
    let mut stream = match acceptor.accept(socket).await {
        Ok(stream) => stream,
        Err(error) => {
            permit.note(node::Reason::Handshake, &format!("{origin}: {error}"));
            return Ok(None);
        }
    };
    state.secured();
    permit.connection().secured();
    let visitor = visitor.secured(stream.get_ref().1.peer_certificates());
    match options((shared, &visitor, permit), &mut stream, state).await? {
        Outcome::Opened(agreed) => Ok(Some((Carried::Tls(Box::new(stream)), agreed))),
        Outcome::StartTls(_) | Outcome::Ended => Ok(None),
    }
}

/// What a connection is answered by: what all share, who it is, and its place.
type At<'a> = (&'a Shared, &'a Visitor, &'a Permit);

/// Answers options until an export is open, or TLS begins.
async fn options<S: Carrier>(at: At<'_>, stream: &mut S, mut state: Negotiation) -> io::Result<Outcome> {
    let (mut input, mut out) = (Vec::new(), Vec::new());
    for _ in 0..OPTIONS_MAX {
        let Some((code, length)) = next_option(stream, &mut input, &mut out).await? else { return Ok(Outcome::Ended) };
        let data = input[OPTION_HEAD_BYTES..OPTION_HEAD_BYTES + length].to_vec();
        input.drain(..OPTION_HEAD_BYTES + length);
        let action = state.apply(code, &data, &mut out);
        let mut opened = None;
        match action {
            Action::Continue => {}
            Action::List => match list(at) {
                Ok(names) => state.list(names.iter().map(String::as_str), &mut out),
                Err((kind, text)) => refuse(code, kind, &text, &mut out),
            },
            Action::Find { name, purpose, wants_names } => {
                match find(at, &name, purpose, &mut state, wants_names, &mut out).await {
                    Ok(session) => opened = session.map(|(session, epoch)| (session, epoch, name)),
                    Err(_) if purpose == Purpose::Name => return Ok(Outcome::Ended),
                    Err((kind, text)) => refuse(code, kind, &text, &mut out),
                }
            }
            Action::FindContexts { name, queries, set } => match look(at, &name) {
                Ok(has_epochs) => state.contexts(&name, &queries, set, has_epochs, &mut out),
                Err((kind, text)) => refuse(code, kind, &text, &mut out),
            },
            Action::StartTls => {
                send(stream, &mut out).await?;
                // Bytes behind the option came without TLS: whoever put them there must gain nothing.
                return Ok(if input.is_empty() { Outcome::StartTls(state) } else { Outcome::Ended });
            }
            Action::End => {
                send(stream, &mut out).await?;
                return Ok(Outcome::Ended);
            }
        }
        send(stream, &mut out).await?;
        if let Some((session, epoch, name)) = opened {
            list_opened(at, &session);
            let (structured, contexts) = (state.is_structured(), state.contexts_for(&name));
            return Ok(Outcome::Opened(Agreed { session, structured, contexts, epoch, rest: input }));
        }
    }
    Ok(Outcome::Ended)
}

/// Notes who has opened which export, for the list of the node's connections.
fn list_opened((_, visitor, permit): At<'_>, session: &Session) {
    let connection = permit.connection();
    connection.about(&session.export.facts.name);
    if let Some(role) = visitor.role_id() {
        connection.proven_as(role);
    }
}

/// Receives until a whole option is at the front of `input`; options that are too long are skipped and refused.
async fn next_option<S: Carrier>(
    stream: &mut S,
    input: &mut Vec<u8>,
    out: &mut Vec<u8>,
) -> io::Result<Option<(u32, usize)>> {
    loop {
        match negotiation::frame(input) {
            OptionFrame::Whole { option, length } => return Ok(Some((option, length))),
            OptionFrame::Broken => return Ok(None),
            OptionFrame::TooLong { option, length } => {
                let mut left = length.saturating_sub(input.len() - OPTION_HEAD_BYTES);
                let here = (OPTION_HEAD_BYTES + length).min(input.len());
                input.drain(..here);
                while left > 0 {
                    let mut chunk = [0; 4096];
                    let wanted = left.min(chunk.len());
                    let count = stream.read(&mut chunk[..wanted]).await?;
                    if count == 0 {
                        return Ok(None);
                    }
                    left -= count;
                }
                refuse(option, answer::TOO_BIG, "the option is too long", out);
                send(stream, out).await?;
            }
            OptionFrame::Incomplete => {
                let mut chunk = [0; 4096];
                let count = stream.read(&mut chunk).await?;
                if count == 0 {
                    return Ok(None);
                }
                input.extend_from_slice(&chunk[..count]);
            }
        }
    }
}

async fn send<S: Carrier>(stream: &mut S, out: &mut Vec<u8>) -> io::Result<()> {
    stream.write_all(out).await?;
    stream.flush().await?;
    out.clear();
    Ok(())
}

/// The names of the exports that the client may see.
fn list((shared, visitor, permit): At<'_>) -> Result<Vec<String>, (u32, String)> {
    visitor.check_known(permit)?;
    let names = shared.registry.names();
    Ok(visitor.listed(names.iter().map(String::as_str)).into_iter().map(str::to_owned).collect())
}

/// Whether the export of this name, with its epoch, may be looked at, and whether it has epochs.
fn look(at: At<'_>, name: &str) -> Result<bool, (u32, String)> {
    let (export, epoch) = parts(at, name)?;
    export.look(epoch, at.1.allowed(&export.facts.name).write)?;
    Ok(export.settings.epochs.is_some())
}

type Found = (Arc<super::export::Served>, Option<u64>);

/// The export of a name that the client may read. Its right is asked for first: without it nothing is looked up.
fn parts((shared, visitor, permit): At<'_>, name: &str) -> Result<Found, (u32, String)> {
    visitor.check_known(permit)?;
    let (plain, epoch) = split_epoch(name).ok_or_else(unknown)?;
    if plain.is_empty() {
        return Ok((shared.registry.only(|name| visitor.allowed(name).read).ok_or_else(unknown)?, epoch));
    }
    if !visitor.allowed(plain).read {
        visitor.log_refused(plain, permit);
        return Err(unknown());
    }
    Ok((shared.registry.get(plain).ok_or_else(unknown)?, epoch))
}

/// Looks an export up, opens it if that is the purpose, and writes the answer.
async fn find(
    at: At<'_>,
    name: &str,
    purpose: Purpose,
    state: &mut Negotiation,
    wants_names: bool,
    out: &mut Vec<u8>,
) -> Result<Option<(Session, u64)>, (u32, String)> {
    let (export, epoch) = parts(at, name)?;
    let (visitor, allowed) = (at.1, at.1.allowed(&export.facts.name));
    if purpose == Purpose::Look {
        export.look(epoch, allowed.write)?;
        state.opened(purpose, wants_names, export.facts_for(epoch, allowed.write), out);
        return Ok(None);
    }
    let session = export.open(epoch, state.contexts_for(name).client, visitor).await?;
    visitor.record_opened(&export.facts.name, session.facts().has(export_flag::READ_ONLY), allowed).await?;
    state.opened(purpose, wants_names, session.facts(), out);
    Ok(Some((session, epoch.unwrap_or(0))))
}

async fn transmit<S: Carrier>(
    stream: S,
    agreed: Agreed,
    (pool, connection): (Arc<BufferPool>, Arc<OpenConnection>),
    shared: &Shared,
) {
    let Agreed { session, structured, contexts, epoch, rest } = agreed;
    let share = Share::new(&shared.registry.budget);
    let transmission =
        Transmission::new(stream, session, (structured, contexts, epoch), (pool, share, connection), rest);
    if let Some(mut stream) = transmission.run().await {
        let _ = tokio::time::timeout(GOODBYE_TIME, stream.shutdown()).await;
    }
}
