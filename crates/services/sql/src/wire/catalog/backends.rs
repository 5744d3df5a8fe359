//! `pg_stat_activity`, and the functions that end statements and connections.

use std::collections::HashSet;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::{
    ArrayRef, AsArray, BooleanArray, Int32Array, Int32Builder, ListBuilder, StringArray, TimestampMicrosecondArray,
    new_null_array,
};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::catalog::{MemTable, Session, TableProvider};
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TableType, Volatility,
};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::SessionContext;
use datafusion::scalar::ScalarValue;
use node::identity::{Action, Object, RoleId};

use super::catalog_row::Row;
use super::session_objects::OWNER;
use crate::engine::plan::session_catalog::StatementView;
use crate::wire::activity::Doing;
use crate::wire::registry::Registry;
use crate::{Engine, SqlError};

/// The catalog of connections.
pub(super) const ACTIVITY: &str = "pg_stat_activity";
/// The catalog of GSSAPI connections: GSSAPI is not used.
pub(super) const GSSAPI: &str = "pg_stat_gssapi";
/// PostgreSQL's OID of the first database that is created.
pub(super) const DATABASE: i32 = 16_384;

/// `pg_stat_activity`: the connections when it is read, not when it is planned.
#[derive(Debug)]
pub(super) struct ActivityTable {
    backends: Backends,
    columns: SchemaRef,
}

#[async_trait]
impl TableProvider for ActivityTable {
    fn schema(&self) -> SchemaRef {
        self.columns.clone()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.backends.activity_now()?.scan(state, projection, filters, limit).await
    }
}

/// The connections, as one of them sees them.
#[derive(Debug, Clone)]
pub(super) struct Backends {
    registry: Arc<Registry>,
    engine: Arc<Engine>,
    /// The connection's own process number.
    process: i32,
    database: String,
    /// Of the connection's session; it says what the caller may see and do.
    session: Option<Arc<StatementView>>,
}

impl Backends {
    /// The connections as the one with this process number sees them.
    pub(super) fn new(registry: Arc<Registry>, engine: Arc<Engine>, (process, database): (i32, String)) -> Backends {
        Backends { registry, engine, process, database, session: None }
    }

    /// The same, as this session may see them.
    pub(super) fn seen_by(&self, session: Arc<StatementView>) -> Backends {
        Backends { session: Some(session), ..self.clone() }
    }

    /// Whether the caller may do this with connections of a role: with its own, with those of roles whose rights it has,
    /// and with all by the right to it.
    /// What it does to others has an entry in the audit before, which names them with `object`.
    ///
    /// Errors: 58030 if it has to be recorded and cannot be.
    fn may(
        &self,
        action: Action,
        role: RoleId,
        object: impl FnOnce(&str) -> String,
    ) -> std::result::Result<bool, SqlError> {
        let Some(session) = &self.session else { return Ok(true) };
        let Some(identity) = session.identity() else { return Ok(true) };
        let (view, caller) = (identity.guard().view(), identity.caller());
        let has_rights = view.holds(caller).is_ok() && view.has_rights_of(caller.current(), role);
        let is_shielded =
            action == Action::SqlSignal && view.is_administrator(role) && !view.is_administrator(caller.current());
        let grant = view.may(caller, action, Object::Node).ok();
        let may = !is_shielded && (has_rights || grant.is_some());
        if role != caller.session() {
            let (object, by) = (object(view.name(role).unwrap_or_default()), (&*view, caller));
            match may {
                true => session.trail.used(action, &object, by, grant.as_ref())?,
                // Who lists all connections has not asked for those that are not shown.
                false if action == Action::SqlActivity => {}
                false => session.trail.refused(action, &object, by),
            }
        }
        Ok(may)
    }

    /// The engine.
    pub(super) fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// The process number of each session.
    pub(super) fn processes(&self) -> Vec<(u64, i32)> {
        self.registry.activities().into_iter().map(|(process, _, doing)| (doing.session, process)).collect()
    }

    /// `pg_stat_activity`.
    pub(super) fn activity(&self) -> Result<ActivityTable> {
        let columns = self.rows(Vec::new(), &HashSet::new())?.schema();
        Ok(ActivityTable { backends: self.clone(), columns })
    }

