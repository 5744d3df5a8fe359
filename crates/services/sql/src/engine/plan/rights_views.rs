//! The views of `information_schema` about roles and rights, as PostgreSQL 15 defines them in its `information_schema.sql`.
//!
//! ```text
//!   enabled_roles                      roles whose rights the session has
//!   applicable_roles                   their memberships; administrable_role_authorizations: those with ADMIN OPTION
//!   table_privileges                   rights on whole tables and views
//!   column_privileges                  the same for each column, and rights on single columns
//!   role_table_grants, role_column_grants    the same, without what everyone has by others
//!   usage_privileges                   those of sequences: there are no domains and foreign servers
//! ```
//!
//! A session sees a right if it has the rights of who has it or of who granted it, or if everyone has it; administrators see
//! all. A right on a pattern of tables is listed for each of them, as in `pg_class`. Rights by break-glass are not SQL's and are
//! not listed. Columns of a view show to who may read the view.
//!
//! Not here: rights on the tables of the catalogs themselves.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, StringArray};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::catalog::streaming::StreamingTable;
use datafusion::catalog::{CatalogProvider, MemTable};
use datafusion::error::Result as DfResult;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::PartitionStream;
use futures::stream;
use node::identity::{
    Action, Directory, ObjectKind, ObjectPattern, PrivilegeKey, PrivilegeOptions, RightsView as NodeRights, RoleId,
};

use super::access::{Access, exactly, table_object};
use super::sequence_rows;
use crate::engine::parse::ast::DATABASE;
use crate::table::{Catalog, Entry, Sequence};

/// What SQL calls everyone in these views.
const EVERYONE: &str = "PUBLIC";

/// What an owner has, in PostgreSQL's order.
const OF_TABLES: [Action; 7] = [
    Action::TableInsert,
    Action::TableSelect,
    Action::TableUpdate,
    Action::TableDelete,
    Action::TableTruncate,
    Action::TableReferences,
    Action::TableTrigger,
];

/// Rights that there are on columns.
const OF_COLUMNS: [Action; 4] =
    [Action::TableInsert, Action::TableSelect, Action::TableUpdate, Action::TableReferences];

/// One of the views.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Which {
    EnabledRoles,
    ApplicableRoles,
    AdministrableRoles,
    TablePrivileges,
    RoleTableGrants,
    ColumnPrivileges,
    RoleColumnGrants,
    UsagePrivileges,
}

const ROLES: &[&str] = &["grantee", "role_name", "is_grantable"];
const TABLES: &[&str] = &[
    "grantor",
    "grantee",
    "table_catalog",
    "table_schema",
    "table_name",
    "privilege_type",
    "is_grantable",
    "with_hierarchy",
];
const COLUMNS: &[&str] = &[
    "grantor",
    "grantee",
    "table_catalog",
    "table_schema",
    "table_name",
    "column_name",
    "privilege_type",
    "is_grantable",
];
const USAGE: &[&str] = &[
    "grantor",
    "grantee",
    "object_catalog",
    "object_schema",
    "object_name",
    "object_type",
    "privilege_type",
    "is_grantable",
];

/// The views by name, with their columns.
const VIEWS: [(&str, Which, &[&str]); 8] = [
    ("enabled_roles", Which::EnabledRoles, &["role_name"]),
    ("applicable_roles", Which::ApplicableRoles, ROLES),
    ("administrable_role_authorizations", Which::AdministrableRoles, ROLES),
    ("table_privileges", Which::TablePrivileges, TABLES),
    ("role_table_grants", Which::RoleTableGrants, TABLES),
    ("column_privileges", Which::ColumnPrivileges, COLUMNS),
    ("role_column_grants", Which::RoleColumnGrants, COLUMNS),
    ("usage_privileges", Which::UsagePrivileges, USAGE),
];

/// The names of the views.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    VIEWS.iter().map(|(name, ..)| *name)
}

/// A right: who granted it, who has it, what, and whether it may be granted on.
type Right = (RoleId, RoleId, Action, bool);

