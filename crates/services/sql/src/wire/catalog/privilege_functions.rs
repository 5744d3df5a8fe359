//! `has_table_privilege` and its kin, and `pg_has_role`: each with a role before the object, or for the current role;
//! names and OIDs for both.
//!
//! The identity decides, as for a statement. As in PostgreSQL an OID without an object gives NULL, and a name an error.

use std::sync::Arc;

use datafusion::arrow::array::{Array, AsArray, BooleanArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Int64Type};
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs};
use datafusion::prelude::SessionContext;
use datafusion::scalar::ScalarValue;
use node::identity::{Action, Caller, Object, ObjectKind, RightsView, RoleId};

use super::backends::DATABASE;
use super::columns::TABLES;
use super::constant_functions::add;
use super::session_objects::{Facts, Moment, Relation};
use crate::SqlError;
use crate::text::identifiers::parts;

/// What a function is about.
#[derive(Clone, Copy, PartialEq, Eq)]
enum About {
    Table,
    Sequence,
    Column,
    AnyColumn,
    Schema,
    Database,
    Role,
}

/// An argument: a name or an OID.
#[derive(Clone, Debug)]
enum Given {
    Name(String),
    Number(i64),
}

/// Registers the functions.
pub(super) fn register(context: &SessionContext, facts: &Facts) {
    for (name, about) in [
        ("has_table_privilege", About::Table),
        ("has_sequence_privilege", About::Sequence),
        ("has_column_privilege", About::Column),
        ("has_any_column_privilege", About::AnyColumn),
        ("has_schema_privilege", About::Schema),
        ("has_database_privilege", About::Database),
        ("pg_has_role", About::Role),
    ] {
        let facts = facts.clone();
        add(context, name, DataType::Boolean, move |args| answers(&facts, about, args));
    }
}

fn answers(facts: &Facts, about: About, args: &ScalarFunctionArgs) -> Result<ColumnarValue> {
    let columns = args.args.iter().map(|arg| column(arg, args.number_rows)).collect::<Result<Vec<_>>>()?;
    let moment = facts.now();
    let mut found = Vec::with_capacity(args.number_rows);
    for row in 0..args.number_rows {
        let values: Option<Vec<&Given>> = columns.iter().map(|column| column[row].as_ref()).collect();
        found.push(match values {
            Some(values) => answer(&moment, about, &values)?,
            None => None,
        });
    }
    let is_one = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
    match found.first() {
        Some(first) if is_one => Ok(ColumnarValue::Scalar(ScalarValue::Boolean(*first))),
        _ => Ok(ColumnarValue::Array(Arc::new(BooleanArray::from(found)))),
    }
}

/// The values of an argument.
fn column(arg: &ColumnarValue, rows: usize) -> Result<Vec<Option<Given>>> {
    let array = arg.to_array(rows)?;
    if array.data_type().is_integer() {
        let numbers = cast(&array, &DataType::Int64)?;
        return Ok(numbers.as_primitive::<Int64Type>().iter().map(|number| number.map(Given::Number)).collect());
    }
    let texts = cast(&array, &DataType::Utf8)?;
    Ok(texts.as_string::<i32>().iter().map(|text| text.map(|text| Given::Name(text.to_owned()))).collect())
}

