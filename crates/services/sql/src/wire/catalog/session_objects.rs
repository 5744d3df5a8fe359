//! The objects that the catalogs describe: schemas, tables, their columns and keys, as the session sees them now.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::catalog::CatalogProvider;
use datafusion::error::Result;
use node::identity::{Action, Object};
use parking_lot::Mutex;

use crate::Session;
use crate::engine::Settings;
use crate::engine::parse::check_conditions;
use crate::engine::plan::access::Access;
use crate::engine::plan::sequence_rows;
use crate::engine::plan::session_catalog::StatementView;
use crate::engine::session::named_statements::NamedStatements;
use crate::table::found_key::{FoundKey, key_of};
use crate::table::{Catalog, Check, Entry, ForeignKey, IndexOrder, KeyAction, Sequence, Table};
use crate::text::identifiers::quoted;

/// Lower OIDs are PostgreSQL's own (`FirstNormalObjectId`).
const FIRST: u32 = 16_384;

/// PostgreSQL's OID of the schema pg_catalog.
pub(super) const PG_CATALOG: u32 = 11;
/// PostgreSQL's OID of the first role: the node's own, which owns what nobody else owns.
pub(super) const OWNER: u32 = 10;
/// PostgreSQL's OID of the schema public.
const PUBLIC: u32 = 2200;

/// A schema.
#[derive(Debug, Clone)]
pub(super) struct Namespace {
    pub(super) oid: u32,
    /// OID of the owner.
    pub(super) owner: u32,
    pub(super) name: String,
}

/// A CHECK constraint.
#[derive(Debug, Clone)]
pub(super) struct ShownCheck {
    pub(super) name: String,
    /// The condition as SQL.
    pub(super) condition: String,
    /// Positions of the columns that it names.
    pub(super) columns: Vec<usize>,
}

/// A FOREIGN KEY constraint.
#[derive(Debug, Clone)]
pub(super) struct ShownForeignKey {
    pub(super) name: String,
    /// Positions of the columns that refer.
    pub(super) columns: Vec<usize>,
    /// OID of the table that they refer to.
    pub(super) parent: u32,
    /// OID of the index of its key.
    pub(super) index: u32,
    /// Positions of its columns.
    pub(super) parent_columns: Vec<usize>,
    pub(super) on_delete: KeyAction,
    pub(super) on_update: KeyAction,
    /// The constraint as SQL.
    pub(super) definition: String,
}

/// An index.
#[derive(Debug, Clone)]
pub(super) struct ShownIndex {
    pub(super) name: String,
    /// Positions of its columns.
    pub(super) columns: Vec<usize>,
    /// Their orders; empty if all are ascending with NULL last.
    pub(super) orders: Vec<IndexOrder>,
    pub(super) unique: bool,
    /// Whether it is that of the primary key.
    pub(super) primary: bool,
    /// Whether it is that of a constraint of its name.
    pub(super) constraint: bool,
}

/// A table, view or sequence.
#[derive(Debug, Clone)]
pub(super) struct Relation {
    pub(super) oid: u32,
    /// OID of the owner.
    pub(super) owner: u32,
    pub(super) namespace: Namespace,
    pub(super) name: String,
    /// The query of a view, as SQL.
    pub(super) query: Option<Arc<str>>,
    pub(super) columns: SchemaRef,
    /// Its indexes, that of the primary key first.
    pub(super) indexes: Vec<ShownIndex>,
    /// Defaults of columns by their positions, as SQL.
    pub(super) defaults: Vec<(usize, String)>,
    /// CHECK constraints.
    pub(super) checks: Vec<ShownCheck>,
    /// FOREIGN KEY constraints.
    pub(super) foreign_keys: Vec<ShownForeignKey>,
    /// Whether it refers to a table, or one refers to it.
    pub(super) is_connected: bool,
    /// Identity columns by their positions, and whether each is GENERATED ALWAYS.
    pub(super) identities: Vec<(usize, bool)>,
    /// For each column the sequence that belongs to it, as SQL names it.
    pub(super) sequences: Vec<(String, String)>,
    /// The definition, if it is a sequence.
    pub(super) sequence: Option<Arc<Sequence>>,
}

