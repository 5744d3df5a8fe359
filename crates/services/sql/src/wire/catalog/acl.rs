//! Rights as PostgreSQL's catalogs write them: `grantee=letters/grantor`, a `*` behind each letter that can be granted on.
//!
//! As in PostgreSQL the list is NULL while nothing was granted, and otherwise begins with the owner's own rights. A right
//! on a pattern of objects is listed for each of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::scalar::ScalarValue;
use node::identity::{Action, Object, ObjectKind, ObjectPattern, PrivilegeKey, PrivilegeOptions, RightsView, RoleId};

use super::catalog_row::{Row, int, text};
use super::session_objects::{Moment, SessionFacts, number};

/// The letters of privileges, in PostgreSQL's order.
const LETTERS: [(Action, char); 12] = [
    (Action::TableInsert, 'a'),
    (Action::TableSelect, 'r'),
    (Action::TableUpdate, 'w'),
    (Action::TableDelete, 'd'),
    (Action::TableTruncate, 'D'),
    (Action::TableReferences, 'x'),
    (Action::TableTrigger, 't'),
    (Action::SchemaUse, 'U'),
    (Action::TableMake, 'C'),
    (Action::SchemaMake, 'C'),
    (Action::SqlConnect, 'c'),
    (Action::TableMaintain, 'm'),
];

/// What an owner has.
fn of_owner(kind: ObjectKind) -> &'static str {
    match kind {
        ObjectKind::Node => "Cc",
        ObjectKind::Schema => "UC",
        _ => "arwdDxt",
    }
}

/// The letter of a privilege, if SQL has it.
fn letter(action: Action) -> Option<usize> {
    LETTERS.iter().position(|(known, _)| *known == action)
}

/// The privileges of an item, by their place in [`LETTERS`], and whether each can be granted on.
type Letters = BTreeMap<usize, bool>;

/// A list of texts.
fn list(items: Vec<String>) -> ScalarValue {
    let items: Vec<ScalarValue> = items.into_iter().map(ScalarValue::from).collect();
    ScalarValue::List(ScalarValue::new_list_nullable(&items, &DataType::Utf8))
}

/// A list that is NULL.
fn none() -> ScalarValue {
    ScalarValue::new_null_list(DataType::Utf8, true, 1)
}

/// The name of a role in an item.
fn named(view: &RightsView, id: RoleId) -> String {
    if id == RoleId::PUBLIC {
        return String::new();
    }
    let name = view.directory().name_of(id);
    let is_plain = name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_');
    if is_plain { name.to_owned() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}

fn item(view: &RightsView, grantee: RoleId, grantor: RoleId, letters: &Letters) -> String {
    let mut shown = String::new();
    for (at, grant_option) in letters {
        shown.push(LETTERS[*at].1);
        if *grant_option {
            shown.push('*');
        }
    }
    format!("{}={shown}/{}", named(view, grantee), named(view, grantor))
}

type Granted<'v> = (&'v PrivilegeKey, &'v PrivilegeOptions);

/// All privileges at one moment, by their objects.
pub(super) struct Acls {
    view: Option<Arc<RightsView>>,
}

/// The same, ready to be looked up.
pub(super) struct AclIndex<'v> {
    view: &'v RightsView,
    exact: BTreeMap<&'v ObjectPattern, Vec<Granted<'v>>>,
    patterns: Vec<Granted<'v>>,
}

impl Acls {
    pub(super) fn of(about: &SessionFacts) -> Acls {
        Acls { view: about.view() }
    }

    pub(super) fn index(&self) -> Option<AclIndex<'_>> {
        let view = self.view.as_deref()?;
        let mut index = AclIndex { view, exact: BTreeMap::new(), patterns: Vec::new() };
        for granted in view.directory().privileges() {
            if letter(granted.0.action).is_none() || granted.1.reason.is_some() {
                continue;
            }
            match granted.0.object.is_exact() {
                true => index.exact.entry(&granted.0.object).or_default().push(granted),
                false => index.patterns.push(granted),
            }
        }
        Some(index)
    }
}

