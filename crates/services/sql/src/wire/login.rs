//! From the first packet to the first `ReadyForQuery`: TLS, cancel requests, access rules, authentication, the client's
//! parameters.
//!
//! | parameter | accepted | otherwise |
//! |---|---|---|
//! | user | a role that may log in and has CONNECT | fails like a wrong password; 42501 |
//! | database | the server's name, `postgres`, the user's own name | 3D000 |
//! | client_encoding | UTF8, SQL_ASCII | 22023 |
//! | DateStyle | ISO, ... | 22023 |
//! | TimeZone | UTC by any of its names | 0A000: all results that depend on it would be in another zone |
//! | extra_float_digits, application_name | any: numbers are sent in full | |
//! | replication | off | 0A000 |
//! | options, others | passed to the session as SET | the session's error |
//!
//! Protocols 3.0 and 3.2 are supported; a client that requests a later one is notified and may continue.
//!
//! Authentication is SCRAM, unless a directory (LDAP) checks passwords: that needs them as they are, and asks everybody alike for
//! them, whoever has which password and whether there is such a user; but only inside TLS or from this machine, and not where an
//! access rule demands `scram`.
//!
//! The flow is ours and the messages are pgwire's. pgwire's own SCRAM handler needs the salted password, with which
//! anyone who reads it can log in; PostgreSQL's verifiers do not allow that (see `scram`).

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use node::audit::AuditEntry;
use node::connections::ConnectionActivity;
use node::identity::{
    AccessMethod, AccessPort, Action, Caller, Connected, Denied, LoginError, Object, Proof, RightsView, Visit,
};
use node::{Permit, TlsInForce, certificate};
use pgwire::messages::response::{GssEncResponse, ReadyForQuery, SslResponse, TransactionStatus};
use pgwire::messages::startup::{
    Authentication, BackendKeyData, NegotiateProtocolVersion, ParameterStatus, PasswordMessageFamily, Startup,
};
use pgwire::messages::{ProtocolVersion, SslNegotiationMetaMessage};

use super::activity::Activity;
use super::connection::Connection;
use super::connection_error::ConnectionError;
use super::error_response::ErrorResponse;
use super::frame_guard;
use super::option_words::words;
use super::registry::Registered;
use super::reply_text::sent;
use super::scram::{self, ChannelBinding, ScramError};
use super::server_options::WireOptions;
use super::server_state::ServerState;
use super::{Message, Reply};
use crate::Session;
use crate::engine::session::settings;
use crate::recording;

/// The PostgreSQL version whose protocol and catalogs this server provides.
pub(super) const SERVER_VERSION: &str = concat!("15.0 (Terrace ", env!("CARGO_PKG_VERSION"), ")");

/// Messages that may come before the login: a request for TLS, one for GSSAPI, and the startup.
const OPENING_MESSAGES: u32 = 3;

/// A wait that a login goes through here: passwords of others are being checked. Longer ones are told to the client.
const SHORT_WAIT: Duration = Duration::from_millis(100);

/// How often it does.
const SHORT_WAITS: u32 = 50;

/// The result of a login.
pub(super) struct Entered {
    pub(super) session: Session,
    pub(super) registered: Registered,
    /// Counts against the role's limit of connections.
    pub(super) connected: Connected,
}

/// How a connection begins.
struct Opening {
    startup: Startup,
    /// What TLS showed; `None`: there is none.
    secured: Option<Secured>,
}

/// What a TLS handshake showed.
struct Secured {
    /// The hash of our certificate, to which a login can be bound.
    end_point: Option<Arc<[u8]>>,
    /// The names in the client's certificate; none without one.
    names: Vec<String>,
}

/// Answers first packets until the startup; `None` if there was only a cancel request.
async fn open(
    connection: &mut Connection,
    tls: Option<TlsInForce>,
    shared: &ServerState,
) -> Result<Option<Opening>, ConnectionError> {
    let (mut secured, mut wishes) = (None, 0);
    loop {
        let message = connection.message().await?;
        wishes += 1;
        if wishes > OPENING_MESSAGES {
            return Err(ConnectionError::fatal(ErrorResponse::protocol("expected a startup packet")));
        }
        match message {
            Message::SslNegotiation(SslNegotiationMetaMessage::PostgresSsl(_)) => match &tls {
                Some(tls) if secured.is_none() => {
                    secured = Some(begin_tls(connection, tls, shared.options.message_bytes_max).await?);
                }
                _ => answer(connection, Reply::SslResponse(SslResponse::Refuse)).await?,
            },
            Message::SslNegotiation(_) => answer(connection, Reply::GssEncResponse(GssEncResponse::Refuse)).await?,
            Message::CancelRequest(request) => {
                shared.registry.cancel(request.pid, &request.secret_key);
                return Ok(None);
            }
            Message::Startup(startup) => return Ok(Some(Opening { startup, secured })),
            _ => return Err(ConnectionError::fatal(ErrorResponse::protocol("expected a startup packet"))),
        }
    }
}