/// What somebody granted.
type Granted<'v> = (&'v PrivilegeKey, &'v PrivilegeOptions);

/// Roles and rights as a statement sees them.
#[derive(Clone, Debug)]
pub(crate) struct RightsViews {
    view: Arc<NodeRights>,
    /// The role whose rights count.
    current: RoleId,
    /// The statement's rights; `None` in a session of the node itself.
    pub(super) access: Option<Access>,
    pub(super) catalog: Arc<Catalog>,
    pub(super) names: Arc<dyn CatalogProvider>,
}

impl RightsViews {
    /// For a statement. A session of the node itself has one role, the node's.
    pub(crate) fn new(access: Option<Access>, catalog: Arc<Catalog>, names: Arc<dyn CatalogProvider>) -> RightsViews {
        let (view, current) = match &access {
            Some(access) => (Arc::clone(access.rights()), access.caller().current()),
            None => (Arc::new(NodeRights::of(Arc::new(Directory::default()), 0)), RoleId::LOCAL),
        };
        RightsViews { view, current, access, catalog, names }
    }

    /// One of the views; `None` for another name.
    pub(crate) fn table(&self, name: &str) -> DfResult<Option<StreamingTable>> {
        let Some((_, which, columns)) = VIEWS.iter().find(|(known, ..)| *known == name) else { return Ok(None) };
        let fields: Vec<Field> = columns.iter().map(|name| Field::new(*name, DataType::Utf8, true)).collect();
        let schema = Arc::new(Schema::new(fields));
        let part = RightsRows { rights: self.clone(), which: *which, schema: Arc::clone(&schema) };
        StreamingTable::try_new(schema, vec![Arc::new(part)]).map(Some)
    }

    async fn rows(&self, which: Which) -> Vec<Vec<String>> {
        match which {
            Which::EnabledRoles => self.enabled().into_iter().map(|id| vec![self.named(id)]).collect(),
            Which::ApplicableRoles => self.memberships(false),
            Which::AdministrableRoles => self.memberships(true),
            Which::TablePrivileges => self.tables(false),
            Which::RoleTableGrants => self.tables(true),
            Which::ColumnPrivileges => self.columns(false).await,
            Which::RoleColumnGrants => self.columns(true).await,
            Which::UsagePrivileges => self.usage(),
        }
    }

    /// The name of a role.
    pub(super) fn named(&self, id: RoleId) -> String {
        if id == RoleId::PUBLIC { EVERYONE.to_owned() } else { self.view.directory().name_of(id).to_owned() }
    }

    /// Whether the session has the rights of a role.
    fn has(&self, id: RoleId) -> bool {
        self.view.has_rights_of(self.current, id)
    }

    fn enabled(&self) -> Vec<RoleId> {
        self.view.directory().roles().keys().copied().filter(|id| self.has(*id)).collect()
    }

    fn memberships(&self, only_admin: bool) -> Vec<Vec<String>> {
        let members = self.view.directory().members().iter();
        let shown: BTreeSet<(RoleId, RoleId, bool)> = members
            .filter(|((member, ..), membership)| self.has(*member) && (membership.admin || !only_admin))
            .map(|((member, role, _), membership)| (*member, *role, membership.admin))
            .collect();
        shown.into_iter().map(|(member, role, admin)| vec![self.named(member), self.named(role), yes(admin)]).collect()
    }

    /// Whether a right shows, in the views that have those of everyone or in those that have not.
    fn shows(&self, right: &Right, only_roles: bool) -> bool {
        let (grantor, grantee, ..) = *right;
        self.has(grantor) || (grantee == RoleId::PUBLIC && !only_roles) || self.has(grantee)
    }

    fn owner(&self, schema: &str, table: &str) -> RoleId {
        let Some(access) = &self.access else { return RoleId::LOCAL };
        access.owner(schema, table).unwrap_or(RoleId::LOCAL)
    }

