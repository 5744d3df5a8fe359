//! The tables that DataFusion finds: [`StatementView`] is the view that a session's statement reads, [`SessionCatalog`]
//! the catalog made from it.
//!
//! Two schemas are not for users. [`TARGET`] contains the tables again with the column of row addresses, for the
//! queries of changes of rows. [`MADE`] contains batches that the engine made itself, for RETURNING and ON CONFLICT.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use async_trait::async_trait;
use datafusion::catalog::{CatalogProvider, MemTable, SchemaProvider, TableProvider};
use datafusion::datasource::ViewTable;
use datafusion::error::{DataFusionError, Result as DfResult};
use datafusion::execution::SessionState as DfState;
use datafusion::logical_expr::{LogicalPlan, TableType};
use node::identity::Action;
use parking_lot::RwLock;
use store::Store;

use super::access::{Access, OwnObjects};
use super::information_schema::{self, INFORMATION_SCHEMA};
use super::meanwhile::Meanwhile;
use super::prepared::{self, Prepared};
use super::rights_views::RightsViews;
use super::sequence_rows;
use super::taken_values::TakenValues;
use super::view_dependencies;
use super::view_dependencies::DEEP_MOST;
use crate::SqlError;
use crate::engine::parse::ast::{MADE, TARGET};
use crate::engine::sequences::Sequences;
use crate::engine::{Engine, parse};
use crate::external::{ExternalTable, FileCache};
use crate::identity::SessionIdentity;
use crate::recording::Trail;
use crate::table::barrier::BarrierTable;
use crate::table::guarded::GuardedTable;
use crate::table::providers::{Reads, StoredTable, VirtualTableProvider};
use crate::table::row_counts::RowCounts;
use crate::table::{Catalog, ColumnStore, Counter, Entry, Sequence, View, ViewDefinition};

/// The views whose queries are being planned.
#[derive(Clone, Default)]
struct Expanding {
    /// The outermost first.
    views: Vec<view_dependencies::Name>,
    /// The depth of their queries together: one is planned inside the other.
    depth: crate::engine::parse::nesting_depth::NestingDepth,
    /// The rights of the innermost view's owner; `None` in a session of the node itself.
    access: Option<Access>,
}

tokio::task_local! {
    static EXPANDING: Expanding;
}

/// The view that a session's running statement reads.
#[derive(Debug)]
pub(crate) struct StatementView {
    store: Store,
    /// `None` while the session waits for its client outside a transaction: an open snapshot would keep old versions of
    /// all changes by others.
    now: RwLock<(Option<View>, Arc<Catalog>)>,
    made: RwLock<HashMap<String, Arc<MemTable>>>,
    /// Who the session's statements ask for; `None`: the node itself.
    identity: RwLock<Option<SessionIdentity>>,
    /// The rights of the running statement; `None`: the node itself.
    access: RwLock<Option<Access>>,
    /// What happened to names since the snapshot of the running statement, if something did.
    meanwhile: RwLock<Option<Meanwhile>>,
    /// What its statements record.
    pub(crate) trail: Trail,
    columns: Arc<dyn ColumnStore>,
    counts: Arc<RowCounts>,
    files: Arc<FileCache>,
    sequences: Arc<Sequences>,
    /// What the session took from sequences.
    pub(crate) taken: TakenValues,
    /// Whether the running statement may change nothing.
    read_only: AtomicBool,
    pub(crate) state: OnceLock<Weak<parking_lot::RwLock<DfState>>>,
}

impl StatementView {
    pub(crate) fn new(engine: &Engine) -> StatementView {
        let (store, now) = (engine.store.clone(), RwLock::new((None, Arc::new(Catalog::default()))));
        let (columns, counts, files) = (engine.columns.clone(), engine.counts.clone(), engine.files.clone());
        let (made, identity, access, meanwhile) =
            (RwLock::default(), RwLock::default(), RwLock::default(), RwLock::default());
        let trail = Trail::new(engine.options.audit.clone());
        StatementView {
            store,
            now,
            made,
            identity,
            access,
            meanwhile,
            trail,
            columns,
            counts,
            files,
            sequences: engine.sequences.clone(),
            taken: TakenValues::default(),
            read_only: AtomicBool::new(false),
            state: OnceLock::new(),
        }
    }

