//! The extended protocol: prepared statements and portals.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use chrono::Utc;
use datafusion::arrow::datatypes::DataType;
use datafusion::scalar::ScalarValue;
use pgwire::messages::data::{NoData, ParameterDescription};
use pgwire::messages::extendedquery::{
    Bind, BindComplete, CloseComplete, Parse, ParseComplete, TARGET_TYPE_BYTE_STATEMENT,
};
use pgwire::messages::response::EmptyQueryResponse;

use super::send_rows::{RowSender, description, formats};
use super::{Serving, StatementError};
use crate::engine::NUMERIC;
use crate::engine::session::named_statements::NamedStatement;
use crate::wire::error_response::ErrorResponse;
use crate::wire::figures::Protocol;
use crate::wire::oid::{Described, Kind, Scalar};
use crate::wire::{Message, Reply, parameter};
use crate::{Prepared, StatementResult};

/// Most portals of a session: each portal that is read in part has threads of its own.
const PORTALS_MAX: usize = 64;

/// A prepared statement with its values.
pub(super) struct Portal {
    stated: Arc<NamedStatement>,
    values: Vec<ScalarValue>,
    /// Bytes of the values as they were sent.
    bytes: usize,
    /// Formats of the result's columns, as Bind contains them.
    results: Vec<i16>,
    state: State,
}

enum State {
    Ready,
    /// Some rows were sent already.
    Paused(Box<RowSender>),
    Done,
}

