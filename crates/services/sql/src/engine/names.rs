//! How DataFusion finds tables: [`Shared`] is what a session's statement reads at the moment, [`Names`] the catalog made
//! of it.
//!
//! Two schemas are not for users: [`TARGET`] holds the tables once more with the column of row addresses, for the
//! queries that changes of rows are planned as; [`MADE`] holds batches that the engine made itself, for RETURNING and
//! ON CONFLICT.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock, Weak};

use async_trait::async_trait;
use datafusion::catalog::{CatalogProvider, MemTable, SchemaProvider, TableProvider};
use datafusion::datasource::ViewTable;
use datafusion::error::{DataFusionError, Result as DfResult};
use datafusion::execution::SessionState as DfState;
use datafusion::logical_expr::TableType;
use parking_lot::RwLock;

use super::views::{self, DEEP_MOST};
use super::{Engine, parse, prepared};
use crate::SqlError;
use crate::external::{ExternalTable, Files};
use crate::table::counts::RowCounts;
use crate::table::scan::{Reads, RelationTable, StoredTable};
use crate::table::{Catalog, ColumnForm, Entry, View};

/// The one database of a node.
pub(crate) const DATABASE: &str = "terrace";
/// The tables with their addresses, as schema `$target/` and the schema's own name.
pub(crate) const TARGET: &str = "$target/";
/// The engine's own batches.
pub(crate) const MADE: &str = "$made";

/// The views whose queries are being planned.
#[derive(Clone, Default)]
struct Expanding {
    /// The outermost first.
    views: Vec<views::Name>,
    /// How deep their queries are together: one is planned inside of the other.
    depth: super::depth::Depth,
}

tokio::task_local! {
    static EXPANDING: Expanding;
}

/// What a session's running statement reads.
#[derive(Debug)]
pub(crate) struct Shared {
    now: RwLock<(View, Arc<Catalog>)>,
    made: RwLock<HashMap<String, Arc<MemTable>>>,
    columns: Arc<dyn ColumnForm>,
    counts: Arc<RowCounts>,
    files: Arc<Files>,
    pub(crate) state: OnceLock<Weak<parking_lot::RwLock<DfState>>>,
}

impl Shared {
    pub(crate) fn new(view: View, engine: &Engine) -> Shared {
        let now = RwLock::new((view, Arc::new(Catalog::default())));
        let (columns, counts, files) = (engine.columns.clone(), engine.counts.clone(), engine.files.clone());
        Shared { now, made: RwLock::default(), columns, counts, files, state: OnceLock::new() }
    }

    /// From here on plans read this.
    pub(crate) fn set(&self, view: View, catalog: Arc<Catalog>) {
        *self.now.write() = (view, catalog);
    }

    pub(crate) fn catalog(&self) -> Arc<Catalog> {
        self.now.read().1.clone()
    }

    /// Shows a table of the engine's own in [`MADE`] until it is taken back.
    pub(crate) fn make(&self, name: &str, table: Option<MemTable>) {
        let mut made = self.made.write();
        match table {
            Some(table) => made.insert(name.into(), Arc::new(table)),
            None => made.remove(name),
        };
    }
}

impl Reads for Shared {
    fn view(&self) -> View {
        self.now.read().0.clone()
    }
}

/// The catalog of a session.
#[derive(Debug)]
pub(crate) struct Names {
    shared: Arc<Shared>,
    /// Schemas that others registered, such as `pg_catalog`.
    others: RwLock<HashMap<String, Arc<dyn SchemaProvider>>>,
}

impl Names {
    pub(crate) fn new(shared: Arc<Shared>) -> Names {
        Names { shared, others: RwLock::default() }
    }
}

impl CatalogProvider for Names {
    fn schema_names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.shared.catalog().schemas.keys().cloned().collect();
        names.extend(self.others.read().keys().cloned());
        names
    }

    fn schema(&self, name: &str) -> Option<Arc<dyn SchemaProvider>> {
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
        Some(Arc::new(Namespace { shared: self.shared.clone(), schema: schema.into(), addressed }))
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
struct Namespace {
    shared: Arc<Shared>,
    schema: String,
    addressed: bool,
}

#[async_trait]
impl SchemaProvider for Namespace {
    fn table_names(&self) -> Vec<String> {
        let catalog = self.shared.catalog();
        catalog.schemas.get(&self.schema).map(|names| names.keys().cloned().collect()).unwrap_or_default()
    }

    async fn table(&self, name: &str) -> DfResult<Option<Arc<dyn TableProvider>>> {
        if self.schema == MADE {
            let made = self.shared.made.read().get(name).cloned();
            return Ok(made.map(|table| table as Arc<dyn TableProvider>));
        }
        let catalog = self.shared.catalog();
        let reads: Arc<dyn Reads> = self.shared.clone();
        Ok(match catalog.get(&self.schema, name) {
            None => None,
            Some(Entry::Relation(relation)) => Some(Arc::new(RelationTable { relation: relation.clone(), reads })),
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
            Some(Entry::View(sql)) => Some(Arc::new(self.view(name, sql).await?)),
        })
    }

    /// Says it without planning views: whoever lists names meets one that cannot be planned.
    async fn table_type(&self, name: &str) -> DfResult<Option<TableType>> {
        if let Some(Entry::View(_)) = self.shared.catalog().get(&self.schema, name) {
            return Ok(Some(TableType::View));
        }
        Ok(self.table(name).await?.map(|table| table.table_type()))
    }

    fn table_exist(&self, name: &str) -> bool {
        match self.schema.as_str() {
            MADE => self.shared.made.read().contains_key(name),
            schema => self.shared.catalog().get(schema, name).is_some(),
        }
    }
}

impl Namespace {
    async fn view(&self, name: &str, sql: &str) -> DfResult<ViewTable> {
        let Expanding { views: mut expanding, depth } = EXPANDING.try_with(Clone::clone).unwrap_or_default();
        let this = (self.schema.clone(), name.to_string());
        if expanding.contains(&this) {
            return Err(views::recursion(name).into());
        }
        if expanding.len() == DEEP_MOST {
            let message = format!("view \"{name}\" is the end of {DEEP_MOST} views that each read the next");
            return Err(SqlError::statement("54001", message).into());
        }
        expanding.push(this);
        let state = self.shared.state.get().and_then(Weak::upgrade);
        let state = state.ok_or_else(|| DataFusionError::Internal("the session is gone".into()))?;
        let state = state.read().clone();
        let (mut statements, depth) = parse::deep_statements(sql, depth)?;
        let statement = statements.pop().ok_or_else(|| DataFusionError::Internal("an empty view".into()))?;
        let planning = Box::pin(prepared::plan(&state, statement, &[]));
        let (plan, _) = EXPANDING.scope(Expanding { views: expanding, depth }, planning).await?;
        Ok(ViewTable::new(plan, Some(sql.into())))
    }
}