impl Relation {
    /// OID of an index.
    pub(super) fn index_oid(&self, index: &ShownIndex) -> u32 {
        let name: &[&str] = if index.primary { &[] } else { &[&index.name] };
        number(&[&[self.namespace.name.as_str(), &self.name, "$index"], name].concat())
    }

    /// OID of an index's constraint.
    pub(super) fn constraint_oid(&self, index: &ShownIndex) -> u32 {
        let name: &[&str] = if index.primary { &[] } else { &[&index.name] };
        number(&[&[self.namespace.name.as_str(), &self.name, "$key"], name].concat())
    }

    /// OID of a CHECK constraint.
    pub(super) fn check_oid(&self, check: &ShownCheck) -> u32 {
        number(&[&self.namespace.name, &self.name, "$check", &check.name])
    }

    /// OID of a FOREIGN KEY constraint.
    pub(super) fn foreign_oid(&self, key: &ShownForeignKey) -> u32 {
        number(&[&self.namespace.name, &self.name, "$foreign", &key.name])
    }

    /// OID of the default of the column at a position.
    pub(super) fn default_oid(&self, at: usize) -> u32 {
        number(&[&self.namespace.name, &self.name, "$default", self.columns.field(at).name()])
    }

    /// The column at a position of an index, from 1, as SQL writes it.
    pub(super) fn index_column(&self, index: &ShownIndex, place: usize) -> Option<String> {
        let at = index.columns.get(place.checked_sub(1)?)?;
        Some(quoted(self.columns.field(*at).name()))
    }

    /// An index's columns as SQL writes them.
    pub(super) fn index_columns(&self, index: &ShownIndex) -> String {
        let column = |place: usize| {
            let order = match index.orders.get(place - 1).map(|order| (order.descending, order.nulls_first)) {
                Some((true, true)) => " DESC",
                Some((true, false)) => " DESC NULLS LAST",
                Some((false, true)) => " NULLS FIRST",
                _ => "",
            };
            Some(format!("{}{order}", self.index_column(index, place)?))
        };
        let columns: Vec<String> = (1..=index.columns.len()).filter_map(column).collect();
        columns.join(", ")
    }
}

/// Facts that do not change while a session lasts.
#[derive(Debug)]
pub(super) struct SessionFacts {
    /// Name of the database.
    pub(super) database: String,
    /// Who the session's statements ask for, and the objects that they see.
    pub(super) shared: Arc<StatementView>,
    /// The user of a session of the node itself.
    pub(super) user: String,
    /// The prepared statements of the session.
    pub(super) named: Arc<NamedStatements>,
    /// Its settings when the running statement began.
    pub(super) settings: Arc<Mutex<Settings>>,
}

impl SessionFacts {
    /// The facts for a session.
    pub(super) fn new(database: String, session: &Session) -> SessionFacts {
        let (shared, named) = (Arc::clone(&session.shared), Arc::clone(&session.named));
        let (user, settings) = (session.user().to_owned(), session.settings.shown());
        SessionFacts { database, shared, user, named, settings }
    }

    /// The last value that a sequence gave; `None` if it gave none, or to who may not read it.
    pub(super) fn last_value(&self, sequence: &Sequence) -> Option<i64> {
        let actions = [Action::TableInsert, Action::TableSelect];
        let may = |access: Access| access.has_one_of(&actions, &sequence.schema_name, &sequence.name);
        let counter = self.shared.access().is_none_or(may).then(|| self.shared.standing(sequence).ok()).flatten();
        counter.filter(|counter| counter.is_called).map(|counter| counter.last)
    }
}

/// All objects at one moment.
#[derive(Debug, Clone)]
pub(super) struct Moment {
    pub(super) about: Arc<SessionFacts>,
    pub(super) namespaces: Vec<Namespace>,
    pub(super) relations: Vec<Relation>,
    /// What the catalog of the store has of them.
    pub(super) catalog: Arc<Catalog>,
}

impl Moment {
    /// The indexes, each with its table.
    pub(super) fn indexes(&self) -> impl Iterator<Item = (&Relation, &ShownIndex)> {
        self.relations.iter().flat_map(|relation| relation.indexes.iter().map(move |index| (relation, index)))
    }

