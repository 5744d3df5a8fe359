//! The extended protocol: prepared statements and portals.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::scalar::ScalarValue;
use pgwire::messages::data::{NoData, ParameterDescription};
use pgwire::messages::extendedquery::{
    Bind, BindComplete, CloseComplete, Parse, ParseComplete, TARGET_TYPE_BYTE_STATEMENT,
};
use pgwire::messages::response::EmptyQueryResponse;

use super::rows::{Rows, description, formats};
use super::{Serving, Stop};
use crate::engine::NUMERIC;
use crate::wire::fault::Fault;
use crate::wire::oid::{Described, Kind, Scalar};
use crate::wire::{Message, Reply, parameter};
use crate::{Answer, Prepared};

/// Most prepared statements of a session: drivers keep some hundred.
const STATEMENTS_MAX: usize = 4096;

/// Most portals of a session: each that is read in part has threads of its own.
const PORTALS_MAX: usize = 64;

/// A prepared statement.
pub(super) struct Stated {
    /// None: an empty text.
    prepared: Option<Prepared>,
    sql: String,
    /// What each parameter is sent as.
    kinds: Vec<Kind>,
}

/// A prepared statement with its values.
pub(super) struct Portal {
    stated: Arc<Stated>,
    values: Vec<ScalarValue>,
    /// Bytes of the values as they were sent.
    bytes: usize,
    /// Formats of the result's columns, as Bind has them.
    results: Vec<i16>,
    state: State,
}

enum State {
    Ready,
    /// Some rows were sent.
    Paused(Box<Rows>),
    Done,
}

