//! The extended protocol: prepared statements and portals.

use std::sync::Arc;

use bytes::Bytes;
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::scalar::ScalarValue;

use super::rows::{Rows, formats};
use super::{Serving, Stop};
use crate::wire::fault::Fault;
use crate::wire::message::{Format, Message, Subject};
use crate::wire::oid::{Described, Kind, Scalar};
use crate::wire::{parameter, reply};
use crate::{Answer, Prepared};

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
    results: Vec<Format>,
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
            Message::Parse { name, sql, types } => self.parse(name, sql, &types).await,
            Message::Bind { portal, statement, formats, values, results } => {
                self.bind(portal, &statement, &formats, &values, results)
            }
            Message::Describe(Subject::Statement, name) => self.describe_statement(&name),
            Message::Describe(Subject::Portal, name) => self.describe_portal(&name),
            Message::Execute { portal, rows } => self.execute(portal, rows).await,
            Message::Close(subject, name) => {
                match subject {
                    Subject::Statement => drop(self.statements.remove(&name)),
                    Subject::Portal => drop(self.portals.remove(&name)),
                }
                reply::closed(&mut self.connection.out);
                Ok(())
            }
            Message::Flush => Ok(self.connection.flush().await?),
            Message::Call => {
                let fault = Fault::new("0A000", "calls of functions by number are not supported");
                Err(fault.with_hint("Use SELECT.").into())
            }
            _ => Err(Fault::protocol("this message cannot come now").into()),
        }
    }

    async fn parse(&mut self, name: String, sql: String, types: &[u32]) -> Result<(), Stop> {
        if !name.is_empty() && self.statements.contains_key(&name) {
            return Err(Fault::new("42P05", format!("prepared statement \"{name}\" already exists")).into());
        }
        let declared = types.iter().map(|oid| declared(*oid)).collect::<Result<Vec<_>, _>>()?;
        let hints: Vec<Option<DataType>> = declared.iter().map(|kind| kind.and_then(Kind::arrow)).collect();
        let rewritten = self.catalogs.rewrite(&self.session, &sql)?;
        let prepared = self.session.prepare(&rewritten, &hints).await;
        let mut prepared = prepared.map_err(|error| Fault::of_statement(&error, &sql))?;
        prepared.retain(|prepared| !prepared.is_empty());
        if prepared.len() > 1 {
            return Err(Fault::new("42601", "cannot insert multiple commands into a prepared statement").into());
        }
        let prepared = prepared.pop();
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
        reply::parsed(&mut self.connection.out);
        Ok(())
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

    fn bind(
        &mut self,
        portal: String,
        statement: &str,
        given: &[Format],
        values: &[Option<Bytes>],
        results: Vec<Format>,
    ) -> Result<(), Stop> {
        let stated = Arc::clone(self.statement(statement)?);
        if !portal.is_empty() && self.portals.contains_key(&portal) {
            return Err(Fault::new("42P03", format!("cursor \"{portal}\" already exists")).into());
        }
        if values.len() != stated.kinds.len() {
            let message = format!(
                "bind message supplies {} parameters, but prepared statement \"{statement}\" requires {}",
                values.len(),
                stated.kinds.len()
            );
            return Err(Fault::protocol(message).into());
        }
        let given = match given.len() {
            0 | 1 => formats(given, values.len())?,
            count if count == values.len() => given.to_vec(),
            count => {
                let message = format!("bind message has {count} parameter formats but {} parameters", values.len());
                return Err(Fault::protocol(message).into());
            }
        };
        let inferred = stated.prepared.as_ref().map_or(&[][..], Prepared::parameter_types);
        let mut scalars = Vec::with_capacity(values.len());
        for (at, value) in values.iter().enumerate() {
            let wanted = inferred.get(at).and_then(Option::as_ref);
            let scalar = parameter::read(value.as_deref(), stated.kinds[at], given[at], wanted);
            scalars.push(scalar.map_err(|fault| fault.with_context(|| format!("portal parameter ${}", at + 1)))?);
        }
        self.portals.insert(portal, Portal { stated, values: scalars, results, state: State::Ready });
        reply::bound(&mut self.connection.out);
        Ok(())
    }

    fn describe_statement(&mut self, name: &str) -> Result<(), Stop> {
        let stated = Arc::clone(self.statement(name)?);
        let types: Vec<u32> = stated.kinds.iter().map(|kind| kind.oid()).collect();
        let columns = columns(stated.prepared.as_ref().and_then(Prepared::schema))?;
        reply::parameters(&mut self.connection.out, &types);
        match columns {
            Some(columns) => {
                let formats = formats(&[], columns.len())?;
                reply::description(&mut self.connection.out, &columns, &formats);
            }
            None => reply::no_data(&mut self.connection.out),
        }
        Ok(())
    }

    fn describe_portal(&mut self, name: &str) -> Result<(), Stop> {
        let portal = self.portals.get(name).ok_or_else(|| no_portal(name))?;
        match columns(portal.stated.prepared.as_ref().and_then(Prepared::schema))? {
            Some(columns) => {
                let formats = formats(&portal.results, columns.len())?;
                reply::description(&mut self.connection.out, &columns, &formats);
            }
            None => reply::no_data(&mut self.connection.out),
        }
        Ok(())
    }

    async fn execute(&mut self, name: String, most: u32) -> Result<(), Stop> {
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

    async fn execute_portal(&mut self, portal: &mut Portal, most: u32) -> Result<(), Stop> {
        let Some(prepared) = &portal.stated.prepared else {
            reply::empty_query(&mut self.connection.out);
            return Ok(());
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
                match self.session.execute(prepared, &portal.values).await? {
                    Answer::Rows { schema, stream, tag } => Box::new(Rows::new(&schema, stream, tag, &portal.results)?),
                    Answer::Done { tag } => {
                        reply::complete(&mut self.connection.out, &tag);
                        return Ok(());
                    }
                    Answer::CopyIn(copy) => return self.copy_in(copy, prepared).await,
                    Answer::CopyOut(copy) => return self.copy_out(copy).await,
                }
            }
        };
        if !self.send(&mut rows, u64::from(most)).await? {
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

fn columns(schema: Option<&SchemaRef>) -> Result<Option<Vec<Described>>, Fault> {
    schema.map(|schema| schema.fields().iter().map(|field| Described::of(field)).collect()).transpose()
}