impl Serving<'_> {
    /// Processes a message of the extended protocol.
    pub(super) async fn extended(&mut self, message: Message) -> Result<(), StatementError> {
        match message {
            Message::Parse(message) => self.parse(message).await,
            Message::Bind(message) => self.bind(message).await,
            Message::Describe(message) => {
                let name = message.name.unwrap_or_default();
                let reply = match message.target_type {
                    TARGET_TYPE_BYTE_STATEMENT => self.describe_statement(&name).await?,
                    _ => self.describe_portal(&name)?,
                };
                Ok(self.connection.reply(reply).await?)
            }
            // For PostgreSQL a negative count means "all".
            Message::Execute(message) => {
                let most = u64::try_from(message.max_rows).unwrap_or(0);
                self.execute(message.name.unwrap_or_default(), most).await
            }
            Message::Close(message) => {
                let name = message.name.unwrap_or_default();
                match message.target_type {
                    TARGET_TYPE_BYTE_STATEMENT => _ = self.session.named.remove(&name),
                    _ => drop(self.portals.remove(&name)),
                }
                Ok(self.connection.reply(Reply::CloseComplete(CloseComplete::new())).await?)
            }
            Message::Flush(_) => Ok(self.connection.flush().await?),
            _ => Err(ErrorResponse::protocol("this message cannot come now").into()),
        }
    }

    async fn parse(&mut self, message: Parse) -> Result<(), StatementError> {
        let (name, sql) = (message.name.unwrap_or_default(), message.query);
        self.session.named.check_new(&name, &sql, self.shared.options.message_bytes_max)?;
        self.registered.activity.begins(&sql);
        let declared = message.type_oids.iter().map(|oid| declared(*oid)).collect::<Result<Vec<_>, _>>()?;
        let hints: Vec<Option<DataType>> = declared.iter().map(|kind| kind.and_then(hint)).collect();
        let rewritten = self.catalogs.rewrite(&self.session, &sql)?;
        let prepared = self.session.prepare(&rewritten, &hints).await;
        let mut prepared = prepared.map_err(|error| ErrorResponse::of_statement(&error, &sql))?;
        prepared.retain(|prepared| !prepared.is_empty());
        if prepared.len() > 1 {
            return Err(ErrorResponse::new("42601", "cannot insert multiple commands into a prepared statement").into());
        }
        let mut prepared = prepared.pop();
        if let Some(prepared) = &mut prepared {
            self.session.settle(prepared);
        }
        let inferred = prepared.as_ref().map_or(&[][..], Prepared::parameter_types);
        let kinds = (0..inferred.len().max(declared.len())).map(|at| {
            let kind = declared.get(at).copied().flatten();
            match (kind, inferred.get(at).and_then(Option::as_ref)) {
                (Some(kind), _) => Ok(kind.oid()),
                (None, inferred) => inferred_oid(inferred),
            }
        });
        let sent = OnceLock::from(kinds.collect::<Result<Vec<_>, ErrorResponse>>()?);
        let statement = NamedStatement { prepared, sql, from_sql: false, made: Utc::now(), sent };
        self.session.named.insert(name, statement);
        Ok(self.connection.reply(Reply::ParseComplete(ParseComplete::new())).await?)
    }

    /// Checks the bound on portals, and on the bytes of their values.
    fn room_for_portal(&self, name: &str, bytes: usize) -> Result<(), ErrorResponse> {
        let others = self.portals.iter().filter(|(known, _)| *known != name);
        let (count, bytes) = others.fold((0, bytes), |(count, bytes), (_, portal)| (count + 1, bytes + portal.bytes));
        if count < PORTALS_MAX && bytes <= self.shared.options.message_bytes_max {
            return Ok(());
        }
        let error_response =
            ErrorResponse::new("54000", format!("this session has {count} open portals, and no room for one more"));
        Err(error_response.with_hint("Close those that are not needed any more."))
    }

    async fn bind(&mut self, message: Bind) -> Result<(), StatementError> {
        let (portal, statement) = (message.portal_name.unwrap_or_default(), message.statement_name.unwrap_or_default());
        let (given, values) = (&message.parameter_format_codes, &message.parameters);
        let stated = self.session.named.get(&statement)?;
        let sent = sent(&stated)?;
        if !portal.is_empty() && self.portals.contains_key(&portal) {
            return Err(ErrorResponse::new("42P03", format!("cursor \"{portal}\" already exists")).into());
        }
        self.room_for_portal(&portal, values.iter().flatten().map(|value| value.len()).sum())?;
        if values.len() != sent.len() {
            let message = format!(
                "bind message supplies {} parameters, but prepared statement \"{statement}\" requires {}",
                values.len(),
                sent.len()
            );
            return Err(ErrorResponse::protocol(message).into());
        }
        let given = formats(given, values.len()).ok_or_else(|| {
            let (formats, parameters) = (given.len(), values.len());
            ErrorResponse::protocol(format!("bind message has {formats} parameter formats but {parameters} parameters"))
        })?;
        let inferred = stated.prepared.as_ref().map_or(&[][..], Prepared::parameter_types);
        let mut scalars = Vec::with_capacity(values.len());
        for (at, value) in values.iter().enumerate() {
            let wanted = inferred.get(at).and_then(Option::as_ref);
            let kind = Kind::from_oid(sent[at]).unwrap_or(Kind::One(Scalar::Text));
            let scalar = parameter::read(value.as_deref(), kind, given[at], wanted);
            scalars.push(
                scalar.map_err(|error_response| {
                    error_response.with_context(|| format!("portal parameter ${}", at + 1))
                })?,
            );
        }
        let bytes = values.iter().flatten().map(|value| value.len()).sum();
        let results = message.result_column_format_codes;
        self.portals.insert(portal, Portal { stated, values: scalars, bytes, results, state: State::Ready });
        Ok(self.connection.reply(Reply::BindComplete(BindComplete::new())).await?)
    }

    /// Sends the description of a statement's parameters; returns that of its columns.
    async fn describe_statement(&mut self, name: &str) -> Result<Reply, StatementError> {
        let stated = self.session.named.get(name)?;
        let columns = described(stated.prepared.as_ref(), &[])?;
        let types = sent(&stated)?.to_vec();
        self.connection.reply(Reply::ParameterDescription(ParameterDescription::new(types))).await?;
        Ok(columns)
    }

    fn describe_portal(&self, name: &str) -> Result<Reply, StatementError> {
        let portal = self.portals.get(name).ok_or_else(|| no_portal(name))?;
        Ok(described(portal.stated.prepared.as_ref(), &portal.results)?)
    }

    async fn execute(&mut self, name: String, most: u64) -> Result<(), StatementError> {
        let mut portal = self.portals.remove(&name).ok_or_else(|| no_portal(&name))?;
        let began = Instant::now();
        let result = self.execute_portal(&mut portal, most).await;
        self.shared.figures.took(Protocol::Extended, began.elapsed());
        let sql = Arc::clone(&portal.stated);
        if result.is_ok() {
            self.portals.insert(name, portal);
        }
        result.map_err(|stop| match stop {
            StatementError::Response(mut error_response)
                if error_response.position.is_none() && error_response.message.contains(" at Line: ") =>
            {
                let error = crate::SqlError::statement(error_response.code, error_response.message.clone());
                error_response.position = ErrorResponse::of_statement(&error, &sql.sql).position;
                StatementError::Response(error_response)
            }
            stop => stop,
        })
    }

    async fn execute_portal(&mut self, portal: &mut Portal, most: u64) -> Result<(), StatementError> {
        self.registered.activity.begins(&portal.stated.sql);
        let Some(prepared) = &portal.stated.prepared else {
            return Ok(self.connection.reply(Reply::EmptyQueryResponse(EmptyQueryResponse::new())).await?);
        };
        let mut rows = match std::mem::replace(&mut portal.state, State::Done) {
            State::Paused(rows) => rows,
            State::Done => {
                let message = "portal cannot be run again";
                return Err(ErrorResponse::new("55000", message).with_hint("Bind the statement again.").into());
            }
            State::Ready => {
                // There is more than one Execute before the Sync: they are one transaction.
                if self.implicit || !self.connection.next_is(b'S') {
                    self.begin_series();
                }
                match self.session.execute(prepared, &portal.values).await? {
                    StatementResult::Rows { schema, stream, tag } => {
                        Box::new(RowSender::new(&schema, stream, tag, &portal.results, self.session.access())?)
                    }
                    StatementResult::Done { tag } => return Ok(self.complete(&tag).await?),
                    StatementResult::CopyIn(copy) => return self.rows().copy_in(copy, prepared).await,
                    StatementResult::CopyOut(copy) => return self.rows().copy_out(copy).await,
                }
            }
        };
        if !self.rows().send(&mut rows, most).await? {
            portal.state = State::Paused(rows);
        }
        Ok(())
    }
}

