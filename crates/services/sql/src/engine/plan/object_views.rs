//! The views of `information_schema` about schemas, tables, views, columns and constraints, as PostgreSQL 15 defines them in its
//! `information_schema.sql`.
//!
//! ```text
//!   schemata                          those that the session may use or make objects in
//!   tables, views, columns            those on which it has some right; the query of a view to who has its owner's rights
//!   table_constraints                 of tables on which it has a right beside SELECT
//!   key_column_usage                  columns of keys on which it has some right
//!   constraint_column_usage, constraint_table_usage, check_constraints     of tables with whose owner's rights it is
//!   referential_constraints           as table_constraints
//! ```
//!
//! As for other lists, the schema of a table has to be one that the session may use. A view that cannot be planned (what it reads is
//! gone, or its owner may not read it any more) has no columns here, and the others are listed all the same. Every number is an
//! `int4`, and every other value a text, where PostgreSQL has domains over these.
//!
//! Not here, on purpose: NOT NULL as a CHECK constraint, which PostgreSQL names by numbers of its own; the columns of this schema.

use std::sync::Arc;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::catalog::SchemaProvider;
use datafusion::catalog::streaming::StreamingTable;
use datafusion::error::Result as DfResult;
use datafusion::execution::TaskContext;
use datafusion::logical_expr::TableType;
use datafusion::physical_plan::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::PartitionStream;
use futures::stream;
use node::identity::{Action, RoleId};

use super::access::Access;
use super::listed_columns::{definition_cells, row};
use super::listed_rows::{Cell, ListedRow, batch_of, shape, text, yes_or_no};
use super::rights_views::RightsViews;
use crate::engine::parse::ast::DATABASE;
use crate::engine::parse::check_conditions;
use crate::table::found_key::{FoundKey, key_of};
use crate::table::{Catalog, Entry, ForeignKey, KeyAction, Table};

/// Rights on a table by which it is listed.
const ANY: [Action; 7] = [
    Action::TableSelect,
    Action::TableInsert,
    Action::TableUpdate,
    Action::TableDelete,
    Action::TableTruncate,
    Action::TableReferences,
    Action::TableTrigger,
];

/// Those on a column.
const ANY_OF_COLUMN: [Action; 4] =
    [Action::TableSelect, Action::TableInsert, Action::TableUpdate, Action::TableReferences];

const PRIMARY_KEY: &str = "PRIMARY KEY";
const UNIQUE: &str = "UNIQUE";
const CHECK: &str = "CHECK";
const FOREIGN_KEY: &str = "FOREIGN KEY";

/// One of the views.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ListedView {
    Schemata,
    Tables,
    Views,
    Columns,
    TableConstraints,
    KeyColumnUsage,
    ConstraintColumnUsage,
    ConstraintTableUsage,
    CheckConstraints,
    ReferentialConstraints,
}