impl Serving<'_> {
    /// Carries out a message of the extended protocol.
    pub(super) async fn extended(&mut self, message: Message) -> Result<(), Stop> {
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
            // PostgreSQL takes a negative count for "all".
            Message::Execute(message) => {
                let most = u64::try_from(message.max_rows).unwrap_or(0);
                self.execute(message.name.unwrap_or_default(), most).await
            }
            Message::Close(message) => {
                let name = message.name.unwrap_or_default();
                match message.target_type {
                    TARGET_TYPE_BYTE_STATEMENT => drop(self.statements.remove(&name)),
                    _ => drop(self.portals.remove(&name)),
                }
                Ok(self.connection.reply(Reply::CloseComplete(CloseComplete::new())).await?)
            }
            Message::Flush(_) => Ok(self.connection.flush().await?),
            _ => Err(Fault::protocol("this message cannot come now").into()),
        }
    }

    async fn parse(&mut self, message: Parse) -> Result<(), Stop> {
        let (name, sql) = (message.name.unwrap_or_default(), message.query);
        if !name.is_empty() && self.statements.contains_key(&name) {
            return Err(Fault::new("42P05", format!("prepared statement \"{name}\" already exists")).into());
        }
        self.room_for_statement(&name, &sql)?;
        self.registered.activity.begins(&sql);
        let declared = message.type_oids.iter().map(|oid| declared(*oid)).collect::<Result<Vec<_>, _>>()?;
        let hints: Vec<Option<DataType>> = declared.iter().map(|kind| kind.and_then(hint)).collect();
        let rewritten = self.catalogs.rewrite(&self.session, &sql)?;
        let prepared = self.session.prepare(&rewritten, &hints).await;
        let mut prepared = prepared.map_err(|error| Fault::of_statement(&error, &sql))?;
        prepared.retain(|prepared| !prepared.is_empty());
        if prepared.len() > 1 {
            return Err(Fault::new("42601", "cannot insert multiple commands into a prepared statement").into());
        }
        let mut prepared = prepared.pop();
        if let Some(prepared) = &mut prepared {
            self.session.settle(prepared);
        }
        let inferred = prepared.as_ref().map_or(&[][..], Prepared::parameter_types);
        let kinds = (0..inferred.len().max(declared.len())).map(|at| {
            let kind = declared.get(at).copied().flatten();
            match (kind, inferred.get(at).and_then(Option::as_ref)) {
                (Some(kind), _) => Ok(kind),
                (None, Some(inferred)) => Kind::of(inferred),
                (None, None) => Ok(Kind::One(Scalar::Text)),
            }
        });
        let kinds = kinds.collect::<Result<_, Fault>>()?;
        self.statements.insert(name, Arc::new(Stated { prepared, sql, kinds }));
        Ok(self.connection.reply(Reply::ParseComplete(ParseComplete::new())).await?)
    }

    /// What a session keeps for its client is bounded.
    fn room_for_statement(&self, name: &str, sql: &str) -> Result<(), Fault> {
        let others = self.statements.iter().filter(|(known, _)| *known != name);
        let (count, bytes) =
            others.fold((0, sql.len()), |(count, bytes), (_, stated)| (count + 1, bytes + stated.sql.len()));
        if count < STATEMENTS_MAX && bytes <= self.shared.options.message_bytes_max {
            return Ok(());
        }
        let fault =
            Fault::new("54000", format!("this session has {count} prepared statements, and no room for one more"));
        Err(fault.with_hint("Close those that are not needed any more."))
    }

    /// The same of portals, and of the values that they hold.
    fn room_for_portal(&self, name: &str, bytes: usize) -> Result<(), Fault> {
        let others = self.portals.iter().filter(|(known, _)| *known != name);
        let (count, bytes) = others.fold((0, bytes), |(count, bytes), (_, portal)| (count + 1, bytes + portal.bytes));
        if count < PORTALS_MAX && bytes <= self.shared.options.message_bytes_max {
            return Ok(());
        }
        let fault = Fault::new("54000", format!("this session has {count} open portals, and no room for one more"));
        Err(fault.with_hint("Close those that are not needed any more."))
    }

    fn statement(&self, name: &str) -> Result<&Arc<Stated>, Fault> {
        self.statements.get(name).ok_or_else(|| {
            let shown = if name.is_empty() {
                "unnamed prepared statement".into()
            } else {
                format!("prepared statement \"{name}\"")
            };
            Fault::new("26000", format!("{shown} does not exist"))
        })
    }

    async fn bind(&mut self, message: Bind) -> Result<(), Stop> {
        let (portal, statement) = (message.portal_name.unwrap_or_default(), message.statement_name.unwrap_or_default());
        let (given, values) = (&message.parameter_format_codes, &message.parameters);
        let stated = Arc::clone(self.statement(&statement)?);
        if !portal.is_empty() && self.portals.contains_key(&portal) {
            return Err(Fault::new("42P03", format!("cursor \"{portal}\" already exists")).into());
        }
        self.room_for_portal(&portal, values.iter().flatten().map(|value| value.len()).sum())?;
        if values.len() != stated.kinds.len() {
            let message = format!(
                "bind message supplies {} parameters, but prepared statement \"{statement}\" requires {}",
                values.len(),
                stated.kinds.len()
            );
            return Err(Fault::protocol(message).into());
        }
        let given = formats(given, values.len()).ok_or_else(|| {
            let (formats, parameters) = (given.len(), values.len());
            Fault::protocol(format!("bind message has {formats} parameter formats but {parameters} parameters"))
        })?;
        let inferred = stated.prepared.as_ref().map_or(&[][..], Prepared::parameter_types);
        let mut scalars = Vec::with_capacity(values.len());
        for (at, value) in values.iter().enumerate() {
            let wanted = inferred.get(at).and_then(Option::as_ref);
            let scalar = parameter::read(value.as_deref(), stated.kinds[at], given[at], wanted);
            scalars.push(scalar.map_err(|fault| fault.with_context(|| format!("portal parameter ${}", at + 1)))?);
        }
        let bytes = values.iter().flatten().map(|value| value.len()).sum();
        let results = message.result_column_format_codes;
        self.portals.insert(portal, Portal { stated, values: scalars, bytes, results, state: State::Ready });
        Ok(self.connection.reply(Reply::BindComplete(BindComplete::new())).await?)
    }

    /// Tells of a statement's parameters; answers what tells of its columns.
    async fn describe_statement(&mut self, name: &str) -> Result<Reply, Stop> {
        let stated = Arc::clone(self.statement(name)?);
        let columns = described(stated.prepared.as_ref(), &[])?;
        let types = stated.kinds.iter().map(|kind| kind.oid()).collect();
        self.connection.reply(Reply::ParameterDescription(ParameterDescription::new(types))).await?;
        Ok(columns)
    }

    fn describe_portal(&self, name: &str) -> Result<Reply, Stop> {
        let portal = self.portals.get(name).ok_or_else(|| no_portal(name))?;
        Ok(described(portal.stated.prepared.as_ref(), &portal.results)?)
    }

    async fn execute(&mut self, name: String, most: u64) -> Result<(), Stop> {
        let mut portal = self.portals.remove(&name).ok_or_else(|| no_portal(&name))?;
        let result = self.execute_portal(&mut portal, most).await;
        let sql = Arc::clone(&portal.stated);
        if result.is_ok() {
            self.portals.insert(name, portal);
        }
        result.map_err(|stop| match stop {
            Stop::Fault(mut fault) if fault.position.is_none() && fault.message.contains(" at Line: ") => {
                let error = crate::SqlError::statement(fault.code, fault.message.clone());
                fault.position = Fault::of_statement(&error, &sql.sql).position;
                Stop::Fault(fault)
            }
            stop => stop,
        })
    }

    async fn execute_portal(&mut self, portal: &mut Portal, most: u64) -> Result<(), Stop> {
        self.registered.activity.begins(&portal.stated.sql);
        let Some(prepared) = &portal.stated.prepared else {
            return Ok(self.connection.reply(Reply::EmptyQueryResponse(EmptyQueryResponse::new())).await?);
        };
        let mut rows = match std::mem::replace(&mut portal.state, State::Done) {
            State::Paused(rows) => rows,
            State::Done => {
                let message = "portal cannot be run again";
                return Err(Fault::new("55000", message).with_hint("Bind the statement again.").into());
            }
            State::Ready => {
                // More than one before a Sync: what comes together is one transaction.
                if self.implicit || !self.connection.next_is(b'S') {
                    self.begin_series();
                }
                if let Some(tag) = self.forget(prepared)? {
                    return Ok(self.complete(tag).await?);
                }
                match self.session.execute(prepared, &portal.values).await? {
                    Answer::Rows { schema, stream, tag } => Box::new(Rows::new(&schema, stream, tag, &portal.results)?),
                    Answer::Done { tag } => return Ok(self.complete(&tag).await?),
                    Answer::CopyIn(copy) => return self.copy_in(copy, prepared).await,
                    Answer::CopyOut(copy) => return self.copy_out(copy).await,
                }
            }
        };
        if !self.send(&mut rows, most).await? {
            portal.state = State::Paused(rows);
        }
        Ok(())
    }
}

