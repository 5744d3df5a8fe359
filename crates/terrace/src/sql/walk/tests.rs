//! The tables of the message history, queried through a session over a store with messages.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use hl7::{Message, Path};
use interop::record::{self, Delivery, DeliveryOutcome, Head, Status, Writer};
use interop::rows::Rows;
use node::Clock;
use node::identity::scram::Mock;
use node::identity::{Action, Attributes, Caller, Credentials, Guard, IdentityChange, ObjectPattern, Privileges, Role};
use sql::arrow::util::display::{ArrayFormatter, FormatOptions};
use sql::{Engine, EngineOptions, Session, SqlError, StatementResult};
use store::{Options, Store};

const FIRST_US: i64 = 1_767_225_600_000_000; // 2026-01-01

/// What a service is sent: a result with a repeated field and subcomponents, an admission in Latin 1, what is no message, and a
/// message with a line that is no segment.
fn received() -> Vec<Vec<u8>> {
    let header = |kind: &str, id: &str, rest: &str| format!("MSH|^~\\&|LAB|NORTH|||1||{kind}|{id}|P|2.5{rest}\r");
    let result = "PID|1||7^^^N&1.2&ISO^MR~8||DOE^JA\\T\\NE\rOBX|1|NM|GLU^Glucose||5\rOBX|2|NM|NA||140\rOBX|3|NM|GLU^Glucose||\"\"\r";
    let latin = [header("ADT^A01", "C2", "||||||8859/1").as_bytes(), b"PID|1||9||M\xfcller^X\r"].concat();
    vec![
        (header("ORU^R01", "C1", "") + result).into_bytes(),
        latin,
        b"no message".to_vec(),
        (header("ORU^R01", "C4", "") + "lost text|x\rOBX|1|NM|K||4\r").into_bytes(),
    ]
}

/// A store with them, and their ids.
fn stored() -> (Store, Vec<u64>) {
    stored_of(received())
}

/// A store with messages, and their ids.
pub(in crate::sql) fn stored_of(messages: Vec<Vec<u8>>) -> (Store, Vec<u64>) {
    let options = Options { interpreter: Some(Arc::new(Rows)), ..Options::default() };
    let store = Store::in_memory(options).expect("memory is enough");
    let mut ids = Vec::new();
    for (raw, at) in messages.into_iter().zip(0..) {
        let service = if at == 1 { "ward" } else { "lab" };
        let (status, received_us) = (Status::Unmatched, FIRST_US + at * 1_000_000);
        let head = Head {
            status,
            duplicate: false,
            origin: None,
            received_us,
            generation: 7,
            service,
            charset: None,
            reason: "",
        };
        let record = Writer::new(&head, &raw).finish();
        let lsn = store.append(record::KIND_MESSAGE, record).expect("there is room");
        store.commit(lsn).expect("it works");
        store.wait_visible(lsn).expect("it works");
        ids.push(lsn.0);
    }
    (store, ids)
}

/// A session, and the ids of the messages.
fn session() -> (Session, Vec<u64>) {
    let (store, ids) = stored();
    let virtual_tables = crate::sql::history(None, &Arc::default());
    let options = EngineOptions { virtual_tables, threads: 2, ..EngineOptions::default() };
    (Engine::new(store, options).expect("an engine starts").session("tester"), ids)
}

/// The rows of a query as lines `a|b`.
pub(super) async fn answer_of(session: &mut Session, sql: &str) -> Result<String, SqlError> {
    let prepared = session.prepare(sql, &[]).await?;
    let mut lines = String::new();
    for prepared in prepared {
        let stream = match session.execute(&prepared, &[]).await? {
            StatementResult::Rows { stream, .. } => stream,
            StatementResult::CopyOut(copy) => copy.stream,
            _ => continue,
        };
        let batches: Vec<_> = stream.try_collect().await?;
        let options = FormatOptions::default().with_null("-");
        for batch in batches {
            let columns = batch.columns().iter().map(|column| ArrayFormatter::try_new(column.as_ref(), &options));
            let columns: Vec<_> = columns.collect::<Result<_, _>>().expect("every type is shown");
            for row in 0..batch.num_rows() {
                let cells: Vec<String> = columns.iter().map(|column| column.value(row).to_string()).collect();
                writeln!(lines, "{}", cells.join("|")).expect("a text grows");
            }
        }
    }
    Ok(lines)
}