/// Logs a client in; `None` if there was only a cancel request.
pub(super) async fn log_in(
    connection: &mut Connection,
    (peer, permit): (SocketAddr, &mut Permit),
    tls: Option<TlsInForce>,
    shared: &ServerState,
) -> Result<Option<Entered>, ConnectionError> {
    let Some(Opening { startup, secured }) = open(connection, tls, shared).await? else { return Ok(None) };
    let parameters = &startup.parameters;
    let named = |wanted: &str| parameters.get(wanted).map(String::as_str);
    if secured.is_none() && shared.options.tls.as_ref().is_some_and(|tls| tls.required) {
        let error_response = ErrorResponse::new("28000", "connections without TLS are not accepted");
        return Err(ConnectionError::fatal(error_response.with_hint("Connect with sslmode=require.")));
    }
    let user = named("user").filter(|user| !user.is_empty());
    let user = user.ok_or_else(|| {
        ConnectionError::fatal(ErrorResponse::new("28000", "no PostgreSQL user name specified in startup packet"))
    })?;
    let version = negotiate(connection, &startup).await?;
    let visitor = Visitor { peer, user, secured: secured.as_ref() };
    let database = named("database").filter(|name| !name.is_empty()).unwrap_or(user);
    let method = admit(visitor, database, shared).await?;
    let caller = authenticate(connection, visitor, method, shared).await?;
    check(parameters, user, &shared.options).map_err(ConnectionError::fatal)?;
    let is_administrator = may_connect(&caller, shared).map_err(ConnectionError::fatal)?;
    permit.enter(shared.options.sessions_of(is_administrator)).map_err(|_| no_place())?;
    let connected = shared.guard.connect(&caller).map_err(|error| ConnectionError::fatal(refused(&error, user)))?;
    let session = shared.engine.session_of(Arc::clone(&shared.guard), caller.clone());
    let mut session = session.map_err(|error| ConnectionError::fatal(ErrorResponse::from(&error)))?;
    for (name, value) in settings(parameters) {
        set(&mut session, &name, &value).await?;
    }
    let application = named("application_name").unwrap_or("");
    let activity = Activity::new((user, session.number()), application, peer);
    let registered = shared.registry.register(session.canceller(), (activity, caller.clone()), version);
    let registered =
        registered.map_err(|error| ConnectionError::fatal(ErrorResponse::new("58000", error.to_string())))?;
    listed(permit, (&caller, secured.is_some()), &registered.activity);
    // Rights may have changed before it was registered: then nobody would end it.
    let view = shared.guard.view();
    view.holds(&caller).map_err(|error| ConnectionError::fatal(ErrorResponse::new("57P01", error.to_string())))?;
    recorded(&caller, &view, shared);
    greet(connection, (user, is_administrator), application, &registered).await?;
    connection.logged_in(Some(session.account()));
    Ok(Some(Entered { session, registered, connected }))
}

/// Notes who logged in, for the list of the node's connections.
fn listed(permit: &Permit, (caller, is_secure): (&Caller, bool), activity: &Arc<Activity>) {
    let connection = permit.connection();
    connection.proven_as(caller.session());
    if is_secure {
        connection.secured();
    }
    activity.counts_for(connection);
    let activity: Arc<dyn ConnectionActivity> = Arc::clone(activity) as Arc<dyn ConnectionActivity>;
    connection.does(activity);
}