    /// Plans read this view from now on.
    pub(crate) fn set(&self, view: View, catalog: Arc<Catalog>, meanwhile: Option<Meanwhile>) {
        *self.now.write() = (Some(view), catalog);
        *self.meanwhile.write() = meanwhile;
    }

    /// Where a sequence stands.
    pub(crate) fn standing(&self, sequence: &Sequence) -> Result<Counter, SqlError> {
        self.sequences.now(sequence)
    }

    /// Whether the running statement may change nothing.
    pub(crate) fn is_read_only(&self) -> bool {
        self.read_only.load(Ordering::Relaxed)
    }

    /// Statements may change nothing, or everything, from now on.
    pub(crate) fn set_read_only(&self, is: bool) {
        self.read_only.store(is, Ordering::Relaxed);
    }

    /// Who the session's statements ask for.
    pub(crate) fn identity(&self) -> Option<SessionIdentity> {
        self.identity.read().clone()
    }

    /// Statements ask for this one from now on.
    pub(crate) fn set_identity(&self, identity: Option<SessionIdentity>) {
        *self.identity.write() = identity;
        self.renew_access(OwnObjects::default());
    }

    /// The rights of the running statement.
    pub(crate) fn access(&self) -> Option<Access> {
        self.access.read().clone()
    }

    /// A statement begins: it has the rights of now, and what its transaction created.
    pub(crate) fn renew_access(&self, own: OwnObjects) {
        *self.access.write() = self.identity().map(|identity| Access::new(identity, own, self.trail.clone()));
    }

    /// Waits until a right of the running statement is revoked.
    pub(crate) async fn until_revoked(&self) -> bool {
        let Some(access) = self.access() else { return std::future::pending().await };
        let mut changed = access.identity().guard().changed();
        // A statement takes its rights again when it takes another snapshot.
        while self.access().is_none_or(|access| access.recheck().is_ok()) {
            if changed.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
        self.access().is_some_and(|access| access.is_over())
    }

    /// A kept plan runs: what it asked is asked again when rights change.
    pub(crate) fn take_questions_of(&self, earlier: &Access) {
        let mut access = self.access.write();
        *access = access.take().map(|access| access.with_questions_of(earlier));
    }

    /// The plan of a prepared query, if it was made for the catalog and the rights of now. The statement then asks what the
    /// plan asked.
    pub(crate) fn kept_plan(&self, prepared: &Prepared) -> Option<LogicalPlan> {
        let kept = prepared.plan.as_ref()?;
        let is_same = match (&kept.access, self.access()) {
            (None, None) => true,
            (Some(kept), Some(now)) => kept.is_same(&now),
            _ => false,
        };
        if !is_same || !Arc::ptr_eq(&kept.catalog, &self.catalog()) {
            return None;
        }
        if let Some(access) = &kept.access {
            self.take_questions_of(access);
        }
        Some(kept.plan.clone())
    }

    /// Whether a name of the statement's snapshot stands for the object that the rights of now are about.
    ///
    /// Errors: 40001.
    pub(crate) fn still(&self, access: &Access, schema: &str, name: &str, by_columns: bool) -> Result<(), SqlError> {
        match &*self.meanwhile.read() {
            Some(meanwhile) if !access.has_made(schema, name) => meanwhile.still(schema, name, by_columns),
            _ => Ok(()),
        }
    }

    /// Releases the view: no plan reads anything any more.
    pub(crate) fn let_go(&self) {
        let view = self.now.write().0.take();
        drop(view);
    }

    pub(crate) fn catalog(&self) -> Arc<Catalog> {
        self.now.read().1.clone()
    }

    /// Shows a table of the engine's own in [`MADE`], until it is removed with `None`.
    pub(crate) fn make(&self, name: &str, table: Option<MemTable>) {
        let mut made = self.made.write();
        match table {
            Some(table) => made.insert(name.into(), Arc::new(table)),
            None => made.remove(name),
        };
    }
}

impl Reads for StatementView {
    fn view(&self) -> View {
        let view = self.now.read().0.clone();
        view.unwrap_or_else(|| View::Snapshot(self.store.snapshot()))
    }
}

/// The catalog of a session.
#[derive(Clone, Debug)]
pub(crate) struct SessionCatalog {
    shared: Arc<StatementView>,
    /// Schemas that other modules registered, such as `pg_catalog`.
    others: Arc<RwLock<HashMap<String, Arc<dyn SchemaProvider>>>>,
}

impl SessionCatalog {
    pub(crate) fn new(shared: Arc<StatementView>) -> SessionCatalog {
        SessionCatalog { shared, others: Arc::default() }
    }
}

impl CatalogProvider for SessionCatalog {
    fn schema_names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.shared.catalog().schemas.keys().cloned().collect();
        names.extend(self.others.read().keys().cloned());
        names
    }

