//! From the first packet to the first `ReadyForQuery`: TLS, cancel requests, who is there, what they set.
//!
//! | parameter | taken | else |
//! |---|---|---|
//! | user | a configured one | fails like a wrong password |
//! | database | the server's name, `postgres`, the user's own name | 3D000 |
//! | client_encoding | UTF8, SQL_ASCII | 22023 |
//! | DateStyle | ISO, ... | 22023 |
//! | TimeZone, extra_float_digits, application_name | any: moments are told in UTC with their offset, numbers in full | |
//! | replication | off | 0A000 |
//! | options, others | given to the session as SET | the session's error |
//!
//! Protocol 3.0 is spoken; a client that wants a later one is told so and may go on.

use std::net::SocketAddr;

use tokio_rustls::TlsAcceptor;

use super::connection::{Broken, Connection};
use super::fault::Fault;
use super::message::{Message, Opening};
use super::options;
use super::registry::Registered;
use super::reply::{self, Authentication, Status};
use super::scram::{self, ScramError};
use super::server::Shared;
use crate::Session;

/// The PostgreSQL whose dialect of protocol and catalogs this is.
pub(super) const SERVER_VERSION: &str = concat!("15.0 (Terrace ", env!("CARGO_PKG_VERSION"), ")");

/// Who is logged in.
pub(super) struct Entered {
    pub(super) session: Session,
    pub(super) registered: Registered,
}

/// Answers first packets until there is a session; none: there was nothing but a cancel request.
pub(super) async fn log_in(
    connection: &mut Connection,
    peer: SocketAddr,
    acceptor: Option<TlsAcceptor>,
    shared: &Shared,
    has_place: bool,
) -> Result<Option<Entered>, Broken> {
    let mut secure = false;
    let (minor, parameters) = loop {
        match connection.opening().await? {
            Opening::Tls => match &acceptor {
                Some(acceptor) if !secure => {
                    begin_tls(connection, acceptor, shared.options.message_bytes_max).await?;
                    secure = true;
                }
                _ => refuse_encryption(connection).await?,
            },
            Opening::Gss => refuse_encryption(connection).await?,
            Opening::Cancel { process, secret } => {
                shared.registry.cancel(process, &secret);
                return Ok(None);
            }
            Opening::Start { minor, parameters } => break (minor, parameters),
        }
    };
    let named = |wanted: &str| parameters.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.as_str());
    if !secure && shared.options.tls.as_ref().is_some_and(|tls| tls.required) {
        let fault = Fault::new("28000", "connections without TLS are not accepted");
        return Err(Broken::fatal(fault.with_hint("Connect with sslmode=require.")));
    }
    if !has_place {
        return Err(Broken::fatal(Fault::new("53300", "sorry, too many clients already")));
    }
    let user = named("user").filter(|user| !user.is_empty());
    let user =
        user.ok_or_else(|| Broken::fatal(Fault::new("28000", "no PostgreSQL user name specified in startup packet")))?;
    let unknown: Vec<&str> =
        parameters.iter().map(|(name, _)| name.as_str()).filter(|name| name.starts_with("_pq_.")).collect();
    if minor > 0 || !unknown.is_empty() {
        reply::negotiate(&mut connection.out, &unknown);
    }
    authenticate(connection, peer, user, shared).await?;
    check(&parameters, user, &shared.options).map_err(Broken::fatal)?;
    let mut session = shared.engine.session(user);
    for (name, value) in settings(&parameters) {
        set(&mut session, &name, &value).await?;
    }
    let registered = shared.registry.register(session.canceller());
    let registered = registered.map_err(|error| Broken::fatal(Fault::new("58000", error.to_string())))?;
    greet(connection, user, named("application_name").unwrap_or(""), &registered);
    connection.flush().await?;
    Ok(Some(Entered { session, registered }))
}

async fn refuse_encryption(connection: &mut Connection) -> Result<(), Broken> {
    reply::encryption(&mut connection.out, false);
    connection.flush().await
}

async fn begin_tls(connection: &mut Connection, acceptor: &TlsAcceptor, limit: usize) -> Result<(), Broken> {
    reply::encryption(&mut connection.out, true);
    connection.flush().await?;
    let plain = std::mem::replace(connection, Connection::new(Box::new(tokio::io::empty()), limit));
    let stream = acceptor.accept(plain.into_socket()?).await?;
    *connection = Connection::new(Box::new(stream), limit);
    Ok(())
}