/// Records a login. It is no use of a right that must be recorded before: a full audit keeps nobody out, who can then see why.
fn recorded(caller: &Caller, view: &RightsView, shared: &ServerState) {
    let Some(audit) = &shared.engine.options.audit else { return };
    let proof = match caller.proof() {
        Proof::Trust => "trust",
        Proof::Certificate(_) => "certificate",
        Proof::Ldap(_) => "ldap",
        Proof::Oidc(_) => "oidc",
        _ => "password",
    };
    if let Err(error) = audit.record_bounded(recording::entry("login", "", (view, caller)).with("proof", proof)) {
        tracing::warn!(%error, "a login is not in the audit");
    }
}

/// Whether a caller is an administrator. Errors: 42501 if it may not use SQL.
pub(super) fn may_connect(caller: &Caller, shared: &ServerState) -> Result<bool, ErrorResponse> {
    let view = shared.guard.view();
    match view.may(caller, Action::SqlConnect, Object::Node) {
        Ok(_) => Ok(view.is_administrator(caller.session())),
        Err(denied @ Denied::MustChangePassword) => Err(ErrorResponse::new("28000", denied.to_string())),
        Err(_) => {
            let database = &shared.options.database;
            let response = ErrorResponse::new("42501", format!("permission denied for database \"{database}\""));
            Err(response.with_hint("User does not have CONNECT privilege."))
        }
    }
}

/// The error of a login.
fn refused(error: &LoginError, user: &str) -> ErrorResponse {
    match error {
        LoginError::Wait(_) => ErrorResponse::new("28P01", error.to_string()),
        LoginError::Refused(_) | LoginError::Scram(ScramError::WrongPassword) => {
            ErrorResponse::new("28P01", format!("password authentication failed for user \"{user}\""))
        }
        LoginError::TooMany => ErrorResponse::new("53300", format!("too many connections for role \"{user}\"")),
        LoginError::Memory => ErrorResponse::new("53200", error.to_string()),
        LoginError::Unchecked => ErrorResponse::new("57P03", error.to_string()),
        LoginError::Scram(ScramError::Binding(_)) => ErrorResponse::new("28000", error.to_string()),
        LoginError::Scram(ScramError::Randomness) => ErrorResponse::new("58000", error.to_string()),
        LoginError::Scram(other) => ErrorResponse::protocol(other.to_string()),
    }
}

fn no_place() -> ConnectionError {
    let error_response = ErrorResponse::new("53300", "sorry, too many clients already");
    ConnectionError::fatal(
        error_response.with_hint("See `terrace status`: the service, or your address, has reached its limit."),
    )
}

/// Sends a reply, and flushes it.
async fn answer(connection: &mut Connection, reply: Reply) -> Result<(), ConnectionError> {
    connection.reply(reply).await?;
    connection.flush().await
}

/// The protocol version to use: the client's, or the newest that is supported. The client is notified if that is not
/// the version it requested, and of requested options that are not known.
async fn negotiate(connection: &mut Connection, startup: &Startup) -> Result<ProtocolVersion, ConnectionError> {
    let newest = ProtocolVersion::PROTOCOL3_2;
    let unknown: Vec<String> = startup.parameters.keys().filter(|name| name.starts_with("_pq_.")).cloned().collect();
    let version = match startup.protocol_number_minor {
        // There is no 3.1; PostgreSQL treats it as 3.0.
        0 | 1 => ProtocolVersion::PROTOCOL3_0,
        _ => newest,
    };
    if startup.protocol_number_minor > newest.version_number().1 || !unknown.is_empty() {
        let told = NegotiateProtocolVersion::new(version.into(), unknown);
        connection.reply(Reply::NegotiateProtocolVersion(told)).await?;
    }
    Ok(version)
}

async fn begin_tls(connection: &mut Connection, tls: &TlsInForce, limit: usize) -> Result<Secured, ConnectionError> {
    answer(connection, Reply::SslResponse(SslResponse::Accept)).await?;
    let plain = std::mem::replace(connection, Connection::new(Box::new(tokio::io::empty()), limit));
    let stream = tls.acceptor.accept(plain.into_socket()?).await?;
    let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
    let names = shown.map(|own| certificate::names(own)).unwrap_or_default();
    *connection = Connection::new(Box::new(stream), limit);
    Ok(Secured { end_point: tls.end_point.clone(), names })
}

/// Who connects, before it has proven anything.
#[derive(Clone, Copy)]
struct Visitor<'a> {
    peer: SocketAddr,
    user: &'a str,
    secured: Option<&'a Secured>,
}

