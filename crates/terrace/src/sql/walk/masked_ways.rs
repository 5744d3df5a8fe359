//! Ways by which a masked reader may try to learn a masked value over SQL. Two stores differ in masked values alone: every
//! statement must have the same answer over both, the same error included.
//!
//! The statements are those of `masked_ways.txt`, a condition a line, each in every form of [`FORMS`], and [`OTHERS`]. That they would
//! tell something is shown by a reader without a mask, to whom most of them say different things.

use std::sync::Arc;

use node::Clock;
use node::identity::scram::Mock;
use node::identity::{Action, Guard};
use sql::{Engine, EngineOptions, Session};

use super::tests::{answer_of, reader, stored_of};

const CONDITIONS: &str = include_str!("masked_ways.txt");

/// What a condition can be part of.
const FORMS: [&str; 4] = [
    "select object from hl7.messages where CONDITION",
    "select count(*), sum(case when CONDITION then 1 else 0 end) from hl7.messages",
    "with m as (select * from hl7.messages) select control_id from m order by (CONDITION), control_id",
    "explain analyze select object from hl7.messages where CONDITION",
];

/// Whole statements.
const OTHERS: [&str; 52] = [
    "select mrn from hl7.messages order by id",
    "select control_id from hl7.messages order by mrn, control_id",
    "select control_id from hl7.messages order by mrn desc nulls last, control_id limit 1",
    "select control_id from hl7.messages order by length(body), control_id",
    "select mrn, count(*) from hl7.messages group by mrn order by 1",
    "select count(distinct mrn) from hl7.messages",
    "select distinct mrn from hl7.messages order by 1",
    "select min(mrn), max(mrn) from hl7.messages",
    "select string_agg(mrn, ',' order by control_id) from hl7.messages",
    "select array_agg(mrn order by control_id) from hl7.messages",
    "select sum(mrn::int) from hl7.messages",
    "select avg(length(body)) from hl7.messages",
    "select sum(length(raw)) from hl7.messages",
    "select bool_or(mrn = '7711') from hl7.messages",
    "select control_id, row_number() over (order by mrn, control_id) from hl7.messages order by 1",
    "select control_id, rank() over (order by mrn) from hl7.messages order by 1",
    "select control_id, lag(mrn) over (order by control_id) from hl7.messages order by 1",
    "select control_id, first_value(mrn) over (order by mrn, control_id) from hl7.messages order by 1",
    "select control_id, count(*) over (partition by mrn) from hl7.messages order by 1",
    "select mrn from hl7.messages group by mrn having count(*) > 1 order by 1",
    "select mrn, grouping(mrn) from hl7.messages group by rollup (mrn) order by 1, 2",
    "select a.control_id from hl7.messages a join hl7.messages b on a.mrn = b.mrn and a.id < b.id",
    "select a.control_id, b.value from hl7.messages a join hl7.fields b on a.mrn = b.value order by 1, 2",
    "select a.control_id from hl7.messages a left join (values ('7711')) v(x) on a.mrn = v.x where v.x is null order by 1",
    "select v.x from (values ('7711'), ('8811'), ('WASHINGTON')) v(x) where x in (select value from hl7.fields)",
    "select v.x from (values ('7711'), ('8811')) v(x) where exists (select 1 from hl7.messages m where m.mrn = v.x)",
    "select mrn from hl7.messages union select '7711' order by 1",
    "select mrn from hl7.messages intersect select '7711'",
    "select '7711' except select mrn from hl7.messages",
    "select path, value from hl7.fields order by message_id, position, path, value",
    "select path, count(*) from hl7.fields group by path order by 1",
    "select path, length(value) from hl7.fields where segment = 'PID' order by 1, 2",
    "select count(*) from hl7.fields where path like 'PID-5%'",
    "select count(*) from hl7.fields where path = 'PID-5.2'",
    "select value from hl7.fields where path = 'PID-5.1' order by 1",
    "select value from hl7.fields where value ~ '^[A-Z]+$' order by 1",
    "select value::int from hl7.fields where path = 'PID-3.1'",
    "select mrn from hl7.fields where mrn = '7711'",
    "select mrn from hl7.segments where mrn = '7711'",
    "select raw, fields from hl7.segments order by message_id, position",
    "select position, segment from hl7.segments where raw like '%WASHINGTON%'",
    "select length(raw) from hl7.segments order by message_id, position",
    "select body, raw from hl7.messages order by id",
    "copy (select mrn, body from hl7.messages order by id) to stdout",
    "copy hl7.fields (path, value) to stdout",
    "explain analyze select * from hl7.messages where mrn = '7711'",
    "explain analyze select * from hl7.fields where value = 'WASHINGTON'",
    "explain analyze select * from hl7.segments where mrn = '7711'",
    "explain verbose select * from hl7.messages where mrn = '7711'",
    "explain analyze select count(*) from hl7.messages a join hl7.messages b on a.mrn = b.mrn",
    "select table_name, column_name from information_schema.columns where table_schema = 'hl7' order by 1, 2",
    "with recursive r(n) as (select 1 union all select n + 1 from r where n < 3) select n from r, hl7.messages where mrn like n || '%'",
];