/// The rows of a query as lines `a|b`; ids of messages as `#1`, `#2`.
async fn rows_of(session: &mut Session, ids: &[u64], sql: &str) -> String {
    let mut sql = sql.to_owned();
    for (id, nth) in ids.iter().zip(1..) {
        sql = sql.replace(&format!("#{nth}"), &id.to_string());
    }
    let lines = answer_of(session, &sql).await.unwrap_or_else(|error| panic!("{error}: {sql}"));
    let named = |line: &str| match ids.iter().position(|id| line.starts_with(&format!("{id}|"))) {
        Some(at) => format!("#{}|{}\n", at + 1, line.split_once('|').map_or("", |(_, rest)| rest)),
        None => format!("{line}\n"),
    };
    lines.lines().map(named).collect()
}

#[tokio::test]
async fn an_output_that_was_set_aside_has_that_status_and_its_reason() {
    let options = Options { interpreter: Some(Arc::new(Rows)), ..Options::default() };
    let store = Store::in_memory(options).expect("memory is enough");
    let append = |kind, payload: Vec<u8>| {
        let lsn = store.append(kind, payload).expect("there is room");
        store.commit(lsn).expect("it works");
        store.wait_visible(lsn).expect("it works");
        lsn.0
    };
    let (status, received_us) = (Status::Routed, FIRST_US);
    let head = Head {
        status,
        duplicate: false,
        origin: None,
        received_us,
        generation: 7,
        service: "in",
        charset: None,
        reason: "all",
    };
    let raw = b"MSH|^~\\&|A|B|||1||ADT^A01|C1|P|2.5\r";
    let mut writer = Writer::new(&head, raw);
    for operation in ["lab", "ward"] {
        writer.whole(operation, "", |out| out.extend_from_slice(raw));
    }
    let id = append(record::KIND_MESSAGE, writer.finish().to_vec());
    let (outcome, detail, by) = (DeliveryOutcome::SetAside, "unknown patient".to_owned(), "ann".to_owned());
    let aside = Delivery { id, output: 0, outcome, at_us: FIRST_US, detail, by };
    append(record::KIND_DELIVERIES, record::encode_deliveries(&[aside]));
    let virtual_tables = crate::sql::history(None, &Arc::default());
    let options = EngineOptions { virtual_tables, threads: 2, ..EngineOptions::default() };
    let mut session = Engine::new(store, options).expect("an engine starts").session("tester");
    let all = "SELECT interface, status, reason FROM hl7.messages WHERE";
    for (condition, expected) in [
        ("status = 'set-aside'", "lab|set-aside|unknown patient\n"),
        ("status = 'waiting'", "ward|waiting|-\n"),
        ("status = 'failed'", ""),
    ] {
        let found = answer_of(&mut session, &format!("{all} {condition}")).await.expect("it is a query");
        assert_eq!(found, expected, "{condition}");
    }
}

#[tokio::test]
async fn segments_are_rows_and_what_cannot_be_read_says_so() {
    let (mut session, ids) = session();
    let all = "SELECT message_id, position, segment, occurrence, fields, error FROM hl7.segments";
    let expected = "#1|1|MSH|1|12|-\n#1|2|PID|1|5|-\n#1|3|OBX|1|5|-\n#1|4|OBX|2|5|-\n#1|5|OBX|3|5|-\n";
    assert_eq!(rows_of(&mut session, &ids, &format!("{all} WHERE message_id = #1 ORDER BY position")).await, expected);
    let damaged = rows_of(&mut session, &ids, &format!("{all} WHERE error IS NOT NULL ORDER BY message_id")).await;
    let expected = "#3|0|-|-|-|the message does not start with MSH and a field separator; check the sender's framing\n\
                    #4|2|-|-|1|a line that does not begin with a segment's name\n";
    assert_eq!(damaged, expected);
    for (condition, rows) in [
        ("true", "11"),
        ("segment = 'OBX'", "4"),
        ("control_id = 'C4'", "3"),
        ("type = 'ORU^R01'", "8"),
        ("mrn = '9'", "2"),
        ("interface = 'ward'", "2"),
        ("message_id = -1", "0"),
        ("message_id > #1 AND message_id <= #3", "3"),
        ("received_at >= '2026-01-01 00:00:01' AND received_at < '2026-01-01 00:00:03'", "3"),
        ("received_at > '2026-01-01 00:00:01' AND received_at <= '2026-01-01 00:00:02'", "1"),
        ("type = 'ORU^R01' AND segment = 'OBX' AND control_id = 'C4'", "1"),
    ] {
        let found = rows_of(&mut session, &ids, &format!("SELECT count(*) FROM hl7.segments WHERE {condition}")).await;
        assert_eq!(found.trim(), rows, "{condition}");
    }
    let raw =
        rows_of(&mut session, &ids, "SELECT raw FROM hl7.segments WHERE control_id = 'C2' AND segment = 'PID'").await;
    assert_eq!(raw, "PID|1||9||M\u{fc}ller^X\n");
}