    /// The connections at this moment.
    fn activity_now(&self) -> Result<MemTable> {
        let mut all = self.registry.activities();
        let mut hidden = HashSet::new();
        for (process, role, doing) in &mut all {
            if !self.may(Action::SqlActivity, *role, |name| format!("role {name}"))? {
                doing.query = "<insufficient privilege>".into();
                hidden.insert(*process);
            }
        }
        self.rows(all, &hidden)
    }

    /// The rows of connections. As in PostgreSQL, of hidden ones there is who it is, and nothing of what it does and from where.
    fn rows(&self, all: Vec<(i32, RoleId, Doing)>, hidden: &HashSet<i32>) -> Result<MemTable> {
        let shown = |process: &i32| !hidden.contains(process);
        let count = all.len();
        let always = |text: &dyn Fn(&Doing) -> Option<String>| -> ArrayRef {
            Arc::new(all.iter().map(|(_, _, doing)| text(doing)).collect::<StringArray>())
        };
        let texts = |text: &dyn Fn(&Doing) -> Option<String>| -> ArrayRef {
            let texts = all.iter().map(|(process, _, doing)| shown(process).then(|| text(doing)).flatten());
            Arc::new(texts.collect::<StringArray>())
        };
        let times = |time: &dyn Fn(&Doing) -> Option<chrono::DateTime<chrono::Utc>>| -> ArrayRef {
            let times = all.iter().map(|(process, _, doing)| shown(process).then(|| time(doing)).flatten());
            let micros = times.map(|time| time.map(|time| time.timestamp_micros()));
            Arc::new(micros.collect::<TimestampMicrosecondArray>().with_timezone("+00:00"))
        };
        let numbers = |number: &dyn Fn(i32, &Doing) -> i32| -> ArrayRef {
            Arc::new(all.iter().map(|(process, _, doing)| Some(number(*process, doing))).collect::<Int32Array>())
        };
        let waiting: HashSet<u64> = self.engine.waiting_sessions().into_iter().collect();
        let waits = |doing: &Doing, (lock, client): (&str, &str)| match doing.state {
            "active" => waiting.contains(&doing.session).then(|| lock.to_owned()),
            _ => Some(client.to_owned()),
        };
        let none = |kind: &DataType| new_null_array(kind, count);
        let port = |doing: &Doing| i32::from(doing.peer.port());
        let ports = all.iter().map(|(process, _, doing)| shown(process).then(|| port(doing)));
        let ports: ArrayRef = Arc::new(ports.collect::<Int32Array>());
        let columns: Vec<(&str, ArrayRef)> = vec![
            ("datid", numbers(&|_, _| DATABASE)),
            ("datname", always(&|_| Some(self.database.clone()))),
            ("pid", numbers(&|process, _| process)),
            ("leader_pid", none(&DataType::Int32)),
            ("usesysid", numbers(&|_, _| OWNER as i32)),
            ("usename", always(&|doing| Some(doing.user.clone()))),
            ("application_name", always(&|doing| Some(doing.application.clone()))),
            ("client_addr", texts(&|doing| Some(doing.peer.ip().to_string()))),
            ("client_hostname", none(&DataType::Utf8)),
            ("client_port", ports),
            ("backend_start", times(&|doing| Some(doing.connected))),
            ("xact_start", times(&|doing| doing.transaction)),
            ("query_start", times(&|doing| doing.query_began)),
            ("state_change", times(&|doing| Some(doing.state_began))),
            ("wait_event_type", texts(&|doing| waits(doing, ("Lock", "Client")))),
            ("wait_event", texts(&|doing| waits(doing, ("tuple", "ClientRead")))),
            ("state", texts(&|doing| Some(doing.state.to_owned()))),
            ("backend_xid", none(&DataType::Int32)),
            ("backend_xmin", none(&DataType::Int32)),
            ("query_id", none(&DataType::Int64)),
            ("query", always(&|doing| Some(doing.query.clone()))),
            ("backend_type", texts(&|_| Some("client backend".to_owned()))),
        ];
        let fields: Vec<Field> =
            columns.iter().map(|(name, column)| Field::new(*name, column.data_type().clone(), true)).collect();
        let schema = Arc::new(Schema::new(fields));
        let columns = columns.into_iter().map(|(_, column)| column).collect();
        MemTable::try_new(schema.clone(), vec![vec![RecordBatch::try_new(schema, columns)?]])
    }

    /// Rows of `pg_stat_gssapi`: GSSAPI is not supported.
    pub(super) fn without_gssapi(&self) -> Vec<Row> {
        let all = self.registry.activities();
        all.iter().map(|(process, ..)| vec![("pid", ScalarValue::from(*process))]).collect()
    }