    /// The index with an OID.
    pub(super) fn index_of(&self, oid: u32) -> Option<(&Relation, &ShownIndex)> {
        self.indexes().find(|(relation, index)| relation.index_oid(index) == oid)
    }
}

/// The sources of the objects.
#[derive(Debug, Clone)]
pub(super) struct Facts {
    shared: Arc<StatementView>,
    names: Arc<dyn CatalogProvider>,
    pub(super) about: Arc<SessionFacts>,
}

impl Facts {
    /// The sources for a session's tables and schemas.
    pub(super) fn new(shared: Arc<StatementView>, names: Arc<dyn CatalogProvider>, about: Arc<SessionFacts>) -> Facts {
        Facts { shared, names, about }
    }

    /// The present objects, without the columns of views.
    pub(super) fn now(&self) -> Moment {
        let catalog = self.shared.catalog();
        let (about, namespaces, relations) = (&self.about, Vec::new(), Vec::new());
        let mut moment = Moment { about: Arc::clone(about), namespaces, relations, catalog: Arc::clone(&catalog) };
        let mut owned: HashMap<u64, Vec<(String, String)>> = HashMap::new();
        for sequence in catalog.sequences() {
            if let Some(owner) = &sequence.owner {
                let name = format!("{}.{}", quoted(&sequence.schema_name), quoted(&sequence.name));
                owned.entry(owner.table).or_default().push((owner.column.clone(), name));
            }
        }
        let mut schemas = self.names.schema_names();
        schemas.sort();
        schemas.dedup();
        for schema in schemas {
            let owner = about.owner(Object::Schema(&schema).exactly().ok().as_ref());
            let namespace = Namespace { oid: namespace_oid(&schema), owner, name: schema.clone() };
            moment.namespaces.push(namespace.clone());
            for (name, entry) in catalog.schemas.get(&schema).into_iter().flatten() {
                let defaults = match entry {
                    Entry::Table(table) => {
                        let columns = table.columns.iter().enumerate();
                        columns.filter_map(|(at, column)| Some((at, column.default.clone()?))).collect()
                    }
                    _ => Vec::new(),
                };
                let checks = match entry {
                    Entry::Table(table) => table.checks.iter().filter_map(|check| shown_check(table, check)).collect(),
                    _ => Vec::new(),
                };
                let (foreign_keys, is_connected) = shown_foreign_keys(&catalog, entry);
                let identities = match entry {
                    Entry::Table(table) => {
                        let columns = table.columns.iter().enumerate();
                        columns.filter_map(|(at, column)| Some((at, column.identity.as_ref()?.always))).collect()
                    }
                    _ => Vec::new(),
                };
                let sequences = match entry {
                    Entry::Table(table) => owned.get(&table.id).cloned().unwrap_or_default(),
                    _ => Vec::new(),
                };
                let (columns, indexes) = match entry {
                    Entry::Sequence(_) => (sequence_rows::schema(), Vec::new()),
                    Entry::Table(table) => (table.declared(), shown_indexes(table)),
                    Entry::View(_) => (Arc::new(Schema::empty()), Vec::new()),
                    Entry::Virtual(table) => (table.schema(), Vec::new()),
                    Entry::External(table) => (table.schema.clone(), Vec::new()),
                };
                let object = Object::Table { schema: &schema, name, columns: &[] };
                moment.relations.push(Relation {
                    owner: about.owner(object.exactly().ok().as_ref()),
                    oid: number(&[&schema, name]),
                    namespace: namespace.clone(),
                    name: name.clone(),
                    query: if let Entry::View(view) = entry { Some(Arc::clone(&view.sql)) } else { None },
                    columns,
                    indexes,
                    defaults,
                    checks,
                    foreign_keys,
                    is_connected,
                    identities,
                    sequences,
                    sequence: if let Entry::Sequence(sequence) = entry { Some(Arc::clone(sequence)) } else { None },
                });
            }
        }
        moment
    }