    fn schema(&self, name: &str) -> Option<Arc<dyn SchemaProvider>> {
        if name == INFORMATION_SCHEMA {
            let names: Arc<dyn CatalogProvider> = Arc::new(self.clone());
            let rights = RightsViews::new(self.shared.access(), self.shared.catalog(), names);
            return Some(information_schema::schema(rights));
        }
        if let Some(other) = self.others.read().get(name) {
            return Some(other.clone());
        }
        let (schema, addressed) = match name.strip_prefix(TARGET) {
            Some(schema) => (schema, true),
            None => (name, false),
        };
        if name != MADE && !self.shared.catalog().schemas.contains_key(schema) {
            return None;
        }
        Some(Arc::new(SessionSchema { shared: self.shared.clone(), schema: schema.into(), addressed }))
    }

    fn register_schema(
        &self,
        name: &str,
        schema: Arc<dyn SchemaProvider>,
    ) -> DfResult<Option<Arc<dyn SchemaProvider>>> {
        Ok(self.others.write().insert(name.into(), schema))
    }
}

/// One schema, as the statement sees it.
#[derive(Debug)]
struct SessionSchema {
    shared: Arc<StatementView>,
    schema: String,
    addressed: bool,
}

#[async_trait]
impl SchemaProvider for SessionSchema {
    fn table_names(&self) -> Vec<String> {
        let (catalog, access) = (self.shared.catalog(), self.shared.access());
        let shows = |name: &&String| access.as_ref().is_none_or(|access| access.shows(&self.schema, name));
        let names = catalog.schemas.get(&self.schema).into_iter().flatten();
        // As in PostgreSQL a list of tables contains no sequences.
        let names = names.filter(|(_, entry)| !matches!(entry, Entry::Sequence(_))).map(|(name, _)| name);
        names.filter(shows).cloned().collect()
    }

    async fn table(&self, name: &str) -> DfResult<Option<Arc<dyn TableProvider>>> {
        let expanding = EXPANDING.try_with(Clone::clone).ok();
        if (self.schema == MADE || self.addressed) && expanding.is_some() {
            // These are the engine's own names: no view may read them.
            return Ok(None);
        }
        if self.schema == MADE {
            let made = self.shared.made.read().get(name).cloned();
            return Ok(made.map(|table| table as Arc<dyn TableProvider>));
        }
        let access = match expanding {
            Some(expanding) => expanding.access,
            None => self.shared.access(),
        };
        if self.addressed {
            // The statement that changes the table has asked for what it does to it.
            return self.provider(name, access.as_ref()).await;
        }
        let Some(access) = access else { return self.provider(name, None).await };
        access.schema(&self.schema)?;
        let what = match self.shared.catalog().get(&self.schema, name) {
            None => return Ok(None),
            Some(Entry::View(_)) => "view",
            Some(Entry::Sequence(_)) => "sequence",
            Some(_) => "table",
        };
        access.some(Action::TableSelect, what, &self.schema, name)?;
        let whole = access.has_whole(Action::TableSelect, &self.schema, name);
        self.shared.still(&access, &self.schema, name, !whole)?;
        let Some(inner) = self.provider(name, Some(&access)).await? else { return Ok(None) };
        if whole {
            return Ok(Some(inner));
        }
        let (schema, name) = (self.schema.clone(), name.to_owned());
        let ask = move |columns| access.columns(Action::TableSelect, what, (&schema, &name), columns);
        Ok(Some(Arc::new(GuardedTable { inner, ask: Box::new(ask) })))
    }