impl AclIndex<'_> {
    /// `relacl`, `nspacl`, `datacl` of an object, or `attacl` of a column.
    pub(super) fn acl(&self, object: &Object<'_>, column: Option<&str>) -> ScalarValue {
        let letters = of_owner(object.kind());
        self.items(object, column, letters).map_or_else(none, list)
    }

    /// `relacl` of a sequence. USAGE of it is the right to insert.
    fn sequence_acl(&self, object: &Object<'_>) -> ScalarValue {
        // PostgreSQL's order: r, w, U. The name of a role may contain any letter.
        let restated = |item: String| {
            let Some((rest, grantor)) = item.rsplit_once('/') else { return item };
            let Some((name, letters)) = rest.rsplit_once('=') else { return item };
            let of = |letter: char| match letters.find(letter) {
                Some(at) if letters[at + 1..].starts_with('*') => "*",
                Some(_) => "",
                None => "-",
            };
            let each = [('r', 'r'), ('w', 'w'), ('a', 'U')].map(|(own, shown)| match of(own) {
                "-" => String::new(),
                star => format!("{shown}{star}"),
            });
            format!("{name}={}/{grantor}", each.concat())
        };
        let items = self.items(object, None, "arw");
        items.map_or_else(none, |items| list(items.into_iter().map(restated).collect()))
    }

    /// The items; `None` if nothing was granted.
    fn items(&self, object: &Object<'_>, column: Option<&str>, of_owner: &str) -> Option<Vec<String>> {
        let pattern = object.exactly().ok()?;
        let own = self.exact.get(&pattern).into_iter().flatten();
        let matching = self.patterns.iter().filter(|(key, _)| key.object.matches(object));
        let all = own.chain(matching).filter(|(key, _)| key.column.as_deref() == column);
        let owner = self.view.directory().owners().get(&pattern).copied().unwrap_or(RoleId::LOCAL);
        let mut items: BTreeMap<(RoleId, RoleId), Letters> = BTreeMap::new();
        for (key, options) in all {
            let Some(at) = letter(key.action) else { continue };
            let grant_option = items.entry((key.grantee, key.granted_by)).or_default().entry(at).or_default();
            *grant_option |= options.grant_option;
        }
        if items.is_empty() {
            return None;
        }
        let mut shown = Vec::new();
        if column.is_none() {
            // What was granted to the owner is among what it has.
            items.retain(|(grantee, _), _| *grantee != owner);
            let name = named(self.view, owner);
            shown.push(format!("{name}={of_owner}/{name}"));
        }
        shown.extend(items.iter().map(|((grantee, grantor), letters)| item(self.view, *grantee, *grantor, letters)));
        Some(shown)
    }
}

/// The list of a sequence, or NULL in a session of the node itself.
pub(super) fn sequence_acl_or_null(index: Option<&AclIndex<'_>>, object: &Object<'_>) -> ScalarValue {
    index.map_or_else(none, |index| index.sequence_acl(object))
}

/// The list of an object, or NULL in a session of the node itself.
pub(super) fn acl_or_null(index: Option<&AclIndex<'_>>, object: &Object<'_>, column: Option<&str>) -> ScalarValue {
    index.map_or_else(none, |index| index.acl(object, column))
}

/// Rows of `pg_default_acl`.
pub(super) fn default_acls(moment: &Moment) -> Vec<Row> {
    let Some(view) = moment.about.view() else { return Vec::new() };
    let mut items: BTreeMap<(RoleId, Option<&str>, ObjectKind), BTreeMap<RoleId, Letters>> = BTreeMap::new();
    for (key, grant_option) in view.directory().defaults() {
        let Some(at) = letter(key.action) else { continue };
        let of_creator = items.entry((key.creator, key.schema.as_deref(), key.kind)).or_default();
        of_creator.entry(key.grantee).or_default().insert(at, *grant_option);
    }
    let row =
        |((creator, schema, kind), grantees): (&(RoleId, Option<&str>, ObjectKind), &BTreeMap<RoleId, Letters>)| {
            let namespace = schema.and_then(|name| moment.namespaces.iter().find(|namespace| namespace.name == name));
            let mut shown: Vec<String> =
                grantees.iter().map(|(grantee, letters)| item(&view, *grantee, *creator, letters)).collect();
            if schema.is_none() {
                let name = named(&view, *creator);
                shown.insert(0, format!("{name}={}/{name}", of_owner(*kind)));
            }
            let kind = if *kind == ObjectKind::Schema { "n" } else { "r" };
            vec![
                (
                    "oid",
                    int(number(&["$default", view.directory().name_of(*creator), schema.unwrap_or_default(), kind])),
                ),
                ("defaclrole", int(creator.0)),
                ("defaclnamespace", int(namespace.map_or(0, |namespace| namespace.oid))),
                ("defaclobjtype", text(kind)),
                ("defaclacl", list(shown)),
            ]
        };
    items.iter().map(row).collect()
}

/// Rows of `pg_auth_members`.
pub(super) fn memberships(about: &SessionFacts) -> Vec<Row> {
    let Some(view) = about.view() else { return Vec::new() };
    let members = view.directory().members().iter();
    members
        .map(|((member, role, grantor), membership)| {
            vec![
                ("roleid", int(role.0)),
                ("member", int(member.0)),
                ("grantor", int(grantor.0)),
                ("admin_option", ScalarValue::from(membership.admin)),
            ]
        })
        .collect()
}
