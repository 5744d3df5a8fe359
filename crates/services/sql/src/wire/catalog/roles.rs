//! The catalogs of users, databases and functions, and PostgreSQL's views of tables: pg_roles and similar ones,
//! pg_database, pg_proc, pg_tables, pg_views, pg_indexes.

use datafusion::logical_expr::Volatility;
use datafusion::prelude::SessionContext;
use datafusion::scalar::ScalarValue;
use node::identity::Object;

use super::acl::{Acls, acl_or_null};
use super::backends::DATABASE;
use super::catalog_row::{Row, int, text};
use super::columns::TABLES;
use super::functions::index;
use super::known_roles::{HIDDEN, KnownRole};
use super::session_objects::{Moment, OWNER, PG_CATALOG, SessionFacts, number};

/// PostgreSQL's number of the encoding UTF8.
pub(super) const UTF8: i32 = 6;
/// PostgreSQL's OID of the tablespace pg_default.
const TABLESPACE: u32 = 1663;
/// PostgreSQL's OID of the language of built-in functions.
const INTERNAL: u32 = 12;
/// PostgreSQL's OID of the type `any`: the result type of a function here depends on its arguments.
const ANY: u32 = 2276;
/// A function that can be called.
#[derive(Debug)]
pub(super) struct Callable {
    name: String,
    /// As `prokind`: f function, a aggregate, w window function.
    kind: &'static str,
    volatility: &'static str,
    gives_rows: bool,
}

/// The functions of a session, by name.
pub(super) fn callable(context: &SessionContext) -> Vec<Callable> {
    let letter = |volatility: Volatility| match volatility {
        Volatility::Immutable => "i",
        Volatility::Stable => "s",
        Volatility::Volatile => "v",
    };
    let state = context.state();
    let mut all: Vec<Callable> = Vec::new();
    let mut add = |name: &str, kind, volatility, gives_rows| {
        all.push(Callable { name: name.to_owned(), kind, volatility, gives_rows });
    };
    for (name, function) in state.scalar_functions() {
        add(name, "f", letter(function.signature().volatility), false);
    }
    for (name, function) in state.aggregate_functions() {
        add(name, "a", letter(function.signature().volatility), false);
    }
    for (name, function) in state.window_functions() {
        add(name, "w", letter(function.signature().volatility), false);
    }
    for name in state.table_functions().keys() {
        add(name, "f", "v", true);
    }
    all.sort_by(|one, other| (&one.name, one.kind).cmp(&(&other.name, other.kind)));
    all.dedup_by(|one, other| one.name == other.name && one.kind == other.kind);
    all
}

/// Rows of `pg_proc`. Argument types are not listed: most functions take several types.
pub(super) fn procedures(functions: &[Callable]) -> Vec<Row> {
    let row = |function: &Callable| {
        vec![
            ("oid", int(number(&["$function", function.kind, &function.name]))),
            ("proname", text(&function.name)),
            ("pronamespace", int(PG_CATALOG)),
            ("proowner", int(OWNER)),
            ("prolang", int(INTERNAL)),
            ("procost", ScalarValue::from(1f32)),
            ("prosupport", text("-")),
            ("prokind", text(function.kind)),
            ("proretset", ScalarValue::from(function.gives_rows)),
            ("provolatile", text(function.volatility)),
            ("proparallel", text("s")),
            ("prorettype", int(ANY)),
            ("proargtypes", text("")),
            ("prosrc", text(&function.name)),
        ]
    };
    functions.iter().map(row).collect()
}

/// What a role may do, and its password as it is shown.
fn role(role: &KnownRole, password: ScalarValue) -> Row {
    let own = &role.attributes;
    let limit = own.connection_limit.and_then(|limit| i32::try_from(limit).ok()).unwrap_or(-1);
    vec![
        ("oid", int(role.oid)),
        ("rolname", text(&role.name)),
        ("rolsuper", ScalarValue::from(own.administrator)),
        ("rolinherit", ScalarValue::from(own.inherit)),
        ("rolcreaterole", ScalarValue::from(role.creates_roles)),
        ("rolcanlogin", ScalarValue::from(can_log_in(role))),
        ("rolconnlimit", ScalarValue::from(limit)),
        ("rolvaliduntil", until(role)),
        ("rolpassword", password),
    ]
}

fn can_log_in(role: &KnownRole) -> bool {
    role.attributes.login && role.attributes.locked.is_none()
}