    /// Rows of the views of tables.
    fn tables(&self, only_roles: bool) -> Vec<Vec<String>> {
        let index = PrivilegeIndex::of(self.view.directory());
        let mut rows = Vec::new();
        for (schema, tables) in &self.catalog.schemas {
            for table in tables.iter().filter(|(_, entry)| !is_sequence(entry)).map(|(name, _)| name) {
                let owner = self.owner(schema, table);
                let rights = index.rights((schema, table), None, owner);
                for right in rights.iter().filter(|right| self.shows(right, only_roles)) {
                    let (grantor, grantee, action, grantable) = *right;
                    rows.push(vec![
                        self.named(grantor),
                        self.named(grantee),
                        DATABASE.to_owned(),
                        schema.clone(),
                        table.clone(),
                        keyword(action),
                        yes(grantable || self.view.has_rights_of(grantee, owner)),
                        yes(action == Action::TableSelect),
                    ]);
                }
            }
        }
        rows
    }

    /// Rows of `usage_privileges`: USAGE of a sequence is the right to insert.
    fn usage(&self) -> Vec<Vec<String>> {
        let index = PrivilegeIndex::of(self.view.directory());
        let mut rows = Vec::new();
        for sequence in self.catalog.sequences() {
            let (schema, name) = (&sequence.schema_name, &sequence.name);
            let owner = self.owner(schema, name);
            let rights = index.rights((schema, name), None, owner);
            let is_usage = |right: &&Right| right.2 == Action::TableInsert && self.shows(right, false);
            for (grantor, grantee, _, grantable) in rights.iter().filter(is_usage) {
                rows.push(vec![
                    self.named(*grantor),
                    self.named(*grantee),
                    DATABASE.to_owned(),
                    schema.clone(),
                    name.clone(),
                    "SEQUENCE".to_owned(),
                    "USAGE".to_owned(),
                    yes(*grantable || self.view.has_rights_of(*grantee, owner)),
                ]);
            }
        }
        rows
    }

    /// `information_schema.sequences`: as in PostgreSQL without those of identity columns.
    pub(crate) fn sequences(&self) -> DfResult<MemTable> {
        let actions = [Action::TableInsert, Action::TableSelect, Action::TableUpdate];
        let shows = |sequence: &&Arc<Sequence>| {
            let (schema, name) = (&sequence.schema_name, &sequence.name);
            let may = |access: &Access| access.has_one_of(&actions, schema, name);
            !sequence.owner.as_ref().is_some_and(|owner| owner.identity) && self.access.as_ref().is_none_or(may)
        };
        sequence_rows::listed(self.catalog.sequences().filter(shows))
    }

    /// Rows of the views of columns.
    async fn columns(&self, only_roles: bool) -> Vec<Vec<String>> {
        let index = PrivilegeIndex::of(self.view.directory());
        let mut rows = Vec::new();
        for (schema, tables) in &self.catalog.schemas {
            for (table, entry) in tables {
                let owner = self.owner(schema, table);
                let is_of_columns = |right: &Right| OF_COLUMNS.contains(&right.2) && self.shows(right, only_roles);
                let mut whole = index.rights((schema, table), None, owner);
                whole.retain(|right| is_of_columns(right));
                for column in self.columns_of(schema, table, entry).await {
                    let single = index.rights((schema, table), Some(&column), owner);
                    let all: BTreeSet<&Right> =
                        whole.iter().chain(single.iter().filter(|right| is_of_columns(right))).collect();
                    for (grantor, grantee, action, grantable) in all {
                        rows.push(vec![
                            self.named(*grantor),
                            self.named(*grantee),
                            DATABASE.to_owned(),
                            schema.clone(),
                            table.clone(),
                            column.clone(),
                            keyword(*action),
                            yes(*grantable || self.view.has_rights_of(*grantee, owner)),
                        ]);
                    }
                }
            }
        }
        rows
    }