    /// The present objects.
    pub(super) async fn gather(&self) -> Result<Moment> {
        let mut moment = self.now();
        for relation in moment.relations.iter_mut().filter(|relation| relation.query.is_some()) {
            let schema = self.names.schema(&relation.namespace.name);
            // A view over objects that no longer exist shows no columns.
            if let Some(schema) = schema
                && let Ok(Some(view)) = schema.table(&relation.name).await
            {
                relation.columns = view.schema();
            }
        }
        Ok(moment)
    }
}

/// The indexes of a table, that of its primary key first.
fn shown_indexes(table: &Table) -> Vec<ShownIndex> {
    let key = (!table.key.is_empty()).then(|| ShownIndex {
        name: table.key_name.clone(),
        columns: table.key.clone(),
        orders: Vec::new(),
        unique: true,
        primary: true,
        constraint: true,
    });
    let others = table.indexes.iter().map(|index| ShownIndex {
        name: index.name.clone(),
        columns: index.columns.clone(),
        orders: index.orders.clone(),
        unique: index.unique,
        primary: false,
        constraint: index.constraint,
    });
    key.into_iter().chain(others).collect()
}

/// A constraint whose text cannot be read is not shown.
fn shown_check(table: &Table, check: &Check) -> Option<ShownCheck> {
    let (condition, columns) = check_conditions::shown(check, &table.columns).ok()?;
    Some(ShownCheck { name: check.name.clone(), condition, columns: columns.into_iter().collect() })
}

/// The foreign keys of a table, and whether it has some or one refers to it.
fn shown_foreign_keys(catalog: &Catalog, entry: &Entry) -> (Vec<ShownForeignKey>, bool) {
    let Entry::Table(table) = entry else { return (Vec::new(), false) };
    let keys = table.foreign_keys.iter().filter_map(|key| shown_foreign_key(catalog, table, key));
    (keys.collect(), !table.foreign_keys.is_empty() || !table.referenced.is_empty())
}

fn shown_foreign_key(catalog: &Catalog, table: &Table, key: &ForeignKey) -> Option<ShownForeignKey> {
    let parent = catalog.tables().find(|one| one.id == key.parent)?;
    let listed = |of: &Table, columns: &[usize]| {
        let names: Vec<String> = columns.iter().map(|at| quoted(&of.columns[*at].name)).collect();
        names.join(", ")
    };
    let schema = match parent.schema_name.as_str() {
        "public" => String::new(),
        other => format!("{}.", quoted(other)),
    };
    let (own, others) = (listed(table, &key.columns), listed(parent, &key.parent_columns));
    let mut definition = format!("FOREIGN KEY ({own}) REFERENCES {schema}{}({others})", quoted(&parent.name));
    for (event, action) in [("UPDATE", key.on_update), ("DELETE", key.on_delete)] {
        let action = match action {
            KeyAction::NoAction => continue,
            KeyAction::Restrict => "RESTRICT",
            KeyAction::Cascade => "CASCADE",
            KeyAction::SetNull => "SET NULL",
        };
        definition.push_str(&format!(" ON {event} {action}"));
    }
    let index: &[&str] = match key_of(parent, &key.parent_columns)? {
        FoundKey::Primary => &[],
        FoundKey::Unique(index) => &[&index.name],
    };
    Some(ShownForeignKey {
        name: key.name.clone(),
        columns: key.columns.clone(),
        parent: number(&[&parent.schema_name, &parent.name]),
        index: number(&[&[parent.schema_name.as_str(), &parent.name, "$index"], index].concat()),
        parent_columns: key.parent_columns.clone(),
        on_delete: key.on_delete,
        on_update: key.on_update,
        definition,
    })
}

fn namespace_oid(name: &str) -> u32 {
    match name {
        super::SCHEMA => PG_CATALOG,
        "public" => PUBLIC,
        other => number(&[other]),
    }
}

/// An OID derived from names (FNV-1a, 32 bits), above PostgreSQL's own and positive as an i32.
pub(super) fn number(names: &[&str]) -> u32 {
    let mut hash = 0x811c_9dc5u32;
    for name in names {
        for byte in name.bytes().chain([0]) {
            hash = (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
        }
    }
    FIRST + hash % (i32::MAX as u32 - FIRST)
}