    /// Errors: 42501 for a connection that the caller may not touch.
    fn may_signal(&self, process: i32, what: &str) -> std::result::Result<(), SqlError> {
        let object = |name: &str| format!("role {name}, process {process}");
        match self.registry.role_of(process).map_or(Ok(true), |role| self.may(Action::SqlSignal, role, object))? {
            true => Ok(()),
            false => Err(SqlError::statement("42501", format!("permission denied to {what}"))),
        }
    }

    /// Registers the functions; they replace others of the same names.
    pub(super) fn register(&self, context: &SessionContext) {
        let process = self.process;
        let own = Signature::nullary(Volatility::Volatile);
        let one = Signature::any(1, Volatility::Volatile);
        let all = self.clone();
        let cancel = move |process| {
            all.may_signal(process, "cancel query")?;
            Ok(all.registry.cancel_process(process))
        };
        let all = self.clone();
        let terminate = move |process| {
            all.may_signal(process, "terminate process")?;
            Ok(all.registry.terminate(process))
        };
        for backend in [
            Backend { name: "pg_backend_pid", signature: own, act: Act::Own(process) },
            Backend { name: "pg_cancel_backend", signature: one.clone(), act: Act::On(Box::new(cancel)) },
            Backend { name: "pg_terminate_backend", signature: one.clone(), act: Act::On(Box::new(terminate)) },
            Backend { name: "pg_blocking_pids", signature: one, act: Act::Blocking(self.clone()) },
        ] {
            context.register_udf(ScalarUDF::from(backend));
        }
    }
}

impl Backends {
    /// The connections for whose rows the one with this process number waits.
    fn blocking(&self, process: i32) -> Vec<i32> {
        let all = self.registry.activities();
        let session = all.iter().find(|(one, ..)| *one == process).map(|(_, _, doing)| doing.session);
        let blockers: HashSet<u64> =
            session.map_or_else(HashSet::new, |session| self.engine.blockers_of(session).into_iter().collect());
        let is_one = |doing: &Doing| blockers.contains(&doing.session);
        all.iter().filter(|(_, _, doing)| is_one(doing)).map(|(process, ..)| *process).collect()
    }
}

enum Act {
    /// The connection's own process number.
    Own(i32),
    /// An action on the connection with a process number; returns whether there is one.
    On(Box<dyn Fn(i32) -> std::result::Result<bool, SqlError> + Send + Sync>),
    /// Whom the connection with a process number waits for.
    Blocking(Backends),
}

/// A function about connections.
struct Backend {
    name: &'static str,
    signature: Signature,
    act: Act,
}

impl std::fmt::Debug for Backend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl PartialEq for Backend {
    fn eq(&self, other: &Backend) -> bool {
        self.name == other.name
    }
}

impl Eq for Backend {}

impl Hash for Backend {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl ScalarUDFImpl for Backend {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(match self.act {
            Act::Own(_) => DataType::Int32,
            Act::On(_) => DataType::Boolean,
            Act::Blocking(_) => DataType::new_list(DataType::Int32, true),
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let Some(numbers) = args.args.first() else {
            return Ok(ColumnarValue::Scalar(match &self.act {
                Act::Own(process) => (*process).into(),
                _ => false.into(),
            }));
        };
        let numbers = cast(&numbers.to_array(args.number_rows)?, &DataType::Int64)?;
        let act = match &self.act {
            Act::Own(process) => return Ok(ColumnarValue::Scalar((*process).into())),
            Act::On(act) => act,
            Act::Blocking(backends) => {
                let mut lists = ListBuilder::new(Int32Builder::new());
                for number in numbers.as_primitive::<Int64Type>() {
                    let process = number.map(|number| i32::try_from(number).unwrap_or_default());
                    process
                        .iter()
                        .flat_map(|process| backends.blocking(*process))
                        .for_each(|one| lists.values().append_value(one));
                    lists.append(number.is_some());
                }
                return Ok(ColumnarValue::Array(Arc::new(lists.finish())));
            }
        };
        let one = |number: i64| i32::try_from(number).map_or(Ok(false), act);
        let done = numbers.as_primitive::<Int64Type>().iter().map(|number| number.map(one).transpose());
        Ok(ColumnarValue::Array(Arc::new(done.collect::<std::result::Result<BooleanArray, SqlError>>()?)))
    }
}