/// Asks the access rules. Returns what is demanded. Errors: 28000, which is recorded.
async fn admit(
    Visitor { peer, user, secured }: Visitor<'_>,
    database: &str,
    shared: &ServerState,
) -> Result<AccessMethod, ConnectionError> {
    let visit = Visit { port: AccessPort::Sql, address: Some(peer.ip()), tls: secured.is_some() };
    let refusal = match shared.guard.admit_role(visit, user) {
        Ok(method) => return Ok(method),
        Err(refusal) => refusal,
    };
    if let Some(left_out) = refusal.recorded {
        record((peer, user, None), refusal.to_string(), left_out, shared).await;
    }
    let told = refusal.worded(&format!(", database \"{database}\""));
    Err(ConnectionError::fatal(ErrorResponse::new("28000", told)))
}

async fn authenticate(
    connection: &mut Connection,
    visitor: Visitor<'_>,
    method: AccessMethod,
    shared: &ServerState,
) -> Result<Caller, ConnectionError> {
    let Visitor { peer, user, .. } = visitor;
    let is_trusted = method == AccessMethod::Trust || (method == AccessMethod::Allow && shared.options.trust);
    if is_trusted && let Ok(caller) = shared.guard.trusted(user, peer.ip()) {
        connection.reply(Reply::Authentication(Authentication::Ok)).await?;
        return Ok(caller);
    }
    if method == AccessMethod::Certificate {
        let caller = match by_certificate(visitor, shared) {
            Ok(caller) => caller,
            Err(error) => {
                failed(error, (peer, user, "certificate"), shared).await;
                let told = format!("certificate authentication failed for user \"{user}\"");
                return Err(ConnectionError::fatal(ErrorResponse::new("28000", told)));
            }
        };
        connection.reply(Reply::Authentication(Authentication::Ok)).await?;
        return Ok(caller);
    }
    // Who is beyond this machine and without TLS sends no password that could be read on the way.
    let is_private = visitor.secured.is_some() || peer.ip().to_canonical().is_loopback();
    if shared.guard.takes_clear_passwords() && is_private && method != AccessMethod::Scram {
        return by_clear_password(connection, visitor, shared).await;
    }
    by_password(connection, visitor, shared).await
}

/// A login by a password that is sent as it is: the only one that a directory can check.
async fn by_clear_password(
    connection: &mut Connection,
    Visitor { peer, user, .. }: Visitor<'_>,
    shared: &ServerState,
) -> Result<Caller, ConnectionError> {
    answer(connection, Reply::Authentication(Authentication::CleartextPassword)).await?;
    let PasswordMessageFamily::Raw(body) = password(connection).await? else {
        return Err(ConnectionError::fatal(ErrorResponse::protocol("expected a password")));
    };
    let given = frame_guard::clear_password(&body).map_err(ConnectionError::fatal)?;
    let (mut waits, begun) = (0, Instant::now());
    let error = loop {
        match shared.guard.log_in(user, given, Some(peer.ip())).await {
            Ok(caller) => {
                connection.reply(Reply::Authentication(Authentication::Ok)).await?;
                return Ok(caller);
            }
            // Others' passwords are being checked: that is no failure.
            Err(LoginError::Wait(time)) if time <= SHORT_WAIT && waits < SHORT_WAITS => {
                waits += 1;
                tokio::time::sleep(time).await;
            }
            Err(error) => break error,
        }
    };
    if matches!(error, LoginError::Refused(_)) {
        shared.guard.pause_refused(begun).await;
    }
    Err(failed(error, (peer, user, "password"), shared).await)
}