#[tokio::test]
async fn what_an_index_counts_is_what_a_walk_over_the_messages_counts() {
    let (mut session, ids) = session();
    for (condition, rows) in [
        ("true", "4"),
        ("object = 0", "4"),
        ("object = 1", "0"),
        ("direction = 'in'", "4"),
        ("type = 'ORU^R01'", "2"),
        ("type = 'ORU'", "0"),
        ("type = 'ORU^R01' AND received_at > '2026-01-01 00:00:01'", "1"),
        ("type = 'ORU^R01' AND id = #1", "1"),
        ("type = 'ORU^R01' AND interface = 'ward'", "0"),
        ("received_at >= '2026-01-01 00:00:01' AND received_at < '2026-01-01 00:00:03'", "2"),
        ("status = 'unmatched'", "4"),
        ("status = 'errored'", "0"),
        ("status = 'waiting'", "0"),
    ] {
        let counted =
            rows_of(&mut session, &ids, &format!("SELECT count(*) FROM hl7.messages WHERE {condition}")).await;
        // The bytes of a message are in no index.
        let walk = format!("SELECT count(raw) FROM hl7.messages WHERE {condition}");
        assert_eq!((counted.trim(), rows_of(&mut session, &ids, &walk).await.trim()), (rows, rows), "{condition}");
    }
    let known = "SELECT id, object, direction, type, received_at FROM hl7.messages WHERE type = 'ADT^A01'";
    assert_eq!(rows_of(&mut session, &ids, known).await, "#2|0|in|ADT^A01|2026-01-01T00:00:01\n");
}

#[tokio::test]
async fn fields_are_rows_that_join_and_count() {
    let (mut session, ids) = session();
    let patient = "SELECT path, repetition, value FROM hl7.fields WHERE message_id = #1 AND segment = 'PID' \
                   ORDER BY field, repetition, component NULLS FIRST, subcomponent NULLS FIRST";
    let expected = "PID-1|1|1\nPID-1.1|1|1\nPID-3|1|7^^^N&1.2&ISO^MR\nPID-3.1|1|7\nPID-3.4|1|N&1.2&ISO\nPID-3.4.1|1|N\n\
                    PID-3.4.2|1|1.2\nPID-3.4.3|1|ISO\nPID-3.5|1|MR\nPID-3|2|8\nPID-3.1|2|8\nPID-5|1|DOE^JA&NE\n\
                    PID-5.1|1|DOE\nPID-5.2|1|JA&NE\n";
    assert_eq!(rows_of(&mut session, &ids, patient).await, expected);
    for (query, expected) in [
        ("SELECT value, count(*) FROM hl7.fields WHERE path = 'OBX-3.1' GROUP BY 1 ORDER BY 1", "GLU|2\nK|1\nNA|1\n"),
        ("SELECT value FROM hl7.fields WHERE path = 'PID-5.1' ORDER BY message_id", "DOE\nM\u{fc}ller\n"),
        ("SELECT value FROM hl7.fields WHERE path = 'MSH-2' AND message_id = #1", "^~\\&\n"),
        (
            "SELECT occurrence, value FROM hl7.fields WHERE path = 'OBX-5' AND message_id = #1 ORDER BY 1",
            "1|5\n2|140\n3|\"\"\n",
        ),
        ("SELECT count(*) FROM hl7.fields WHERE path IN ('OBX-3.2', 'OBX-99', 'OBX', '', 'OBX-3.x')", "2\n"),
        ("SELECT count(*) FROM hl7.fields WHERE path = 'OBX-03.1'", "0\n"),
        (
            "SELECT message_id, position, error IS NULL FROM hl7.fields WHERE path IS NULL ORDER BY 1",
            "#3|0|false\n#4|2|false\n",
        ),
        (
            "SELECT m.control_id, c.value, v.value FROM hl7.messages m JOIN hl7.fields c ON c.message_id = m.id \
             JOIN hl7.fields v ON v.message_id = c.message_id AND v.position = c.position \
             WHERE m.object = 0 AND m.interface = 'lab' AND c.path = 'OBX-3.1' AND v.path = 'OBX-5' ORDER BY 1, 2, 3",
            "C1|GLU|\"\"\nC1|GLU|5\nC1|NA|140\nC4|K|4\n",
        ),
    ] {
        assert_eq!(rows_of(&mut session, &ids, query).await, expected, "{query}");
    }
}