fn answer(moment: &Moment, about: About, values: &[&Given]) -> Result<Option<bool>, SqlError> {
    let own = if about == About::Column { 3 } else { 2 };
    let (role, rest) = match values.len() {
        count if count == own => (None, values),
        count if count == own + 1 => (Some(values[0]), &values[1..]),
        _ => return Err(SqlError::statement("42883", "the function has other arguments")),
    };
    let Given::Name(privileges) = rest[own - 1] else {
        return Err(SqlError::statement("42883", "the last argument is the text of a privilege"));
    };
    let asked = Asking::of(moment, role)?;
    let object = rest[0];
    match about {
        About::Role => of_role(moment, &asked, object, privileges),
        About::Schema => {
            let namespace = moment.namespaces.iter().find(|namespace| match object {
                Given::Name(name) => namespace.name == *name,
                Given::Number(oid) => i64::from(namespace.oid) == *oid,
            });
            let missing = |name: &String| SqlError::statement("3F000", format!("schema \"{name}\" does not exist"));
            match (namespace, object) {
                (Some(namespace), _) if is_of_system(&namespace.name) => {
                    let wanted = wanted(privileges, ObjectKind::Schema)?;
                    Ok(Some(asked.may_all() || wanted.contains(&(Action::SchemaUse, false))))
                }
                (Some(namespace), _) => asked.any(privileges, Object::Schema(&namespace.name)).map(Some),
                (None, Given::Name(name)) => Err(missing(name)),
                (None, Given::Number(_)) => Ok(None),
            }
        }
        About::Database => match object {
            Given::Name(name) if *name == moment.about.database => asked.any(privileges, Object::Node).map(Some),
            Given::Number(oid) if *oid == i64::from(DATABASE) => asked.any(privileges, Object::Node).map(Some),
            Given::Name(name) => Err(SqlError::statement("3D000", format!("database \"{name}\" does not exist"))),
            Given::Number(_) => Ok(None),
        },
        About::Sequence => {
            let Some(relation) = relation(moment, object)? else { return Ok(None) };
            if relation.sequence.is_none() {
                return Err(SqlError::statement("42809", format!("\"{}\" is not a sequence", relation.name)));
            }
            let (schema, name) = (relation.namespace.name.as_str(), relation.name.as_str());
            asked.any(&of_sequence(privileges)?, Object::Table { schema, name, columns: &[] }).map(Some)
        }
        About::Table | About::Column | About::AnyColumn => {
            let Some(relation) = relation(moment, object)? else {
                return of_catalog(&asked, object, privileges);
            };
            let (schema, name) = (relation.namespace.name.as_str(), relation.name.as_str());
            if about == About::AnyColumn {
                return asked.any(privileges, Object::SomeColumn { schema, name }).map(Some);
            }
            let named = match (about, rest[1]) {
                (About::Column, given) => match column_of(relation, given)? {
                    Some(column) => vec![column],
                    None => return Ok(None),
                },
                _ => Vec::new(),
            };
            let columns: Vec<&str> = named.iter().map(String::as_str).collect();
            asked.any(privileges, Object::Table { schema, name, columns: &columns }).map(Some)
        }
    }
}

/// Privileges on a sequence as those on a table: USAGE is the right to insert. Errors: 22023.
fn of_sequence(privileges: &str) -> Result<String, SqlError> {
    let one = |text: &str| {
        let upper = text.trim().to_ascii_uppercase();
        let (keyword, option) = upper.split_at(upper.find(' ').unwrap_or(upper.len()));
        match keyword {
            "USAGE" => Ok(format!("INSERT{option}")),
            "SELECT" | "UPDATE" => Ok(upper.clone()),
            _ => Err(SqlError::statement("22023", format!("unrecognized privilege type: \"{}\"", text.trim()))),
        }
    };
    Ok(privileges.split(',').map(one).collect::<Result<Vec<_>, _>>()?.join(","))
}

/// Schemas of PostgreSQL's own catalogs: everybody reads them.
fn is_of_system(schema: &str) -> bool {
    matches!(schema, super::SCHEMA | "information_schema")
}

/// A table or view; `None` for an OID without one, and for a catalog. Errors: 42P01.
fn relation<'m>(moment: &'m Moment, given: &Given) -> Result<Option<&'m Relation>, SqlError> {
    let name = match given {
        Given::Number(oid) => return Ok(moment.relations.iter().find(|relation| i64::from(relation.oid) == *oid)),
        Given::Name(name) => name,
    };
    let missing = || SqlError::statement("42P01", format!("relation \"{name}\" does not exist"));
    let split = parts(name).unwrap_or_default();
    let (schema, table) = match split.as_slice() {
        [table] if catalog(table).is_some() => return Ok(None),
        [schema, table] if is_of_system(schema) && (catalog(table).is_some() || schema == "information_schema") => {
            return Ok(None);
        }
        [table] => ("public", table),
        [schema, table] => (schema.as_str(), table),
        _ => return Err(missing()),
    };
    let found = moment.relations.iter().find(|one| one.namespace.name == schema && one.name == *table);
    found.map(Some).ok_or_else(missing)
}