fn no_portal(name: &str) -> ErrorResponse {
    ErrorResponse::new("34000", format!("portal \"{name}\" does not exist"))
}

/// The types in which the client sends the parameters of a statement, by their OIDs.
fn sent(statement: &NamedStatement) -> Result<&[u32], ErrorResponse> {
    if statement.sent.get().is_none() {
        let inferred = statement.prepared.as_ref().map_or(&[][..], Prepared::parameter_types);
        let oids = inferred.iter().map(|kind| inferred_oid(kind.as_ref())).collect::<Result<Vec<_>, _>>()?;
        let _ = statement.sent.set(oids);
    }
    Ok(statement.sent.get().map_or(&[][..], Vec::as_slice))
}

/// The OID of a parameter's type, as the statement needs it.
fn inferred_oid(inferred: Option<&DataType>) -> Result<u32, ErrorResponse> {
    Ok(inferred.map_or(Ok(Kind::One(Scalar::Text)), Kind::of)?.oid())
}

/// The type that the client declared for a parameter by its OID; `None` if it declared none.
fn declared(oid: u32) -> Result<Option<Kind>, ErrorResponse> {
    match Kind::from_oid(oid) {
        _ if oid == 0 => Ok(None),
        Some(Kind::One(Scalar::Unknown)) => Ok(None),
        Some(kind) => Ok(Some(kind)),
        None => {
            let error_response =
                ErrorResponse::new("0A000", format!("parameters of the type with OID {oid} are not supported"));
            Err(error_response.with_hint("Send the value as text and cast it."))
        }
    }
}

/// The Arrow type of a parameter of this kind in a statement.
fn hint(kind: Kind) -> Option<DataType> {
    if kind == Kind::One(Scalar::Numeric) { Some(NUMERIC) } else { kind.arrow() }
}

/// The description of the columns of a statement's result.
fn described(prepared: Option<&Prepared>, given: &[i16]) -> Result<Reply, ErrorResponse> {
    let Some(schema) = prepared.and_then(Prepared::schema) else { return Ok(Reply::NoData(NoData::new())) };
    let columns = schema.fields().iter().map(|field| Described::of(field)).collect::<Result<Vec<_>, _>>()?;
    description(&columns, given)
}