#[tokio::test]
async fn a_value_is_what_the_function_gives_for_its_place() {
    let (mut session, ids) = session();
    let all = "SELECT message_id, segment || '[' || occurrence || ']-' || field || '[' || repetition || ']' || \
               coalesce('.' || component, '') || coalesce('.' || subcomponent, ''), value FROM hl7.fields WHERE path IS NOT NULL";
    let rows = rows_of(&mut session, &ids, all).await;
    let raws = received();
    assert!(rows.lines().count() > 80, "{rows}");
    for row in rows.lines() {
        let [message, path, value] = row.splitn(3, '|').collect::<Vec<_>>()[..] else { panic!("{row}") };
        let nth: usize = message.trim_start_matches('#').parse().expect("a number");
        let message = Message::parse(&raws[nth - 1]).expect("it has fields");
        let path: Path = path.parse().unwrap_or_else(|error| panic!("{error}: {row}"));
        assert_eq!(message.text(&path), value, "{row}");
    }
}

/// A store with many messages, short and long, that do not fit in its page cache; every third has outputs.
fn many() -> Store {
    let options = Options { interpreter: Some(Arc::new(Rows)), cache_bytes: 4 << 20, ..Options::default() };
    let store = Store::in_memory(options).expect("memory is enough");
    let mut last = None;
    for number in 0..1_200_usize {
        let raw = format!(
            "MSH|^~\\&|A|B|||1||ADT^A01|C{number}|P|2.5\rPID|1||{number}||N{}^X|||{}\rNTE|1||{}\r",
            number % 23,
            ["F", "M"][number % 2],
            "x".repeat(if number % 10 == 0 { 4_000 + 9 * number } else { number * 7 % 2_500 })
        );
        let raw = Bytes::from(raw);
        let (received_us, outputs) = (FIRST_US + number as i64, if number % 3 == 0 { 2 } else { 0 });
        let status = if outputs > 0 { Status::Routed } else { Status::Unmatched };
        let head = Head {
            status,
            duplicate: false,
            origin: None,
            received_us,
            generation: 7,
            service: "in",
            charset: None,
            reason: "",
        };
        let mut writer = Writer::new(&head, &raw);
        (0..outputs).for_each(|_| _ = writer.whole("out", "", |out| out.extend_from_slice(&raw)));
        let lsn = store.append(record::KIND_MESSAGE, writer.finish()).expect("there is room");
        store.commit(lsn).expect("it works");
        last = Some(lsn);
    }
    store.wait_visible(last.expect("some")).expect("it works");
    store
}

fn engine(store: &Store, threads: usize, query_bytes: usize) -> Arc<Engine> {
    let virtual_tables = crate::sql::history(None, &Arc::default());
    let options = EngineOptions { virtual_tables, threads, query_bytes, ..EngineOptions::default() };
    Engine::new(store.clone(), options).expect("an engine starts")
}