/// The OID of a catalog.
fn catalog(name: &str) -> Option<u32> {
    TABLES.iter().find(|(known, ..)| *known == name).map(|(_, oid, _)| *oid)
}

/// Everybody reads catalogs, and nobody changes them.
fn of_catalog(asked: &Asking, given: &Given, privileges: &str) -> Result<Option<bool>, SqlError> {
    if let Given::Number(number) = given
        && !TABLES.iter().any(|(_, oid, _)| i64::from(*oid) == *number)
    {
        return Ok(None);
    }
    let wanted = wanted(privileges, ObjectKind::Table)?;
    Ok(Some(asked.may_all() || wanted.contains(&(Action::TableSelect, false))))
}

/// The name of a column; `None` for a number without one. Errors: 42703.
fn column_of(relation: &Relation, given: &Given) -> Result<Option<String>, SqlError> {
    let fields = relation.columns.fields();
    match given {
        Given::Number(number) => {
            let at = usize::try_from(*number).ok().and_then(|number| number.checked_sub(1));
            Ok(at.and_then(|at| fields.get(at)).map(|field| field.name().clone()))
        }
        // The columns of a view are not known here.
        Given::Name(name) if relation.query.is_some() || fields.iter().any(|field| field.name() == name) => {
            Ok(Some(name.clone()))
        }
        Given::Name(name) => {
            let message = format!("column \"{name}\" of relation \"{}\" does not exist", relation.name);
            Err(SqlError::statement("42703", message))
        }
    }
}

/// The privileges of a text such as `SELECT, INSERT WITH GRANT OPTION`. Errors: 22023.
fn wanted(privileges: &str, kind: ObjectKind) -> Result<Vec<(Action, bool)>, SqlError> {
    let one = |text: &str| {
        let upper = text.trim().to_ascii_uppercase();
        let (keyword, option) = match upper.strip_suffix(" WITH GRANT OPTION") {
            Some(keyword) => (keyword.trim(), true),
            None => (upper.as_str(), false),
        };
        let action = Action::of_keyword(keyword, kind);
        let message = || SqlError::statement("22023", format!("unrecognized privilege type: \"{}\"", text.trim()));
        // There are no temporary tables: nobody may create one.
        match (action, keyword) {
            (None, "TEMP" | "TEMPORARY") if kind == ObjectKind::Node => Ok(None),
            (action, _) => action.map(|action| Some((action, option))).ok_or_else(message),
        }
    };
    privileges.split(',').filter_map(|text| one(text).transpose()).collect()
}

/// Whose rights a call asks about.
enum Asking {
    /// A session of the node itself: it may do everything.
    Node,
    /// A role.
    Role(Arc<RightsView>, Caller),
    /// Everyone.
    Public(Arc<RightsView>),
    /// A number without a role.
    Nobody,
}

impl Asking {
    /// Errors: 42704 for a name without a role.
    fn of(moment: &Moment, role: Option<&Given>) -> Result<Asking, SqlError> {
        let Some((identity, view)) = moment.about.asking() else { return Ok(Asking::Node) };
        let id = match role {
            None => identity.caller().current(),
            Some(Given::Name(name)) if name == "public" => return Ok(Asking::Public(view)),
            Some(Given::Name(name)) => {
                let missing = |_| SqlError::statement("42704", format!("role \"{name}\" does not exist"));
                view.directory().named(name).map_err(missing)?
            }
            Some(Given::Number(oid)) => RoleId(u32::try_from(*oid).unwrap_or(0)),
        };
        if id == RoleId::PUBLIC {
            return Ok(Asking::Public(view));
        }
        if view.name(id).is_none() {
            return Ok(Asking::Nobody);
        }
        Ok(Asking::Role(view, identity.caller().on_behalf_of(id)))
    }

