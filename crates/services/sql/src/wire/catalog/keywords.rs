//! PostgreSQL 15's keywords (its appendix "SQL Key Words"): which names need quotes, and the rows of `pg_get_keywords()`.

use std::sync::Arc;

use datafusion::arrow::array::{BooleanArray, StringArray};
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::catalog::{MemTable, TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::error::Result;

/// Keywords that may be names of anything.
const UNRESERVED: &str = "\
    abort absolute access action add admin after aggregate also alter always asensitive assertion assignment at atomic \
    attach attribute backward before begin breadth by cache call called cascade cascaded catalog chain characteristics \
    checkpoint class close cluster columns comment comments commit committed compression configuration conflict \
    connection constraints content continue conversion copy cost csv cube current cursor cycle data database day \
    deallocate declare defaults deferred definer delete delimiter delimiters depends depth detach dictionary disable \
    discard document domain double drop each enable encoding encrypted enum escape event exclude excluding exclusive \
    execute explain expression extension external family filter finalize first following force forward function functions \
    generated global granted groups handler header hold hour identity if immediate immutable implicit import include \
    including increment index indexes inherit inherits inline input insensitive insert instead invoker isolation key \
    label language large last leakproof level listen load local location lock locked logged mapping match matched \
    materialized maxvalue merge method minute minvalue mode month move name names new next nfc nfd nfkc nfkd no \
    normalized nothing notify nowait nulls object of off oids old operator option options ordinality others over \
    overriding owned owner parallel parameter parser partial partition passing password plans policy preceding prepare \
    prepared preserve prior privileges procedural procedure procedures program publication quote range read reassign \
    recheck recursive ref referencing refresh reindex relative release rename repeatable replace replica reset restart \
    restrict return returns revoke role rollback rollup routine routines rows rule savepoint schema schemas scroll search \
    second security sequence sequences serializable server session set sets share show simple skip snapshot sql stable \
    standalone start statement statistics stdin stdout storage stored strict strip subscription support sysid system \
    tables tablespace temp template temporary text ties transaction transform trigger truncate trusted type types uescape \
    unbounded uncommitted unencrypted unknown unlisten unlogged until update vacuum valid validate validator value \
    varying version view views volatile whitespace within without work wrapper write xml year yes zone";

/// Keywords that may be names of anything except functions and types.
const COLUMNS: &str = "\
    between bigint bit boolean char character coalesce dec decimal exists extract float greatest grouping inout int \
    integer interval least national nchar none normalize nullif numeric out overlay position precision real row setof \
    smallint substring time timestamp treat trim values varchar xmlattributes xmlconcat xmlelement xmlexists xmlforest \
    xmlnamespaces xmlparse xmlpi xmlroot xmlserialize xmltable";

/// Keywords that may be names of functions and types only.
const FUNCTIONS: &str = "\
    authorization binary collation concurrently cross current_schema freeze full ilike inner is isnull join left like \
    natural notnull outer overlaps right similar tablesample verbose";

/// Keywords that cannot be names.
const RESERVED: &str = "\
    all analyse analyze and any array as asc asymmetric both case cast check collate column constraint create \
    current_catalog current_date current_role current_time current_timestamp current_user default deferrable desc \
    distinct do else end except false fetch for foreign from grant group having in initially intersect into lateral \
    leading limit localtime localtimestamp not null offset on only or order placing primary references returning select \
    session_user some symmetric table then to trailing true union unique user using variadic when where window with";

/// Keywords that may be the name of a column only behind AS.
const WITH_AS: &str = "\
    array as char character create day except fetch filter for from grant group having hour intersect into isnull limit \
    minute month notnull offset on order over overlaps precision returning second to union varying where window with \
    within without year";

/// Kinds of keywords: `catcode`, `catdesc`, the words.
const KINDS: [(&str, &str, &str); 4] = [
    ("U", "unreserved", UNRESERVED),
    ("C", "unreserved (cannot be function or type name)", COLUMNS),
    ("T", "reserved (can be function or type name)", FUNCTIONS),
    ("R", "reserved", RESERVED),
];

/// Whether a name needs quotes, because it is a keyword somewhere.
pub(super) fn is_reserved(name: &str) -> bool {
    [COLUMNS, FUNCTIONS, RESERVED].iter().any(|words| words.split(' ').any(|word| word == name))
}

/// The function `pg_get_keywords()`.
#[derive(Debug)]
pub(super) struct Keywords;

impl TableFunctionImpl for Keywords {
    fn call_with_args(&self, _: TableFunctionArgs) -> Result<Arc<dyn TableProvider>> {
        let mut all: Vec<(&str, &str, &str)> = Vec::new();
        for (code, kind, words) in KINDS {
            all.extend(words.split(' ').map(|word| (word, code, kind)));
        }
        all.sort_unstable();
        let is_bare = |word: &str| !WITH_AS.split(' ').any(|other| other == word);
        let bare: Vec<bool> = all.iter().map(|(word, ..)| is_bare(word)).collect();
        let found = bare.iter().map(|is_bare| if *is_bare { "can be bare label" } else { "requires AS" });
        let texts = |texts: Vec<&str>| Arc::new(StringArray::from(texts));
        let field = |name: &str| Field::new(name, DataType::Utf8, true);
        let schema = Arc::new(Schema::new(vec![
            field("word"),
            field("catcode"),
            Field::new("barelabel", DataType::Boolean, true),
            field("catdesc"),
            field("baredesc"),
        ]));
        let columns: Vec<Arc<dyn datafusion::arrow::array::Array>> = vec![
            texts(all.iter().map(|(word, ..)| *word).collect()),
            texts(all.iter().map(|(_, code, _)| *code).collect()),
            Arc::new(BooleanArray::from(bare.clone())),
            texts(all.iter().map(|(.., kind)| *kind).collect()),
            texts(found.collect()),
        ];
        let batch = RecordBatch::try_new(schema.clone(), columns)?;
        Ok(Arc::new(MemTable::try_new(schema, vec![vec![batch]])?))
    }
}
