//! PostgreSQL's own types: the rows of `pg_type` and `pg_range`, and the names of `format_type`.
//!
//! All types that a client may look up by name are here, also those that no column here can have: a driver that is
//! configured to read and write `jsonb` first looks up its OID. The OIDs are the constants of pgwire's `Type`; a test
//! compares them. That table has no sizes and kinds.

use std::sync::LazyLock;

use datafusion::scalar::ScalarValue;

use super::catalog_row::{Row, int, text};
use super::session_objects::{OWNER, PG_CATALOG, SessionFacts};

/// name, OID, OID of the array, length, kind, category, flags (b by value, p preferred, m with a modifier, t without a
/// binary layout), alignment, storage, the prefix of its functions; then attributes that few types have.
const TYPES: &[&str] = &[
    "bool 16 1000 1 b B bp c p bool",
    "bytea 17 1001 -1 b U - i x bytea",
    "char 18 1002 1 b Z b c p char",
    "name 19 1003 64 b S - c p name elem=18 coll=950 sub=raw_array_subscript_handler",
    "int8 20 1016 8 b N b d p int8",
    "int2 21 1005 2 b N b s p int2",
    "int2vector 22 1006 -1 b A - i p int2vector elem=21 sub=array_subscript_handler",
    "int4 23 1007 4 b N b i p int4",
    "regproc 24 1008 4 b N b i p regproc",
    "text 25 1009 -1 b S p i x text coll=100",
    "oid 26 1028 4 b N bp i p oid",
    "tid 27 1010 6 b U - s p tid",
    "xid 28 1011 4 b U b i p xid",
    "cid 29 1012 4 b U b i p cid",
    "oidvector 30 1013 -1 b A - i p oidvector elem=26 sub=array_subscript_handler",
    "json 114 199 -1 b U - i x json_",
    "xml 142 143 -1 b U - i x xml_",
    "pg_node_tree 194 0 -1 b Z - i x pg_node_tree_ coll=100",
    "point 600 1017 16 b G - d p point_ elem=701 sub=raw_array_subscript_handler",
    "lseg 601 1018 32 b G - d p lseg_ elem=600 sub=raw_array_subscript_handler",
    "path 602 1019 -1 b G - d x path_",
    "box 603 1020 32 b G - d p box_ elem=600 delim=; sub=raw_array_subscript_handler",
    "polygon 604 1027 -1 b G - d x poly_",
    "line 628 629 24 b G - d p line_ elem=701 sub=raw_array_subscript_handler",
    "cidr 650 651 -1 b I - i m cidr_",
    "float4 700 1021 4 b N b i p float4",
    "float8 701 1022 8 b N bp d p float8",
    "unknown 705 0 -2 p X - c p unknown",
    "circle 718 719 24 b G - d p circle_",
    "macaddr8 774 775 8 b U - i p macaddr8_",
    "money 790 791 8 b N b d p cash_",
    "macaddr 829 1040 6 b U - i p macaddr_",
    "inet 869 1041 -1 b I p i m inet_",
    "aclitem 1033 1034 12 b U t i p aclitem",
    "bpchar 1042 1014 -1 b S m i x bpchar coll=100",
    "varchar 1043 1015 -1 b S m i x varchar coll=100",
    "date 1082 1182 4 b D b i p date_",
    "time 1083 1183 8 b D bm d p time_",
    "timestamp 1114 1115 8 b D bm d p timestamp_",
    "timestamptz 1184 1185 8 b D bpm d p timestamptz_",
    "interval 1186 1187 16 b T pm d p interval_",
    "timetz 1266 1270 12 b D m d p timetz_",
    "bit 1560 1561 -1 b V m i x bit_",
    "varbit 1562 1563 -1 b V pm i x varbit_",
    "numeric 1700 1231 -1 b N m i m numeric_",
    "refcursor 1790 2201 -1 b U - i x text",
    "regprocedure 2202 2207 4 b N b i p regprocedure",
    "regoper 2203 2208 4 b N b i p regoper",
    "regoperator 2204 2209 4 b N b i p regoperator",
    "regclass 2205 2210 4 b N b i p regclass",
    "regtype 2206 2211 4 b N b i p regtype",
    "record 2249 2287 -1 p P - d x record_",
    "cstring 2275 1263 -2 p P - c p cstring_",
    "any 2276 0 4 p P bt i p any_",
    "anyarray 2277 0 -1 p P - d x anyarray_",
    "void 2278 0 4 p P b i p void_",
    "trigger 2279 0 4 p P bt i p trigger_",
    "internal 2281 0 8 p P bt d p internal_",
    "anyelement 2283 0 4 p P bt i p anyelement_",
    "anynonarray 2776 0 4 p P bt i p anynonarray_",
    "uuid 2950 2951 16 b U - c p uuid_",
    "txid_snapshot 2970 2949 -1 b U - d x txid_snapshot_",
    "pg_lsn 3220 3221 8 b U b d p pg_lsn_",
    "pg_ndistinct 3361 0 -1 b Z - i x pg_ndistinct_ coll=100",
    "pg_dependencies 3402 0 -1 b Z - i x pg_dependencies_ coll=100",
    "anyenum 3500 0 4 p P bt i p anyenum_",
    "tsvector 3614 3643 -1 b U - i x tsvector analyze=ts_typanalyze",
    "tsquery 3615 3645 -1 b U - i p tsquery",
    "regconfig 3734 3735 4 b N b i p regconfig",
    "regdictionary 3769 3770 4 b N b i p regdictionary",
    "jsonb 3802 3807 -1 b U - i x jsonb_ sub=jsonb_subscript_handler",
    "anyrange 3831 0 -1 p P t d x anyrange_",
    "event_trigger 3838 0 4 p P bt i p event_trigger_",
    "int4range 3904 3905 -1 r R - i x range_ analyze=range_typanalyze",
    "numrange 3906 3907 -1 r R - i x range_ analyze=range_typanalyze",
    "tsrange 3908 3909 -1 r R - d x range_ analyze=range_typanalyze",
    "tstzrange 3910 3911 -1 r R - d x range_ analyze=range_typanalyze",
    "daterange 3912 3913 -1 r R - i x range_ analyze=range_typanalyze",
    "int8range 3926 3927 -1 r R - d x range_ analyze=range_typanalyze",
    "jsonpath 4072 4073 -1 b U - i x jsonpath_",
    "regnamespace 4089 4090 4 b N b i p regnamespace",
    "regrole 4096 4097 4 b N b i p regrole",
    "regcollation 4191 4192 4 b N b i p regcollation",
    "int4multirange 4451 6150 -1 m R - i x multirange_ analyze=multirange_typanalyze",
    "nummultirange 4532 6151 -1 m R - i x multirange_ analyze=multirange_typanalyze",
    "tsmultirange 4533 6152 -1 m R - d x multirange_ analyze=multirange_typanalyze",
    "tstzmultirange 4534 6153 -1 m R - d x multirange_ analyze=multirange_typanalyze",
    "datemultirange 4535 6155 -1 m R - i x multirange_ analyze=multirange_typanalyze",
    "int8multirange 4536 6157 -1 m R - d x multirange_ analyze=multirange_typanalyze",
    "anymultirange 4537 0 -1 p P t d x anymultirange_",
    "anycompatiblemultirange 4538 0 -1 p P t d x anycompatiblemultirange_",
    "pg_mcv_list 5017 0 -1 b Z - i x pg_mcv_list_ coll=100",
    "pg_snapshot 5038 5039 -1 b U - d x pg_snapshot_",
    "xid8 5069 271 8 b U b d p xid8",
    "anycompatible 5077 0 4 p P bt i p anycompatible_",
    "anycompatiblearray 5078 0 -1 p P - d x anycompatiblearray_",
    "anycompatiblenonarray 5079 0 4 p P bt i p anycompatiblenonarray_",
    "anycompatiblerange 5080 0 -1 p P t d x anycompatiblerange_",
];