    fn may_all(&self) -> bool {
        match self {
            Asking::Node => true,
            Asking::Role(view, caller) => view.is_administrator(caller.current()),
            Asking::Public(_) | Asking::Nobody => false,
        }
    }

    /// Whether it has one of these privileges. Errors: 22023.
    fn any(&self, privileges: &str, object: Object<'_>) -> Result<bool, SqlError> {
        let wanted = wanted(privileges, object.kind())?;
        Ok(wanted.into_iter().any(|(action, option)| self.has(action, option, &object)))
    }

    fn has(&self, action: Action, option: bool, object: &Object<'_>) -> bool {
        match self {
            Asking::Node => true,
            Asking::Nobody => false,
            Asking::Public(view) => !option && granted(view, |id| id == RoleId::PUBLIC, action, false, object),
            Asking::Role(view, caller) if !option => view.may(caller, action, *object).is_ok(),
            Asking::Role(view, caller) => {
                let role = caller.current();
                let owner = object.exactly().ok().and_then(|pattern| view.directory().owners().get(&pattern).copied());
                view.is_administrator(role)
                    || owner.is_some_and(|owner| view.has_rights_of(role, owner))
                    || granted(view, |id| view.has_rights_of(role, id), action, true, object)
            }
        }
    }
}

/// Whether one of these roles was granted it: for what the identity does not decide for a caller.
fn granted(
    view: &RightsView,
    is_own: impl Fn(RoleId) -> bool,
    action: Action,
    option: bool,
    object: &Object<'_>,
) -> bool {
    let columns = match object {
        Object::Table { columns, .. } => *columns,
        _ => &[],
    };
    let any = matches!(object, Object::SomeColumn { .. });
    view.directory().privileges().iter().any(|(key, options)| {
        let covers = match key.column.as_deref() {
            None => true,
            Some(column) => any || columns == [column],
        };
        key.action == action
            && covers
            && (options.grant_option || !option)
            && options.reason.is_none()
            && is_own(key.grantee)
            && key.object.matches(object)
    })
}

/// `pg_has_role`. USAGE: its rights without SET ROLE; MEMBER: however; SET: by SET ROLE.
fn of_role(moment: &Moment, asked: &Asking, object: &Given, privileges: &str) -> Result<Option<bool>, SqlError> {
    let number = match object {
        Given::Name(name) => {
            let missing = || SqlError::statement("42704", format!("role \"{name}\" does not exist"));
            moment.about.role_number(name).ok_or_else(missing)?
        }
        Given::Number(oid) => u32::try_from(*oid).unwrap_or(0),
    };
    let mut is = false;
    for text in privileges.split(',') {
        let upper = text.trim().to_ascii_uppercase();
        let (keyword, admin) = match upper.split_once(" WITH ") {
            Some((keyword, "GRANT OPTION" | "ADMIN OPTION")) => (keyword.trim(), true),
            Some(_) => ("", false),
            None => (upper.as_str(), false),
        };
        if !["USAGE", "MEMBER", "SET"].contains(&keyword) {
            return Err(SqlError::statement("22023", format!("unrecognized privilege type: \"{}\"", text.trim())));
        }
        is |= match asked {
            Asking::Node => true,
            Asking::Role(view, caller) => is_member(view, caller.current(), RoleId(number), keyword, admin),
            Asking::Public(_) | Asking::Nobody => false,
        };
    }
    Ok(Some(is))
}

fn is_member(view: &RightsView, role: RoleId, of: RoleId, keyword: &str, admin: bool) -> bool {
    if view.is_administrator(role) {
        return true;
    }
    if admin {
        let members = view.directory().members().iter();
        let mut with_admin = members.filter(|(key, membership)| key.1 == of && membership.admin);
        return with_admin.any(|(key, _)| view.has_rights_of(role, key.0));
    }
    match keyword {
        "USAGE" => view.has_rights_of(role, of),
        "SET" => view.directory().reach(role, |_, membership| membership.set).contains(&of),
        _ => view.is_member(role, of),
    }
}