#[tokio::test]
async fn all_messages_read_on_several_threads_and_in_little_memory_are_those_read_on_one() {
    let store = many();
    let sizes = [(1, 1 << 30), (2, 1 << 30), (7, 1 << 30), (2, 16 << 20)];
    let engines = sizes.map(|(threads, bytes)| engine(&store, threads, bytes));
    let plan = rows_of(&mut engines[1].session("a"), &[], "EXPLAIN SELECT count(raw) FROM hl7.messages").await;
    assert!(plan.contains("partition_sizes=2"), "{plan}");
    for (query, lines) in [
        ("SELECT hl7(raw, 'PID-5.1') n, count(*), count(DISTINCT id) FROM hl7.messages GROUP BY 1 ORDER BY 1", 23),
        ("SELECT count(*) FROM hl7.messages WHERE object = 0 AND hl7(raw, 'PID-8') = 'F'", 1),
        ("SELECT id, object, length(raw), md5(raw) FROM hl7.messages ORDER BY id, object", 2_000),
        ("SELECT id, object, status FROM hl7.messages ORDER BY 1, 2", 2_000),
        ("SELECT id FROM hl7.messages WHERE id > 1000 AND body LIKE '%N3^X%' ORDER BY 1", 89),
        ("SELECT segment, count(*), sum(fields) FROM hl7.segments GROUP BY 1 ORDER BY 1", 3),
        ("SELECT value, count(*) FROM hl7.fields WHERE path = 'PID-5.1' GROUP BY 1 ORDER BY 1", 23),
        (
            "SELECT a.id, s.segment FROM hl7.messages a JOIN hl7.segments s ON s.message_id = a.id AND a.object < 1 ORDER BY 1, 2",
            3_600,
        ),
        ("SELECT raw FROM hl7.messages ORDER BY id LIMIT 3", 3),
    ] {
        let expected = rows_of(&mut engines[0].session("a"), &[], query).await;
        assert_eq!(expected.lines().count(), lines, "{query}");
        for (engine, size) in engines.iter().zip(sizes).skip(1) {
            assert!(rows_of(&mut engine.session("a"), &[], query).await == expected, "{query} with {size:?}");
        }
    }
    // By an index, and looked up some at a time.
    let all = "SELECT id, object, md5(raw), status FROM hl7.messages WHERE true ORDER BY id, object";
    let mut session = engines[1].session("a");
    let expected = rows_of(&mut session, &[], all).await;
    for condition in ["type = 'ADT^A01'", "received_at >= '2020-01-01'", "received_at < '2030-01-01' AND id > 0"] {
        let found = rows_of(&mut session, &[], &all.replace("true", condition)).await;
        assert!(found == expected, "{condition}: {} rows", found.lines().count());
    }
}

#[tokio::test]
async fn a_walk_over_messages_gives_small_batches_and_ends_when_it_is_cancelled() {
    let engine = engine(&many(), 2, 1 << 30);
    let mut session = engine.session("a");
    let prepared = session.prepare("SELECT raw FROM hl7.messages", &[]).await.expect("a query");
    for cancels in [false, true] {
        let answer = session.execute(&prepared[0], &[]).await.expect("it runs");
        let StatementResult::Rows { mut stream, .. } = answer else { panic!("no rows") };
        let (mut rows, mut failed) = (0, None);
        while let Some(batch) = stream.next().await {
            match batch {
                // A message has 15 KB at most: its batch was full without it, or it is the last of a batch.
                Ok(batch) => {
                    rows += batch.num_rows();
                    assert!(batch.get_array_memory_size() < 2 << 20, "{} rows", batch.num_rows());
                }
                Err(error) => failed = Some(sql::SqlError::from(error)),
            }
            if cancels {
                session.canceller().cancel();
            }
        }
        match cancels {
            false => assert_eq!((rows, failed.is_none()), (2_000, true)),
            true => assert_eq!(failed.expect("it is cancelled").code(), "57014"),
        }
        drop(stream);
    }
    assert_eq!(rows_of(&mut session, &[], "SELECT count(raw) FROM hl7.messages").await, "2000\n");
}