/// OID, OIDs of the items, of the multirange, of the operator class; the functions for the canonical form and for
/// subtraction.
const RANGES: [(u32, u32, u32, u32, &str, &str); 6] = [
    (3904, 23, 4451, 1978, "int4range_canonical", "int4range_subdiff"),
    (3906, 1700, 4532, 3125, "-", "numrange_subdiff"),
    (3908, 1114, 4533, 3128, "-", "tsrange_subdiff"),
    (3910, 1184, 4534, 3127, "-", "tstzrange_subdiff"),
    (3912, 1082, 4535, 3122, "daterange_canonical", "daterange_subdiff"),
    (3926, 20, 4536, 3124, "int8range_canonical", "int8range_subdiff"),
];

/// The SQL names of types that have another name in the catalogs.
const CALLED: [(&str, &str); 15] = [
    ("any", "\"any\""),
    ("bool", "boolean"),
    ("bpchar", "character"),
    ("char", "\"char\""),
    ("float4", "real"),
    ("float8", "double precision"),
    ("int2", "smallint"),
    ("int4", "integer"),
    ("int8", "bigint"),
    ("time", "time without time zone"),
    ("timestamp", "timestamp without time zone"),
    ("timestamptz", "timestamp with time zone"),
    ("timetz", "time with time zone"),
    ("varbit", "bit varying"),
    ("varchar", "character varying"),
];