/// The views by name, with their columns: see [`shape`].
const VIEWS: [(&str, ListedView, &str); 10] = [
    (
        "schemata",
        ListedView::Schemata,
        "catalog_name, schema_name, schema_owner, default_character_set_catalog, default_character_set_schema, \
         default_character_set_name, sql_path",
    ),
    (
        "tables",
        ListedView::Tables,
        "table_catalog, table_schema, table_name, table_type, self_referencing_column_name, reference_generation, \
         user_defined_type_catalog, user_defined_type_schema, user_defined_type_name, is_insertable_into, is_typed, \
         commit_action",
    ),
    (
        "views",
        ListedView::Views,
        "table_catalog, table_schema, table_name, view_definition, check_option, is_updatable, is_insertable_into, \
         is_trigger_updatable, is_trigger_deletable, is_trigger_insertable_into",
    ),
    (
        "columns",
        ListedView::Columns,
        "table_catalog, table_schema, table_name, column_name, ordinal_position int4, column_default, is_nullable, \
         data_type, character_maximum_length int4, character_octet_length int4, numeric_precision int4, \
         numeric_precision_radix int4, numeric_scale int4, datetime_precision int4, interval_type, \
         interval_precision int4, character_set_catalog, character_set_schema, character_set_name, \
         collation_catalog, collation_schema, collation_name, domain_catalog, domain_schema, domain_name, \
         udt_catalog, udt_schema, udt_name, scope_catalog, scope_schema, scope_name, maximum_cardinality int4, \
         dtd_identifier, is_self_referencing, is_identity, identity_generation, identity_start, \
         identity_increment, identity_maximum, identity_minimum, identity_cycle, is_generated, \
         generation_expression, is_updatable",
    ),
    (
        "table_constraints",
        ListedView::TableConstraints,
        "constraint_catalog, constraint_schema, constraint_name, table_catalog, table_schema, table_name, \
         constraint_type, is_deferrable, initially_deferred, enforced, nulls_distinct",
    ),
    (
        "key_column_usage",
        ListedView::KeyColumnUsage,
        "constraint_catalog, constraint_schema, constraint_name, table_catalog, table_schema, table_name, \
         column_name, ordinal_position int4, position_in_unique_constraint int4",
    ),
    (
        "constraint_column_usage",
        ListedView::ConstraintColumnUsage,
        "table_catalog, table_schema, table_name, column_name, constraint_catalog, constraint_schema, constraint_name",
    ),
    (
        "constraint_table_usage",
        ListedView::ConstraintTableUsage,
        "table_catalog, table_schema, table_name, constraint_catalog, constraint_schema, constraint_name",
    ),
    (
        "check_constraints",
        ListedView::CheckConstraints,
        "constraint_catalog, constraint_schema, constraint_name, check_clause",
    ),
    (
        "referential_constraints",
        ListedView::ReferentialConstraints,
        "constraint_catalog, constraint_schema, constraint_name, unique_constraint_catalog, \
         unique_constraint_schema, unique_constraint_name, match_option, update_rule, delete_rule",
    ),
];

/// The names of the views.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    VIEWS.iter().map(|(name, ..)| *name)
}

/// A constraint of a table.
struct ListedConstraint<'t> {
    name: &'t str,
    kind: &'static str,
    /// Positions of its columns, in the order of a key.
    columns: Vec<usize>,
    /// The condition of a CHECK.
    condition: Option<String>,
    /// For a foreign key: itself, and the table that it refers to.
    refers: Option<(&'t ForeignKey, &'t Table)>,
}

/// The constraints of a table, those of `pg_constraint`.
fn constraints_of<'t>(catalog: &'t Catalog, table: &'t Table) -> Vec<ListedConstraint<'t>> {
    let mut all = Vec::new();
    if !table.key.is_empty() {
        let (name, columns) = (table.key_name.as_str(), table.key.clone());
        all.push(ListedConstraint { name, kind: PRIMARY_KEY, columns, condition: None, refers: None });
    }
    for index in table.indexes.iter().filter(|index| index.constraint) {
        let (name, columns) = (index.name.as_str(), index.columns.clone());
        all.push(ListedConstraint { name, kind: UNIQUE, columns, condition: None, refers: None });
    }
    for check in &table.checks {
        // One whose text cannot be read is not shown.
        let Ok((condition, columns)) = check_conditions::shown(check, &table.columns) else { continue };
        let (name, columns) = (check.name.as_str(), columns.into_iter().collect());
        all.push(ListedConstraint { name, kind: CHECK, columns, condition: Some(condition), refers: None });
    }
    for key in &table.foreign_keys {
        let Some(parent) = catalog.tables().find(|parent| parent.id == key.parent) else { continue };
        let (name, columns, refers) = (key.name.as_str(), key.columns.clone(), Some((key, &**parent)));
        all.push(ListedConstraint { name, kind: FOREIGN_KEY, columns, condition: None, refers });
    }
    all
}

/// The objects as a statement sees them.
#[derive(Clone, Debug)]
pub(super) struct ObjectViews {
    rights: RightsViews,
    /// The name of the schema of all these views, and theirs.
    schema: &'static str,
    system: Arc<Vec<String>>,
}

impl ObjectViews {
    /// For a statement; `system` are the names of the views in `schema`.
    pub(super) fn new(rights: RightsViews, schema: &'static str, system: Vec<String>) -> ObjectViews {
        ObjectViews { rights, schema, system: Arc::new(system) }
    }

    /// One of the views; `None` for another name.
    pub(super) fn table(&self, name: &str) -> DfResult<Option<StreamingTable>> {
        let Some((_, view, columns)) = VIEWS.iter().find(|(known, ..)| *known == name) else { return Ok(None) };
        let schema = shape(columns);
        let part = ObjectRows { objects: self.clone(), view: *view, schema: Arc::clone(&schema) };
        StreamingTable::try_new(schema, vec![Arc::new(part)]).map(Some)
    }

