//! Catalogs whose rows are the same in each session: the access methods, collations, languages and tablespaces that
//! exist here, with PostgreSQL's OIDs.

use datafusion::scalar::ScalarValue;

use super::catalog_row::{Row, int, text};
use super::session_objects::{OWNER, PG_CATALOG, SessionFacts};

/// Rows of `pg_am`: tables, and the trees of primary keys.
pub(super) fn methods(_: &SessionFacts) -> Vec<Row> {
    let all = [(2, "heap", "heap_tableam_handler", "t"), (403, "btree", "bthandler", "i")];
    let row = |(oid, name, handler, kind): (u32, &str, &str, &str)| {
        vec![("oid", int(oid)), ("amname", text(name)), ("amhandler", text(handler)), ("amtype", text(kind))]
    };
    all.map(row).into()
}

/// Rows of `pg_collation`: texts are compared by their bytes.
pub(super) fn collations(_: &SessionFacts) -> Vec<Row> {
    let all = [(100, "default", "d", None), (950, "C", "c", Some("C")), (951, "POSIX", "c", Some("POSIX"))];
    let row = |(oid, name, provider, locale): (u32, &str, &str, Option<&str>)| {
        vec![
            ("oid", int(oid)),
            ("collname", text(name)),
            ("collnamespace", int(PG_CATALOG)),
            ("collowner", int(OWNER)),
            ("collprovider", text(provider)),
            ("collisdeterministic", ScalarValue::from(true)),
            ("collencoding", ScalarValue::from(-1i32)),
            ("collcollate", ScalarValue::from(locale)),
            ("collctype", ScalarValue::from(locale)),
        ]
    };
    all.map(row).into()
}

/// Rows of `pg_language`.
pub(super) fn languages(_: &SessionFacts) -> Vec<Row> {
    let row = |(oid, name, is_trusted): (u32, &str, bool)| {
        vec![
            ("oid", int(oid)),
            ("lanname", text(name)),
            ("lanowner", int(OWNER)),
            ("lanpltrusted", ScalarValue::from(is_trusted)),
        ]
    };
    [(12, "internal", false), (14, "sql", true)].map(row).into()
}

/// Rows of `pg_tablespace`.
pub(super) fn tablespaces(_: &SessionFacts) -> Vec<Row> {
    let row = |(oid, name)| vec![("oid", int(oid)), ("spcname", text(name)), ("spcowner", int(OWNER))];
    [(1663, "pg_default"), (1664, "pg_global")].map(row).into()
}