    /// Determines the type without planning views: a list of names may include a view that cannot be planned.
    async fn table_type(&self, name: &str) -> DfResult<Option<TableType>> {
        Ok(match (self.schema.as_str(), self.shared.catalog().get(&self.schema, name)) {
            (MADE, _) => self.table_exist(name).then_some(TableType::Base),
            (_, None) => None,
            (_, Some(Entry::View(_))) => Some(TableType::View),
            (_, Some(_)) => Some(TableType::Base),
        })
    }

    fn table_exist(&self, name: &str) -> bool {
        match self.schema.as_str() {
            MADE => self.shared.made.read().contains_key(name),
            schema => self.shared.catalog().get(schema, name).is_some(),
        }
    }
}

impl SessionSchema {
    /// The table of a name; `access` is whose rights count in it.
    async fn provider(&self, name: &str, access: Option<&Access>) -> DfResult<Option<Arc<dyn TableProvider>>> {
        let catalog = self.shared.catalog();
        let reads: Arc<dyn Reads> = self.shared.clone();
        Ok(match catalog.get(&self.schema, name) {
            None => None,
            Some(Entry::Virtual(table)) => {
                let identity = access.map(Access::for_scans);
                Some(Arc::new(VirtualTableProvider { table: table.clone(), reads, identity }))
            }
            Some(Entry::Table(table)) => Some(Arc::new(StoredTable {
                table: table.clone(),
                reads,
                columns: self.shared.columns.clone(),
                counts: self.shared.counts.clone(),
                addressed: self.addressed,
            })),
            Some(Entry::External(table)) => {
                Some(Arc::new(ExternalTable::new(table.clone(), self.shared.files.clone())?))
            }
            Some(Entry::View(view)) => Some(self.view(name, view, access).await?),
            Some(Entry::Sequence(sequence)) => {
                Some(Arc::new(sequence_rows::table(self.shared.sequences.now(sequence)?)?))
            }
        })
    }

    /// A view. For who is not its owner it is a barrier, unless its option says otherwise.
    async fn view(
        &self,
        name: &str,
        definition: &ViewDefinition,
        reader: Option<&Access>,
    ) -> DfResult<Arc<dyn TableProvider>> {
        let Expanding { views: mut expanding, depth, .. } = EXPANDING.try_with(Clone::clone).unwrap_or_default();
        let this = (self.schema.clone(), name.to_string());
        if expanding.contains(&this) {
            return Err(view_dependencies::recursion(name).into());
        }
        if expanding.len() == DEEP_MOST {
            let message = format!("view \"{name}\" nests too deeply: at most {DEEP_MOST} views may read one another");
            return Err(SqlError::statement("54001", message).into());
        }
        expanding.push(this);
        let access = reader.map(|access| access.on_behalf_of_owner(&self.schema, name)).transpose()?;
        let is_other = match (reader, &access) {
            (Some(reader), Some(owner)) => reader.caller().current() != owner.caller().current(),
            _ => false,
        };
        let is_barrier = definition.barrier.unwrap_or(is_other);
        let sql: &str = &definition.sql;
        let state = self.shared.state.get().and_then(Weak::upgrade);
        let state = state.ok_or_else(|| DataFusionError::Internal("the session is gone".into()))?;
        let state = state.read().clone();
        let (mut statements, depth) = parse::deep_statements(sql, depth)?;
        let statement = statements.pop().ok_or_else(|| DataFusionError::Internal("an empty view".into()))?;
        let planning = Box::pin(prepared::plan(&state, statement, &[]));
        let (plan, _) = EXPANDING.scope(Expanding { views: expanding, depth, access }, planning).await?;
        let schema = is_barrier.then(|| prepared::columns_of(&state, &plan));
        let view = ViewTable::new(plan, Some(sql.into()));
        Ok(match schema {
            Some(schema) => Arc::new(BarrierTable { name: format!("{}.{name}", self.schema), view, schema }),
            None => Arc::new(view),
        })
    }
}