/// A login by SCRAM, bound to the server's certificate if the client wants it.
async fn by_password(
    connection: &mut Connection,
    Visitor { peer, user, secured }: Visitor<'_>,
    shared: &ServerState,
) -> Result<Caller, ConnectionError> {
    let end_point = secured.and_then(|secured| secured.end_point.as_deref());
    // The better one first, as PostgreSQL does.
    let bound = end_point.map(|_| scram::MECHANISM_PLUS.to_owned());
    let mechanisms = Authentication::SASL(bound.into_iter().chain([scram::MECHANISM.to_owned()]).collect());
    answer(connection, Reply::Authentication(mechanisms)).await?;
    let (mechanism, first) = sasl_first(password(connection).await?).map_err(ConnectionError::fatal)?;
    let binding = match (mechanism.as_str(), end_point) {
        (scram::MECHANISM_PLUS, Some(hash)) => ChannelBinding::EndPoint(hash),
        (scram::MECHANISM, Some(_)) => ChannelBinding::Unused,
        (scram::MECHANISM, None) => ChannelBinding::Unoffered,
        _ => {
            let error_response = ErrorResponse::protocol("client selected an invalid SASL authentication mechanism");
            return Err(ConnectionError::fatal(error_response));
        }
    };
    // SCRAM is some hashes here: the client has the work of the password.
    let (question, login) = match shared.guard.scram(user, (&first, binding), Some(peer.ip())) {
        Ok(begun) => begun,
        Err(error) => return Err(failed(error, (peer, user, "password"), shared).await),
    };
    answer(connection, Reply::Authentication(Authentication::SASLContinue(question.into()))).await?;
    let last = password(connection).await?.into_sasl_response().map_err(unreadable).map_err(ConnectionError::fatal)?;
    let (signature, caller) = match login.finish(&last.data) {
        Ok(entered) => entered,
        Err(error) => return Err(failed(error, (peer, user, "password"), shared).await),
    };
    connection.reply(Reply::Authentication(Authentication::SASLFinal(signature.into()))).await?;
    connection.reply(Reply::Authentication(Authentication::Ok)).await?;
    Ok(caller)
}

/// A login by the certificate that TLS verified: its role has to be the user that the client names.
fn by_certificate(visitor: Visitor<'_>, shared: &ServerState) -> Result<Caller, LoginError> {
    let Visitor { peer, user, secured } = visitor;
    let names = secured.map(|secured| secured.names.as_slice()).unwrap_or_default();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    shared.guard.certificate_of(user, &names, Some(peer.ip()))
}

/// The error of a login that failed, which is recorded. What the guard has not looked at, or could not judge, is no failure.
async fn failed(
    error: LoginError,
    (peer, user, proof): (SocketAddr, &str, &str),
    shared: &ServerState,
) -> ConnectionError {
    let why = match &error {
        LoginError::Refused(why) => Some(format!("{why:?}")),
        LoginError::Scram(ScramError::Binding(why)) => Some((*why).to_owned()),
        _ => None,
    };
    if let Some(why) = why
        && let Some(left_out) = shared.guard.failure_to_record()
    {
        if matches!(error, LoginError::Scram(_)) {
            tracing::warn!(user, from = %peer.ip(), %error, left_out, "a login failed: somebody may be between");
        }
        record((peer, user, Some(proof)), why, left_out, shared).await;
    }
    ConnectionError::fatal(refused(&error, user))
}

/// Enters a login that failed into the audit, with what was to prove it; none where the access rules did not let it come so far.
async fn record(
    (peer, user, proof): (SocketAddr, &str, Option<&str>),
    why: String,
    left_out: u64,
    shared: &ServerState,
) {
    let Some(audit) = shared.engine.options.audit.as_ref() else { return };
    let entry = AuditEntry::failed_login("sql", user, peer.ip().to_string(), why, left_out);
    let entry = proof.into_iter().fold(entry, |entry, proof| entry.with("proof", proof));
    // It is refused with an entry and without.
    if let Err(error) = audit.write(entry).await {
        tracing::warn!(%error, "a failed login is not in the audit");
    }
}

async fn password(connection: &mut Connection) -> Result<PasswordMessageFamily, ConnectionError> {
    match connection.message().await? {
        Message::PasswordMessageFamily(answer) => Ok(answer),
        Message::Terminate(_) => Err(ConnectionError::Closed),
        _ => Err(ConnectionError::fatal(ErrorResponse::protocol("expected an answer of the login"))),
    }
}

/// The mechanism of the client's first answer, and its data.
fn sasl_first(answer: PasswordMessageFamily) -> Result<(String, Bytes), ErrorResponse> {
    if let PasswordMessageFamily::Raw(body) = &answer {
        frame_guard::sasl_first(body)?;
    }
    let first = answer.into_sasl_initial_response().map_err(unreadable)?;
    Ok((first.auth_method, first.data.unwrap_or_default()))
}

fn unreadable(error: pgwire::error::PgWireError) -> ErrorResponse {
    ErrorResponse::protocol(error.to_string())
}