/// Messages whose masked places have these values.
fn messages(mrn: &str, name: &str, born: &str) -> Vec<Vec<u8>> {
    let one = |id: &str, mrn: &str, name: &str| {
        let header = format!("MSH|^~\\&|LAB|NORTH|||1||ORU^R01|{id}|P|2.5\r");
        format!("{header}PID|1||{mrn}^^^N||{name}||{born}\rPV1|1|I\rOBX|1|NM|GLU^Glucose||{mrn}\r").into_bytes()
    };
    vec![one("C1", mrn, name), one("C2", "6", "OTHER"), one("C3", mrn, name)]
}

/// Times and addresses of a plan, which no two runs have in common, are left out.
fn without_times(plan: &str) -> String {
    let of_time = |word: &str| {
        ["elapsed", "time", "batch", "bytes", "compute", "mem"].iter().any(|part| word.contains(part))
            || word.ends_with("ms")
            || word.ends_with("ms,")
            || word.ends_with("s]")
            || word.ends_with("\u{b5}s,")
    };
    plan.split_inclusive([' ', ',']).filter(|word| !of_time(word)).collect()
}

async fn answer(session: &mut Session, sql: &str) -> String {
    match answer_of(session, sql).await {
        Ok(rows) if sql.starts_with("explain") => without_times(&rows),
        Ok(rows) => rows,
        Err(error) => format!("{} {error}", error.code()),
    }
}

/// Sessions over a store: of a masked reader, and of one without a mask.
fn sessions(messages: Vec<Vec<u8>>) -> (Session, Session) {
    let (store, _) = stored_of(messages);
    let virtual_tables = crate::sql::history(None, &Arc::default());
    let options = EngineOptions { virtual_tables, threads: 1, ..EngineOptions::default() };
    let engine = Engine::new(store.clone(), options).expect("an engine starts");
    let guard = Guard::open(store, Clock::system(), Mock::of([7; 32])).expect("it opens");
    let rights = [(Action::MessageMetadata, "service *"), (Action::MessageBody, "service *")];
    let masked = reader(&engine, &guard, "masked", &rights);
    let all: Vec<_> = rights.into_iter().chain([(Action::Unmasked, "service *")]).collect();
    (masked, reader(&engine, &guard, "entitled", &all))
}

#[tokio::test]
async fn no_statement_tells_a_masked_reader_a_masked_value() {
    let (mut one, mut seen_one) = sessions(messages("7711", "WASHINGTON^GEORGE", "19700101"));
    let (mut other, mut seen_other) = sessions(messages("8", "ROE", "1980"));
    let conditions = CONDITIONS.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let formed = conditions.flat_map(|condition| FORMS.map(|form| form.replace("CONDITION", condition)));
    let statements: Vec<String> = formed.chain(OTHERS.map(str::to_owned)).collect();
    let (mut told, mut telling, mut refused) = (Vec::new(), 0, Vec::new());
    for sql in &statements {
        let (first, second) = (answer(&mut one, sql).await, answer(&mut other, sql).await);
        if first != second {
            told.push(format!("{sql}\n{first}\n{second}"));
        }
        if first.starts_with("0A000") || first.starts_with("42") {
            refused.push(format!("{sql}: {first}"));
        }
        telling += usize::from(answer(&mut seen_one, sql).await != answer(&mut seen_other, sql).await);
    }
    assert!(told.is_empty(), "{} of {} tell:\n{}", told.len(), statements.len(), told.join("\n"));
    assert!(statements.len() - refused.len() >= 250, "{} are refused:\n{}", refused.len(), refused.join("\n"));
    assert!(telling >= 200, "only {telling} of {} tell something without a mask", statements.len());
}