/// A type as the catalogs describe it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct CatalogType {
    pub(super) oid: u32,
    name: String,
    array: u32,
    length: i16,
    kind: &'static str,
    category: &'static str,
    flags: &'static str,
    pub(super) align: &'static str,
    pub(super) storage: &'static str,
    /// The prefix of its functions for text and the binary layout.
    io: &'static str,
    element: u32,
    delimiter: &'static str,
    pub(super) collation: u32,
    subscript: &'static str,
    analyze: &'static str,
}

static ALL: LazyLock<Vec<CatalogType>> = LazyLock::new(|| {
    let mut types: Vec<CatalogType> = TYPES.iter().filter_map(|line| read(line)).collect();
    let arrays: Vec<CatalogType> = types.iter().filter(|kind| kind.array != 0).map(array_of).collect();
    types.extend(arrays);
    types.sort_by_key(|kind| kind.oid);
    types
});

fn read(line: &'static str) -> Option<CatalogType> {
    let mut words = line.split(' ');
    let mut next = || words.next();
    let mut kind = CatalogType {
        name: next()?.to_owned(),
        oid: next()?.parse().ok()?,
        array: next()?.parse().ok()?,
        length: next()?.parse().ok()?,
        kind: next()?,
        category: next()?,
        flags: next()?,
        align: next()?,
        storage: next()?,
        io: next()?,
        element: 0,
        delimiter: ",",
        collation: 0,
        subscript: "-",
        analyze: "-",
    };
    for (key, value) in words.filter_map(|word| word.split_once('=')) {
        match key {
            "elem" => kind.element = value.parse().ok()?,
            "delim" => kind.delimiter = value,
            "coll" => kind.collation = value.parse().ok()?,
            "sub" => kind.subscript = value,
            _ => kind.analyze = value,
        }
    }
    Some(kind)
}

fn array_of(item: &CatalogType) -> CatalogType {
    let is_record = item.name == "record";
    CatalogType {
        oid: item.array,
        name: format!("_{}", item.name),
        array: 0,
        length: -1,
        kind: if is_record { "p" } else { "b" },
        category: if is_record { "P" } else { "A" },
        flags: "-",
        align: if item.align == "d" { "d" } else { "i" },
        storage: "x",
        io: "array_",
        element: item.oid,
        subscript: "array_subscript_handler",
        analyze: "array_typanalyze",
        ..item.clone()
    }
}

/// The type with this OID.
pub(super) fn of(oid: u32) -> Option<&'static CatalogType> {
    ALL.binary_search_by_key(&oid, |kind| kind.oid).ok().map(|at| &ALL[at])
}

impl CatalogType {
    /// Whether a value is passed by value.
    pub(super) fn by_value(&self) -> bool {
        self.flags.contains('b')
    }

    fn function(&self, end: &str, is_there: bool) -> ScalarValue {
        if is_there { text(&format!("{}{end}", self.io)) } else { text("-") }
    }

    /// The function of modifiers; for an array, its item's.
    fn of_modifier(&self, end: &str) -> ScalarValue {
        let kind = if self.io == "array_" { of(self.element).unwrap_or(self) } else { self };
        let name = || text(&format!("{}typmod{end}", kind.io.trim_end_matches('_')));
        if kind.flags.contains('m') { name() } else { text("-") }
    }

    fn row(&self) -> Row {
        let has_binary = !self.flags.contains('t');
        vec![
            ("oid", int(self.oid)),
            ("typname", text(&self.name)),
            ("typnamespace", int(PG_CATALOG)),
            ("typowner", int(OWNER)),
            ("typlen", ScalarValue::from(self.length)),
            ("typbyval", ScalarValue::from(self.by_value())),
            ("typtype", text(self.kind)),
            ("typcategory", text(self.category)),
            ("typispreferred", ScalarValue::from(self.flags.contains('p'))),
            ("typisdefined", ScalarValue::from(true)),
            ("typdelim", text(self.delimiter)),
            ("typsubscript", text(self.subscript)),
            ("typelem", int(self.element)),
            ("typarray", int(self.array)),
            ("typinput", self.function("in", true)),
            ("typoutput", self.function("out", true)),
            ("typreceive", self.function("recv", has_binary)),
            ("typsend", self.function("send", has_binary)),
            ("typmodin", self.of_modifier("in")),
            ("typmodout", self.of_modifier("out")),
            ("typanalyze", text(self.analyze)),
            ("typalign", text(self.align)),
            ("typstorage", text(self.storage)),
            ("typtypmod", ScalarValue::from(-1i32)),
            ("typcollation", int(self.collation)),
        ]
    }
}