async fn authenticate(
    connection: &mut Connection,
    peer: SocketAddr,
    user: &str,
    shared: &Shared,
) -> Result<(), Broken> {
    let verifier = shared.options.users.get(user);
    if shared.options.trust && peer.ip().is_loopback() && verifier.is_some() {
        reply::authentication(&mut connection.out, Authentication::Ok);
        return Ok(());
    }
    reply::authentication(&mut connection.out, Authentication::Sasl(&[scram::MECHANISM]));
    connection.flush().await?;
    let first = sasl_first(&password(connection).await?).map_err(Broken::fatal)?;
    let failed = |error: ScramError| {
        Broken::fatal(match error {
            ScramError::WrongPassword => {
                Fault::new("28P01", format!("password authentication failed for user \"{user}\""))
            }
            ScramError::Randomness => Fault::new("58000", error.to_string()),
            other => Fault::protocol(other.to_string()),
        })
    };
    let (answer, exchange) = scram::begin(&first, user, verifier, &shared.mock).map_err(failed)?;
    reply::authentication(&mut connection.out, Authentication::SaslContinue(&answer));
    connection.flush().await?;
    let answer = exchange.finish(&password(connection).await?).map_err(failed)?;
    reply::authentication(&mut connection.out, Authentication::SaslFinal(&answer));
    reply::authentication(&mut connection.out, Authentication::Ok);
    Ok(())
}

async fn password(connection: &mut Connection) -> Result<bytes::Bytes, Broken> {
    match connection.message().await? {
        Message::Password(data) => Ok(data),
        Message::Terminate => Err(Broken::Closed),
        _ => Err(Broken::fatal(Fault::protocol("expected a SASL response"))),
    }
}

/// The mechanism's data in a `SASLInitialResponse`.
fn sasl_first(data: &[u8]) -> Result<Vec<u8>, Fault> {
    let wrong = || Fault::protocol("malformed SASL response");
    let name = data.iter().position(|byte| *byte == 0).ok_or_else(wrong)?;
    if &data[..name] != scram::MECHANISM.as_bytes() {
        return Err(Fault::protocol("client selected an invalid SASL authentication mechanism"));
    }
    let (length, first) = data[name + 1..].split_first_chunk::<4>().ok_or_else(wrong)?;
    if u32::from_be_bytes(*length) as usize != first.len() {
        return Err(wrong());
    }
    Ok(first.to_vec())
}

/// Refuses what cannot be given.
fn check(parameters: &[(String, String)], user: &str, options: &options::WireOptions) -> Result<(), Fault> {
    let invalid =
        |name: &str, value: &str| Fault::new("22023", format!("invalid value for parameter \"{name}\": \"{value}\""));
    for (name, value) in parameters {
        let lower = value.to_ascii_lowercase();
        match name.to_ascii_lowercase().as_str() {
            "database" if ![options.database.as_str(), "postgres", user, ""].contains(&value.as_str()) => {
                let fault = Fault::new("3D000", format!("database \"{value}\" does not exist"));
                return Err(fault.with_hint(format!("There is one database: {}.", options.database)));
            }
            "client_encoding" if !["utf8", "utf-8", "unicode", "sql_ascii"].contains(&lower.trim_matches('\'')) => {
                return Err(invalid(name, value).with_hint("Text is sent and read as UTF8."));
            }
            "datestyle" if !lower.starts_with("iso") => {
                return Err(invalid(name, value).with_hint("Dates are written in ISO style."));
            }
            "replication" if !["off", "false", "no", "0"].contains(&lower.as_str()) => {
                return Err(Fault::new("0A000", "replication connections are not supported"));
            }
            _ => {}
        }
    }
    Ok(())
}

/// What the session is asked to set.
fn settings(parameters: &[(String, String)]) -> Vec<(String, String)> {
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
            for word in value.split_ascii_whitespace() {
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

async fn set(session: &mut Session, name: &str, value: &str) -> Result<(), Broken> {
    let sound = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.'));
    if !sound || name.is_empty() {
        let message = format!("unrecognized configuration parameter \"{name}\"");
        return Err(Broken::fatal(Fault::new("42704", message)));
    }
    let sql = format!("SET {name} = '{}'", value.replace('\'', "''"));
    let failed = |error| Broken::fatal(Fault::from(&error));
    for prepared in session.prepare(&sql, &[]).await.map_err(failed)? {
        session.execute(&prepared, &[]).await.map_err(failed)?;
    }
    Ok(())
}

/// What a client is told when it is in.
fn greet(connection: &mut Connection, user: &str, application: &str, registered: &Registered) {
    let out = &mut connection.out;
    let parameters = [
        ("application_name", application),
        ("client_encoding", "UTF8"),
        ("DateStyle", "ISO, MDY"),
        ("default_transaction_read_only", "off"),
        ("in_hot_standby", "off"),
        ("integer_datetimes", "on"),
        ("IntervalStyle", "postgres"),
        ("is_superuser", "on"),
        ("server_encoding", "UTF8"),
        ("server_version", SERVER_VERSION),
        ("session_authorization", user),
        ("standard_conforming_strings", "on"),
        ("TimeZone", "UTC"),
    ];
    for (name, value) in parameters {
        reply::parameter(out, name, value);
    }
    reply::key(out, registered.process, &registered.secret);
    reply::ready(out, Status::Idle);
}