    async fn batch(self, view: ListedView, schema: SchemaRef) -> DfResult<RecordBatch> {
        let rows = match view {
            ListedView::Schemata => self.schemata(),
            ListedView::Tables => self.tables().await,
            ListedView::Views => self.views(),
            ListedView::Columns => self.columns().await,
            ListedView::TableConstraints => self.table_constraints(),
            ListedView::KeyColumnUsage => self.key_columns(),
            ListedView::ConstraintColumnUsage => self.constraint_columns(),
            ListedView::ConstraintTableUsage => self.constraint_tables(),
            ListedView::CheckConstraints => self.check_constraints(),
            ListedView::ReferentialConstraints => self.referential_constraints(),
        };
        batch_of(schema, &rows)
    }

    /// Whether the session may do something; the node itself may do all.
    fn may(&self, may: impl FnOnce(&Access) -> bool) -> bool {
        self.rights.access.as_ref().is_none_or(may)
    }

    fn is_owner(&self, table: &Table) -> bool {
        self.may(|access| access.has_owners_rights(&table.schema_name, &table.name))
    }

    fn sees_column(&self, table: (&str, &str), column: &str) -> bool {
        self.may(|access| access.has_column(&ANY_OF_COLUMN, table, column))
    }

    /// The objects with columns that are listed: schema, name, and what it is.
    fn listed(&self) -> Vec<(&str, &str, &Entry)> {
        let shows = |schema: &str, name: &str| {
            self.may(|access| {
                let has_some = || access.has_some_column(&ANY_OF_COLUMN, schema, name);
                access.uses_schema(schema) && (access.has_one_of(&ANY, schema, name) || has_some())
            })
        };
        let mut listed = Vec::new();
        for (schema, entries) in &self.rights.catalog.schemas {
            for (name, entry) in entries {
                if !matches!(entry, Entry::Sequence(_)) && shows(schema, name) {
                    listed.push((schema.as_str(), name.as_str(), entry));
                }
            }
        }
        listed
    }

    /// The stored tables that are listed.
    fn stored(&self) -> Vec<&Table> {
        let mut tables: Vec<&Table> = Vec::new();
        for (_, _, entry) in self.listed() {
            if let Entry::Table(table) = entry {
                tables.push(table);
            }
        }
        tables
    }

    /// The constraints of the listed tables that have one, each with its table.
    fn constraints(&self) -> Vec<(&Table, ListedConstraint<'_>)> {
        let all = self.stored().into_iter();
        let catalog = &self.rights.catalog;
        all.flat_map(|table| constraints_of(catalog, table).into_iter().map(move |constraint| (table, constraint)))
            .collect()
    }

    /// Schemas that other modules made, such as `pg_catalog`.
    fn catalogs(&self) -> Vec<(String, Arc<dyn SchemaProvider>)> {
        let names = self.rights.names.schema_names().into_iter();
        let others = names.filter(|name| !self.rights.catalog.schemas.contains_key(name));
        others.filter_map(|name| self.rights.names.schema(&name).map(|schema| (name, schema))).collect()
    }

    fn schemata(&self) -> Vec<ListedRow> {
        let own = self
            .rights
            .catalog
            .schemas
            .keys()
            .filter(|schema| self.may(|access| access.uses_schema(schema) || access.makes_in_schema(schema)));
        let catalogs = self.catalogs().into_iter().map(|(name, _)| name).chain([self.schema.to_owned()]);
        let row = |schema: String| {
            let owner = self.rights.access.as_ref().and_then(|access| access.schema_owner(&schema));
            let owner = self.rights.named(owner.unwrap_or(RoleId::LOCAL));
            vec![("catalog_name", text(DATABASE)), ("schema_name", text(schema)), ("schema_owner", text(owner))]
        };
        own.cloned().chain(catalogs).map(row).collect()
    }