/// Rows of `pg_type`.
pub(super) fn types(_: &SessionFacts) -> Vec<Row> {
    ALL.iter().map(CatalogType::row).collect()
}

/// Rows of `pg_range`.
pub(super) fn ranges(_: &SessionFacts) -> Vec<Row> {
    let row = |(oid, item, multirange, class, canonical, difference): &(u32, u32, u32, u32, &str, &str)| {
        vec![
            ("rngtypid", int(*oid)),
            ("rngsubtype", int(*item)),
            ("rngmultitypid", int(*multirange)),
            ("rngsubopc", int(*class)),
            ("rngcanonical", text(canonical)),
            ("rngsubdiff", text(difference)),
        ]
    };
    RANGES.iter().map(row).collect()
}

/// A type as SQL writes it, with its modifier; `-` for none, and `???` for an unknown one, as in PostgreSQL.
pub(super) fn formatted(oid: u32, modifier: Option<i32>) -> String {
    let Some(kind) = of(oid) else { return if oid == 0 { "-".into() } else { "???".into() } };
    if kind.io == "array_" {
        return format!("{}[]", formatted(kind.element, modifier));
    }
    let called = CALLED.iter().find(|(name, _)| *name == kind.name).map_or(kind.name.as_str(), |(_, called)| *called);
    let Some(modifier) = modifier else { return called.to_owned() };
    if modifier < 0 {
        // Without a length, `character` would mean one character, and `bit` one bit.
        return if kind.name == "bpchar" { "bpchar".into() } else { called.to_owned() };
    }
    match (kind.name.as_str(), called.split_once(' ')) {
        // PostgreSQL adds the four bytes of a length to the modifier.
        ("bpchar" | "varchar", _) => format!("{called}({})", modifier - 4),
        ("numeric", _) => format!("numeric({},{})", (modifier - 4) >> 16 & 0xffff, (modifier - 4) & 0x7ff),
        ("bit" | "varbit", _) => format!("{called}({modifier})"),
        ("time" | "timetz" | "timestamp" | "timestamptz", Some((word, rest))) => format!("{word}({modifier}) {rest}"),
        _ => called.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use pgwire::api::Type as Known;

    use super::*;
    use crate::wire::oid::Scalar;

    #[test]
    fn every_type_has_the_number_and_name_that_drivers_have_built_in() {
        assert_eq!(
            ALL.len(),
            TYPES.len() + TYPES.iter().filter_map(|line| read(line)).filter(|kind| kind.array != 0).count()
        );
        for kind in ALL.iter() {
            let known = Known::from_oid(kind.oid).unwrap_or_else(|| panic!("{} is in no driver", kind.name));
            assert_eq!(known.name(), kind.name, "{}", kind.oid);
            if kind.io == "array_" {
                let item = Known::from_oid(kind.element).map(|item| format!("_{}", item.name()));
                assert_eq!(item.as_deref(), Some(kind.name.as_str()));
            }
        }
        for scalar in Scalar::ALL {
            let kind = of(scalar.oid()).expect("what is sent is told of");
            assert_eq!(
                (kind.length, kind.array),
                (scalar.length(), if *scalar == Scalar::Unknown { 0 } else { scalar.array_oid() })
            );
        }
    }

    #[test]
    fn types_are_written_as_postgresql_writes_them() {
        for (oid, modifier, expected) in [
            (23, Some(-1), "integer"),
            (23, None, "integer"),
            (1043, Some(24), "character varying(20)"),
            (1042, Some(14), "character(10)"),
            (1042, Some(-1), "bpchar"),
            (1042, None, "character"),
            (1700, Some(655_366), "numeric(10,2)"),
            (1700, Some(655_364), "numeric(10,0)"),
            (1184, Some(3), "timestamp(3) with time zone"),
            (1083, Some(3), "time(3) without time zone"),
            (1562, Some(9), "bit varying(9)"),
            (1007, None, "integer[]"),
            (1015, Some(24), "character varying(20)[]"),
            (18, None, "\"char\""),
            (2249, None, "record"),
            (3802, Some(-1), "jsonb"),
            (0, None, "-"),
            (99_999, None, "???"),
        ] {
            assert_eq!(formatted(oid, modifier), expected, "{oid} {modifier:?}");
        }
    }
}