fn no_portal(name: &str) -> Fault {
    Fault::new("34000", format!("portal \"{name}\" does not exist"))
}

/// The type of a parameter that the client named by its number; none if it leaves it open.
fn declared(oid: u32) -> Result<Option<Kind>, Fault> {
    match Kind::from_oid(oid) {
        _ if oid == 0 => Ok(None),
        Some(Kind::One(Scalar::Unknown)) => Ok(None),
        Some(kind) => Ok(Some(kind)),
        None => {
            let fault = Fault::new("0A000", format!("parameters of the type with number {oid} are not supported"));
            Err(fault.with_hint("Send the value as text and cast it."))
        }
    }
}

/// The type that a statement has for a parameter of this one.
fn hint(kind: Kind) -> Option<DataType> {
    if kind == Kind::One(Scalar::Numeric) { Some(NUMERIC) } else { kind.arrow() }
}

/// What tells of the columns of a statement's result.
fn described(prepared: Option<&Prepared>, given: &[i16]) -> Result<Reply, Fault> {
    let Some(schema) = prepared.and_then(Prepared::schema) else { return Ok(Reply::NoData(NoData::new())) };
    let columns = schema.fields().iter().map(|field| Described::of(field)).collect::<Result<Vec<_>, _>>()?;
    description(&columns, given)
}