    async fn tables(&self) -> Vec<ListedRow> {
        let row = |schema: &str, name: &str, is_view: bool, takes_rows: bool| {
            let mut row = of_table(schema, name);
            row.extend([
                ("table_type", text(if is_view { "VIEW" } else { "BASE TABLE" })),
                ("is_insertable_into", yes_or_no(takes_rows)),
                ("is_typed", text("NO")),
            ]);
            row
        };
        let mut rows = Vec::new();
        for (schema, name, entry) in self.listed() {
            rows.push(row(schema, name, matches!(entry, Entry::View(_)), matches!(entry, Entry::Table(_))));
        }
        for (schema, provider) in self.catalogs() {
            for name in provider.table_names() {
                let kind = provider.table_type(&name).await;
                rows.push(row(&schema, &name, matches!(kind, Ok(Some(TableType::View))), false));
            }
        }
        rows.extend(self.system.iter().map(|name| row(self.schema, name, true, false)));
        rows
    }

    fn views(&self) -> Vec<ListedRow> {
        let mut rows = Vec::new();
        for (schema, name, entry) in self.listed() {
            let Entry::View(view) = entry else { continue };
            let mut row = of_table(schema, name);
            if self.may(|access| access.has_owners_rights(schema, name)) {
                row.push(("view_definition", text(&*view.sql)));
            }
            row.push(("check_option", text("NONE")));
            for column in [
                "is_updatable",
                "is_insertable_into",
                "is_trigger_updatable",
                "is_trigger_deletable",
                "is_trigger_insertable_into",
            ] {
                row.push((column, text("NO")));
            }
            rows.push(row);
        }
        rows
    }

    async fn columns(&self) -> Vec<ListedRow> {
        let (mut rows, catalog) = (Vec::new(), &self.rights.catalog);
        for (schema, name, entry) in self.listed() {
            let Some(fields) = self.rights.fields_of(schema, name, entry).await else { continue };
            let table = of_table(schema, name);
            for (at, field) in fields.fields().iter().enumerate() {
                if !self.sees_column((schema, name), field.name()) {
                    continue;
                }
                let column = match entry {
                    Entry::Table(table) => table.columns.get(at),
                    _ => None,
                };
                // A column of a view may be NULL, as in PostgreSQL.
                let may_be_null = field.is_nullable() || matches!(entry, Entry::View(_));
                let mut row = row(&table, at, &field.as_ref().clone().with_nullable(may_be_null));
                row.extend(definition_cells(catalog, column));
                rows.push(row);
            }
        }
        for (schema, provider) in self.catalogs() {
            for name in provider.table_names() {
                let Ok(Some(made)) = provider.table(&name).await else { continue };
                let table = of_table(&schema, &name);
                for (at, field) in made.schema().fields().iter().enumerate() {
                    let mut row = row(&table, at, field);
                    row.extend(definition_cells(catalog, None));
                    rows.push(row);
                }
            }
        }
        rows
    }

    /// Whether the session has a right on a table beside SELECT.
    fn changes(&self, table: &Table) -> bool {
        let (schema, name) = (&table.schema_name, &table.name);
        self.may(|access| {
            access.has_one_of(&ANY[1..], schema, name) || access.has_some_column(&ANY_OF_COLUMN[1..], schema, name)
        })
    }

    fn table_constraints(&self) -> Vec<ListedRow> {
        let mut rows = Vec::new();
        for (table, constraint) in self.constraints() {
            if !self.changes(table) {
                continue;
            }
            let mut row = of_constraint(table, &constraint);
            row.extend(of_table(&table.schema_name, &table.name));
            row.extend([
                ("constraint_type", text(constraint.kind)),
                ("is_deferrable", text("NO")),
                ("initially_deferred", text("NO")),
                ("enforced", text("YES")),
            ]);
            if constraint.kind == UNIQUE {
                row.push(("nulls_distinct", text("YES")));
            }
            rows.push(row);
        }
        rows
    }

    fn key_columns(&self) -> Vec<ListedRow> {
        let mut rows = Vec::new();
        for (table, constraint) in self.constraints() {
            if constraint.kind == CHECK {
                continue;
            }
            for (place, at) in (1..).zip(&constraint.columns) {
                let column = &table.columns[*at].name;
                if !self.sees_column((&table.schema_name, &table.name), column) {
                    continue;
                }
                let mut row = of_constraint(table, &constraint);
                row.extend(of_table(&table.schema_name, &table.name));
                row.extend([("column_name", text(column)), ("ordinal_position", Cell::Number(place))]);
                if let Some((key, parent)) = constraint.refers
                    && let Some((_, columns)) = referenced(key, parent)
                    && let Some((position, _)) =
                        (1..).zip(columns).find(|(_, of)| **of == key.parent_columns[place as usize - 1])
                {
                    row.push(("position_in_unique_constraint", Cell::Number(position)));
                }
                rows.push(row);
            }
        }
        rows
    }