fn until(role: &KnownRole) -> ScalarValue {
    ScalarValue::TimestampMicrosecond(role.attributes.until_us, Some("+00:00".into()))
}

/// Rows of `pg_roles`.
pub(super) fn roles(about: &SessionFacts) -> Vec<Row> {
    about.roles().iter().map(|known| role(known, text(HIDDEN))).collect()
}

/// Rows of `pg_authid`: passwords are shown to administrators, as what they are checked against.
pub(super) fn authorities(about: &SessionFacts) -> Vec<Row> {
    about.roles().iter().map(|known| role(known, ScalarValue::Utf8(known.verifier.clone()))).collect()
}

/// Rows of `pg_user`.
pub(super) fn users(about: &SessionFacts) -> Vec<Row> {
    login_roles(about, |_| text(HIDDEN))
}

/// Rows of `pg_shadow`: as of `pg_authid`.
pub(super) fn shadows(about: &SessionFacts) -> Vec<Row> {
    login_roles(about, |role| ScalarValue::Utf8(role.verifier.clone()))
}

fn login_roles(about: &SessionFacts, password: impl Fn(&KnownRole) -> ScalarValue) -> Vec<Row> {
    let row = |role: &KnownRole| {
        vec![
            ("usename", text(&role.name)),
            ("usesysid", int(role.oid)),
            ("usesuper", ScalarValue::from(role.attributes.administrator)),
            ("passwd", password(role)),
            ("valuntil", until(role)),
        ]
    };
    about.roles().iter().filter(|role| can_log_in(role)).map(row).collect()
}

/// Rows of `pg_database`. Texts are compared by their bytes.
pub(super) fn databases(about: &SessionFacts) -> Vec<Row> {
    let acls = Acls::of(about);
    vec![vec![
        ("datacl", acl_or_null(acls.index().as_ref(), &Object::Node, None)),
        ("oid", ScalarValue::from(DATABASE)),
        ("datname", text(&about.database)),
        ("datdba", int(OWNER)),
        ("encoding", ScalarValue::from(UTF8)),
        ("datlocprovider", text("c")),
        ("datallowconn", ScalarValue::from(true)),
        ("datconnlimit", ScalarValue::from(-1i32)),
        ("dattablespace", int(TABLESPACE)),
        ("datcollate", text("C")),
        ("datctype", text("C.UTF-8")),
    ]]
}

fn owner_name(moment: &Moment, oid: u32) -> ScalarValue {
    ScalarValue::Utf8(moment.about.role(oid))
}

/// Rows of `pg_tables`: the session's tables, and the catalogs.
pub(super) fn tables(moment: &Moment) -> Vec<Row> {
    let row = |schema: &str, name: &str, owner: u32, has_index: bool| {
        vec![
            ("schemaname", text(schema)),
            ("tablename", text(name)),
            ("tableowner", owner_name(moment, owner)),
            ("tablespace", ScalarValue::Utf8(None)),
            ("hasindexes", ScalarValue::from(has_index)),
        ]
    };
    let own = moment.relations.iter().filter(|relation| relation.query.is_none() && relation.sequence.is_none());
    let own =
        own.map(|relation| row(&relation.namespace.name, &relation.name, relation.owner, !relation.indexes.is_empty()));
    own.chain(TABLES.iter().map(|(name, ..)| row(super::SCHEMA, name, OWNER, false))).collect()
}

/// Rows of `pg_views`.
pub(super) fn views(moment: &Moment) -> Vec<Row> {
    let views = moment.relations.iter().filter_map(|relation| Some((relation, relation.query.as_ref()?)));
    views
        .map(|(relation, query)| {
            vec![
                ("schemaname", text(&relation.namespace.name)),
                ("viewname", text(&relation.name)),
                ("viewowner", owner_name(moment, relation.owner)),
                ("definition", text(query)),
            ]
        })
        .collect()
}

/// Rows of `pg_indexes`.
pub(super) fn indexes(moment: &Moment) -> Vec<Row> {
    moment
        .indexes()
        .map(|(relation, shown)| {
            let definition = index(moment, relation.index_oid(shown), None);
            vec![
                ("schemaname", text(&relation.namespace.name)),
                ("tablename", text(&relation.name)),
                ("indexname", text(&shown.name)),
                ("tablespace", ScalarValue::Utf8(None)),
                ("indexdef", ScalarValue::Utf8(definition)),
            ]
        })
        .collect()
}