    /// The columns of a table. A view that cannot be planned, or that the session may not read, shows none.
    async fn columns_of(&self, schema: &str, table: &str, entry: &Entry) -> Vec<String> {
        let columns = self.fields_of(schema, table, entry).await;
        columns.iter().flat_map(|columns| columns.fields()).map(|field| field.name().clone()).collect()
    }

    /// The same with their types; `None` where none are shown.
    pub(super) async fn fields_of(&self, schema: &str, table: &str, entry: &Entry) -> Option<SchemaRef> {
        match entry {
            Entry::Table(stored) => Some(stored.declared()),
            Entry::Virtual(lent) => Some(lent.schema()),
            Entry::External(external) => Some(external.schema.clone()),
            Entry::Sequence(_) => None,
            Entry::View(_) => {
                if self.access.as_ref().is_some_and(|access| !access.shows(schema, table)) {
                    return None;
                }
                let planned = self.names.schema(schema)?.table(table).await.ok()??;
                Some(planned.schema())
            }
        }
    }
}

/// What was granted on tables, by the tables.
struct PrivilegeIndex<'v> {
    exact: BTreeMap<&'v ObjectPattern, Vec<Granted<'v>>>,
    patterns: Vec<Granted<'v>>,
}

impl<'v> PrivilegeIndex<'v> {
    fn of(directory: &'v Directory) -> PrivilegeIndex<'v> {
        let mut index = PrivilegeIndex { exact: BTreeMap::new(), patterns: Vec::new() };
        for granted in directory.privileges() {
            let (key, options) = granted;
            if key.object.kind() != ObjectKind::Table || !OF_TABLES.contains(&key.action) || options.reason.is_some() {
                continue;
            }
            match key.object.is_exact() {
                true => index.exact.entry(&key.object).or_default().push(granted),
                false => index.patterns.push(granted),
            }
        }
        index
    }

    /// The rights on a table, or those on one of its columns alone. An owner has all on the table, whatever was granted to it.
    fn rights(&self, (schema, table): (&str, &str), column: Option<&str>, owner: RoleId) -> Vec<Right> {
        let object = table_object(schema, table);
        let Ok(pattern) = exactly(object) else { return Vec::new() };
        let own = self.exact.get(&pattern).into_iter().flatten();
        let all = own.chain(self.patterns.iter().filter(|(key, _)| key.object.matches(&object)));
        let mut rights: BTreeMap<(RoleId, RoleId, Action), bool> = BTreeMap::new();
        for (key, options) in all.filter(|(key, _)| key.column.as_deref() == column) {
            if column.is_some() || key.grantee != owner {
                *rights.entry((key.granted_by, key.grantee, key.action)).or_default() |= options.grant_option;
            }
        }
        if column.is_none() {
            rights.extend(OF_TABLES.map(|action| ((owner, owner, action), false)));
        }
        rights.into_iter().map(|((by, to, action), grantable)| (by, to, action, grantable)).collect()
    }
}

fn is_sequence(entry: &Entry) -> bool {
    matches!(entry, Entry::Sequence(_))
}

fn keyword(action: Action) -> String {
    action.keyword().unwrap_or_default().to_owned()
}

fn yes(is: bool) -> String {
    if is { "YES" } else { "NO" }.to_owned()
}

/// The rows of one view. They are found when the plan runs: planning a query of a view must not plan other views.
#[derive(Debug)]
struct RightsRows {
    rights: RightsViews,
    which: Which,
    schema: SchemaRef,
}

impl PartitionStream for RightsRows {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let (rights, which, schema) = (self.rights.clone(), self.which, Arc::clone(&self.schema));
        let batch = async move {
            let rows = rights.rows(which).await;
            let value = |at: usize| rows.iter().map(|row| row.get(at).cloned()).collect::<StringArray>();
            let values = (0..schema.fields().len()).map(|at| Arc::new(value(at)) as ArrayRef).collect();
            Ok(RecordBatch::try_new(schema, values)?)
        };
        Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.schema), stream::once(batch)))
    }
}