/// A session of a new role with rights, on services by `*`.
pub(super) fn reader(engine: &Arc<Engine>, guard: &Arc<Guard>, name: &str, rights: &[(Action, &str)]) -> Session {
    let attributes = Attributes { login: true, ..Attributes::default() };
    let grant = |(action, object): &(Action, &str)| IdentityChange::Grant {
        privileges: Privileges {
            actions: vec![*action],
            object: ObjectPattern::parse(object).expect("a pattern"),
            columns: Vec::new(),
            grantee: name.to_owned(),
        },
        grant_option: false,
    };
    let tables = [(Action::SchemaUse, "schema hl7"), (Action::TableSelect, "table hl7.*")];
    let mut changes =
        vec![IdentityChange::Create(Role { name: name.to_owned(), attributes, credentials: Credentials::default() })];
    changes.extend(tables.iter().chain(rights).map(grant));
    guard.change(&Caller::node(), &changes).expect("the node may");
    let caller = guard.trusted(name, IpAddr::from([127, 0, 0, 1])).expect("it may log in");
    engine.session_of(Arc::clone(guard), caller).expect("it is there")
}

#[tokio::test]
async fn a_reader_sees_masked_messages_no_bodies_or_none_and_no_condition_says_more() {
    let (store, ids) = stored();
    let options =
        EngineOptions { virtual_tables: crate::sql::history(None, &Arc::default()), ..EngineOptions::default() };
    let engine = Engine::new(store.clone(), options).expect("an engine starts");
    let guard = Guard::open(store, Clock::system(), Mock::of([7; 32])).expect("it opens");
    let (metadata, body) = ((Action::MessageMetadata, "service *"), (Action::MessageBody, "service *"));
    let mut masked = reader(&engine, &guard, "masked", &[metadata, body]);
    let mut lister = reader(&engine, &guard, "lister", &[metadata, (Action::MessageBody, "service ward")]);
    let mut entitled = reader(&engine, &guard, "entitled", &[metadata, body, (Action::Unmasked, "service lab")]);

    let first = "SELECT id, mrn, hl7(raw, 'PID-5.1'), hl7(raw, 'OBX-3.1') FROM hl7.messages WHERE id = #1";
    for (session, expected) in
        [(&mut masked, "#1|MASKED|MASKED|GLU\n"), (&mut lister, ""), (&mut entitled, "#1|7|DOE|GLU\n")]
    {
        assert_eq!(rows_of(session, &ids, first).await, expected);
    }
    for (condition, of_masked, of_entitled) in [
        ("mrn = '7'", "0", "1"),
        ("mrn = 'MASKED'", "2", "1"),
        ("mrn <> 'MASKED'", "0", "1"),
        ("body LIKE '%DOE%'", "0", "1"),
        ("hl7(raw, 'PID-5.1') = 'DOE'", "0", "1"),
        ("control_id = 'C1'", "1", "1"),
        ("type = 'ORU^R01'", "2", "2"),
        ("raw IS NULL", "0", "0"),
        ("true", "4", "4"),
    ] {
        let count = format!("SELECT count(*) FROM hl7.messages WHERE {condition}");
        assert_eq!(rows_of(&mut masked, &ids, &count).await.trim(), of_masked, "{condition}");
        assert_eq!(rows_of(&mut entitled, &ids, &count).await.trim(), of_entitled, "{condition}");
    }
    let fields = "SELECT message_id, value FROM hl7.fields WHERE value IN ('DOE', '7') ORDER BY 1, 2";
    assert_eq!(rows_of(&mut masked, &ids, fields).await, "");
    assert_eq!(rows_of(&mut entitled, &ids, fields).await, "#1|7\n#1|DOE\n");
    let whole = "SELECT count(*) FROM hl7.segments WHERE raw LIKE '%DOE%' OR raw LIKE '%ller%'";
    assert_eq!(rows_of(&mut masked, &ids, whole).await.trim(), "0");
    assert_eq!(rows_of(&mut lister, &ids, "SELECT count(*) FROM hl7.segments").await.trim(), "2", "of the ward's");
    let explained = rows_of(&mut masked, &ids, "EXPLAIN ANALYZE SELECT id FROM hl7.messages WHERE mrn = '7'").await;
    let other = rows_of(&mut masked, &ids, "EXPLAIN ANALYZE SELECT id FROM hl7.messages WHERE mrn = '0'").await;
    let rows = |plan: &str| plan.matches("output_rows=4").count();
    assert!(rows(&explained) > 0 && rows(&explained) == rows(&other), "all are read: {explained}");
}