/// Refuses parameters that are not supported.
fn check(parameters: &BTreeMap<String, String>, user: &str, options: &WireOptions) -> Result<(), ErrorResponse> {
    let invalid = |name: &str, value: &str| {
        ErrorResponse::new("22023", format!("invalid value for parameter \"{name}\": \"{value}\""))
    };
    for (name, value) in parameters {
        let lower = value.to_ascii_lowercase();
        match name.to_ascii_lowercase().as_str() {
            "database" if ![options.database.as_str(), "postgres", user, ""].contains(&value.as_str()) => {
                let error_response = ErrorResponse::new("3D000", format!("database \"{value}\" does not exist"));
                return Err(error_response.with_hint(format!("There is one database: {}.", options.database)));
            }
            "client_encoding" if !["utf8", "utf-8", "unicode", "sql_ascii"].contains(&lower.trim_matches('\'')) => {
                return Err(invalid(name, value).with_hint("Text is sent and read as UTF8."));
            }
            "datestyle" if !lower.starts_with("iso") => {
                return Err(invalid(name, value).with_hint("Dates are written in ISO style."));
            }
            "timezone" if !settings::is_utc(value) => {
                let error_response = ErrorResponse::new("0A000", format!("time zone \"{value}\" is not supported"));
                return Err(error_response.with_hint(settings::ZONE_HINT));
            }
            "replication" if !["off", "false", "no", "0"].contains(&lower.as_str()) => {
                return Err(ErrorResponse::new("0A000", "replication connections are not supported"));
            }
            _ => {}
        }
    }
    Ok(())
}

/// The parameters that the session has to set.
fn settings(parameters: &BTreeMap<String, String>) -> Vec<(String, String)> {
    const KNOWN: [&str; 9] = [
        "user",
        "database",
        "client_encoding",
        "datestyle",
        "timezone",
        "extra_float_digits",
        "application_name",
        "replication",
        "options",
    ];
    let mut all = Vec::new();
    for (name, value) in parameters {
        let lower = name.to_ascii_lowercase();
        if lower == "options" {
            // -c name=value, or --name=value
            for word in &words(value) {
                let word = word.strip_prefix("--").or_else(|| word.strip_prefix("-c")).unwrap_or(word);
                if let Some((name, value)) = word.split_once('=') {
                    all.push((name.to_owned(), value.to_owned()));
                }
            }
        } else if !KNOWN.contains(&lower.as_str()) && !lower.starts_with("_pq_.") {
            all.push((name.clone(), value.clone()));
        }
    }
    all
}

async fn set(session: &mut Session, name: &str, value: &str) -> Result<(), ConnectionError> {
    let sound = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.'));
    if !sound || name.is_empty() {
        let message = format!("unrecognized configuration parameter \"{name}\"");
        return Err(ConnectionError::fatal(ErrorResponse::new("42704", message)));
    }
    let sql = format!("SET {name} = '{}'", value.replace('\'', "''"));
    let failed = |error| ConnectionError::fatal(ErrorResponse::from(&error));
    for prepared in session.prepare(&sql, &[]).await.map_err(failed)? {
        session.execute(&prepared, &[]).await.map_err(failed)?;
    }
    Ok(())
}

/// Sends the messages after a successful login.
async fn greet(
    connection: &mut Connection,
    (user, is_administrator): (&str, bool),
    application: &str,
    registered: &Registered,
) -> Result<(), ConnectionError> {
    let parameters = [
        ("application_name", application),
        ("client_encoding", "UTF8"),
        ("DateStyle", "ISO, MDY"),
        ("default_transaction_read_only", "off"),
        ("in_hot_standby", "off"),
        ("integer_datetimes", "on"),
        ("IntervalStyle", "postgres"),
        ("is_superuser", if is_administrator { "on" } else { "off" }),
        ("server_encoding", "UTF8"),
        ("server_version", SERVER_VERSION),
        ("session_authorization", user),
        ("standard_conforming_strings", "on"),
        ("TimeZone", "UTC"),
    ];
    for (name, value) in parameters {
        connection.reply(Reply::ParameterStatus(ParameterStatus::new(name.into(), sent(value)))).await?;
    }
    let key = BackendKeyData::new(registered.process, registered.secret.clone());
    connection.reply(Reply::BackendKeyData(key)).await?;
    answer(connection, Reply::ReadyForQuery(ReadyForQuery::new(TransactionStatus::Idle))).await
}