    fn constraint_columns(&self) -> Vec<ListedRow> {
        let mut rows = Vec::new();
        for (table, constraint) in self.constraints() {
            let (of, columns) = match constraint.refers {
                Some((key, parent)) => (parent, &key.parent_columns),
                None => (table, &constraint.columns),
            };
            if !self.is_owner(of) {
                continue;
            }
            for at in columns {
                let mut row = of_constraint(table, &constraint);
                row.extend(of_table(&of.schema_name, &of.name));
                row.push(("column_name", text(&of.columns[*at].name)));
                rows.push(row);
            }
        }
        rows
    }

    fn constraint_tables(&self) -> Vec<ListedRow> {
        let mut rows = Vec::new();
        for (table, constraint) in self.constraints() {
            let of = constraint.refers.map_or(table, |(_, parent)| parent);
            if constraint.kind != CHECK && self.is_owner(of) {
                let mut row = of_constraint(table, &constraint);
                row.extend(of_table(&of.schema_name, &of.name));
                rows.push(row);
            }
        }
        rows
    }

    fn referential_constraints(&self) -> Vec<ListedRow> {
        let mut rows = Vec::new();
        for (table, constraint) in self.constraints() {
            let Some((key, parent)) = constraint.refers.filter(|_| self.changes(table)) else { continue };
            let mut row = of_constraint(table, &constraint);
            if let Some((Some(name), _)) = referenced(key, parent) {
                row.extend([
                    ("unique_constraint_catalog", text(DATABASE)),
                    ("unique_constraint_schema", text(&parent.schema_name)),
                    ("unique_constraint_name", text(name)),
                ]);
            }
            row.extend([
                ("match_option", text("NONE")),
                ("update_rule", text(rule(key.on_update))),
                ("delete_rule", text(rule(key.on_delete))),
            ]);
            rows.push(row);
        }
        rows
    }

    fn check_constraints(&self) -> Vec<ListedRow> {
        let mut rows = Vec::new();
        for (table, constraint) in self.constraints() {
            if let Some(condition) = &constraint.condition
                && self.is_owner(table)
            {
                let mut row = of_constraint(table, &constraint);
                row.push(("check_clause", text(format!("({condition})"))));
                rows.push(row);
            }
        }
        rows
    }
}

/// The key that a foreign key refers to: its name if a constraint has it, and its columns.
fn referenced<'t>(key: &ForeignKey, parent: &'t Table) -> Option<(Option<&'t str>, &'t [usize])> {
    Some(match key_of(parent, &key.parent_columns)? {
        FoundKey::Primary => (Some(parent.key_name.as_str()), parent.key.as_slice()),
        FoundKey::Unique(index) => (index.constraint.then_some(index.name.as_str()), index.columns.as_slice()),
    })
}

fn rule(action: KeyAction) -> &'static str {
    match action {
        KeyAction::NoAction => "NO ACTION",
        KeyAction::Restrict => "RESTRICT",
        KeyAction::Cascade => "CASCADE",
        KeyAction::SetNull => "SET NULL",
    }
}

fn of_table(schema: &str, name: &str) -> ListedRow {
    vec![("table_catalog", text(DATABASE)), ("table_schema", text(schema)), ("table_name", text(name))]
}

fn of_constraint(table: &Table, constraint: &ListedConstraint<'_>) -> ListedRow {
    vec![
        ("constraint_catalog", text(DATABASE)),
        ("constraint_schema", text(&table.schema_name)),
        ("constraint_name", text(constraint.name)),
    ]
}

/// The rows of one view. They are found when the plan runs: planning a query of a view must not plan other views.
#[derive(Debug)]
struct ObjectRows {
    objects: ObjectViews,
    view: ListedView,
    schema: SchemaRef,
}

impl PartitionStream for ObjectRows {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let batch = self.objects.clone().batch(self.view, Arc::clone(&self.schema));
        Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.schema), stream::once(batch)))
    }
}
