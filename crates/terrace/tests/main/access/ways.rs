//! Every action's real requests, over each port that needs it: the table of the matrix.
//!
//! [`of`] is an exhaustive `match`: a new action does not compile without its requests. What has no request over any port says
//! why. In a request `{id}` is the stored message, `{n}` a number that is never used again, `{pid}` the connection over
//! SQL of another user, `{soon}` a time in some minutes, `{folder}` a folder that is not there yet.

use node::identity::Action;

/// A right: an action on an object.
pub(crate) type Right = (Action, &'static str);

/// How it shows that a request was let through.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Success {
    /// It is done without an error.
    Done,
    /// Its answer contains this; an answer without it is a refusal: what may not be seen is not there.
    Shows(&'static str),
    /// Any answer but a refusal: doing it for each role would change what the next one is asked for.
    Decided,
}

/// A request over a port.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Request {
    /// A line of the control socket.
    Control(&'static str),
    /// A statement over SQL.
    Sql(&'static str),
    /// Method, target and body over HTTP.
    Search(&'static str, &'static str, &'static str),
    /// A target of the listener of metrics.
    Metrics(&'static str),
    /// Method and target of the console, with a token.
    Console(&'static str, &'static str),
    /// The list of exports.
    NbdList,
    /// Opens an export and reads from it.
    NbdRead,
    /// Opens an export and writes to it.
    NbdWrite,
}

impl Request {
    /// Its port.
    pub(crate) fn port(self) -> &'static str {
        match self {
            Request::Control(_) => "control",
            Request::Sql(_) => "sql",
            Request::Search(..) => "search",
            Request::Metrics(_) => "metrics",
            Request::Console(..) => "console",
            Request::NbdList | Request::NbdRead | Request::NbdWrite => "nbd",
        }
    }

    /// As a line of the table shows it.
    pub(crate) fn text(self) -> String {
        match self {
            Request::Control(line) => line.chars().take(60).collect(),
            Request::Sql(statement) => statement.to_owned(),
            Request::Search(method, target, _) | Request::Console(method, target) => format!("{method} {target}"),
            Request::Metrics(target) => format!("GET {target}"),
            Request::NbdList => "LIST".to_owned(),
            Request::NbdRead => "GO v, READ".to_owned(),
            Request::NbdWrite => "GO v, WRITE".to_owned(),
        }
    }
}

/// A request, and exactly what it needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Way {
    pub(crate) request: Request,
    pub(crate) needs: &'static [Right],
    pub(crate) success: Success,
    /// Whether it needs the right to another action of the same kind as well, which the role of this action has not.
    pub(crate) is_mixed: bool,
}

/// The requests of an action.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Ways {
    /// These.
    Of(&'static [Way]),
    /// None over any port, and why.
    Nowhere(&'static str),
    /// `stop`, which is asked last.
    Stop,
}

pub(crate) const CONNECT: Right = (Action::SqlConnect, "node");
const USE: Right = (Action::SchemaUse, "schema public");
const USE_HL7: Right = (Action::SchemaUse, "schema hl7");
const METADATA: Right = (Action::MessageMetadata, "service *");
const BODY: Right = (Action::MessageBody, "service *");
const UNMASKED: Right = (Action::Unmasked, "service *");
const RESEND: Right = (Action::MessageResend, "service *");
const SUSPEND: Right = (Action::OperationSuspend, "operation out");
const READ: Right = (Action::IndexRead, "index i");
const READ_MESSAGES: Right = (Action::IndexRead, "index .messages");
const MESSAGES: Right = (Action::TableSelect, "table hl7.messages");
const FIELDS: Right = (Action::TableSelect, "table hl7.fields");
const SEGMENTS: Right = (Action::TableSelect, "table hl7.segments");
const SELECT: Right = (Action::TableSelect, "table public.t");
const INSERT: Right = (Action::TableInsert, "table public.t");
const UPDATE: Right = (Action::TableUpdate, "table public.t");
const DELETE: Right = (Action::TableDelete, "table public.t");
const LIST_VOLUME: Right = (Action::VolumeList, "volume v");
const READ_VOLUME: Right = (Action::VolumeRead, "volume v");

use Request::{Console, Control, Metrics, NbdList, NbdRead, NbdWrite, Search, Sql};
use Success::{Decided, Done, Shows};

const fn way(request: Request, needs: &'static [Right], success: Success) -> Way {
    Way { request, needs, success, is_mixed: false }
}

const fn mixed(request: Request, needs: &'static [Right], success: Success) -> Way {
    Way { request, needs, success, is_mixed: true }
}

const METADATA_WAYS: &[Way] = &[
    way(Control("messages {}"), &[METADATA], Shows("M1")),
    way(Control("message {id} metadata"), &[METADATA], Shows("adt")),
    way(Control(r#"todo {"verb":"list"}"#), &[METADATA], Done),
    way(Console("GET", "/api/v1/todo"), &[METADATA], Done),
    way(Console("GET", "/todo"), &[METADATA], Done),
    way(Console("GET", "/messages.csv"), &[METADATA], Shows("M1")),
    way(Control("message-page {}"), &[METADATA], Shows("M1")),
    way(Console("GET", "/api/v1/messages"), &[METADATA], Shows("M1")),
    way(Console("GET", "/api/v1/messages/{id}"), &[METADATA], Shows("adt")),
    way(Console("GET", "/messages/tail"), &[METADATA], Shows("data-from=\"/live/tail\"")),
    way(Console("GET", "/messages/{id}"), &[METADATA], Shows("Its way")),
    way(
        Sql("SELECT interface FROM hl7.messages WHERE object = 0"),
        &[METADATA, CONNECT, USE_HL7, MESSAGES],
        Shows("adt"),
    ),
];

const BODY_WAYS: &[Way] = &[
    way(Control("message {id}"), &[METADATA, BODY], Shows("MSH|")),
    way(Control(r#"export {"masked":true}"#), &[METADATA, BODY], Shows("MSH|")),
    way(Console("GET", "/messages/export?masked=yes"), &[METADATA, BODY], Shows("MSH|")),
    way(Console("GET", "/api/v1/messages/export?masked=yes&format=hl7"), &[METADATA, BODY], Shows("MSH|")),
    way(Control(r#"messages {"wanted":[["MSH-4","NORTH"]]}"#), &[METADATA, BODY], Shows("M1")),
    way(Console("GET", "/messages/{id}/raw"), &[METADATA, BODY], Shows("MSH|")),
    way(Console("GET", "/messages/tail?bodies=yes"), &[METADATA, BODY], Shows("data-from=\"/live/tail?bodies=yes\"")),
    way(Console("GET", "/api/v1/messages/{id}/body"), &[METADATA, BODY], Shows("TVNI")),
    way(Console("GET", "/api/v1/messages?q=MSH-4%3DNORTH"), &[METADATA, BODY], Shows("M1")),
    way(Sql("SELECT body FROM hl7.messages"), &[BODY, CONNECT, USE_HL7, MESSAGES], Shows("NORTH")),
    way(Sql("SELECT value FROM hl7.fields WHERE path = 'MSH-4'"), &[BODY, CONNECT, USE_HL7, FIELDS], Shows("NORTH")),
    way(Sql("SELECT raw FROM hl7.segments"), &[BODY, CONNECT, USE_HL7, SEGMENTS], Shows("NORTH")),
    way(Sql("COPY (SELECT body FROM hl7.messages) TO STDOUT"), &[BODY, CONNECT, USE_HL7, MESSAGES], Shows("COPY ")),
];

const UNMASKED_WAYS: &[Way] = &[
    way(Control("message {id}"), &[METADATA, BODY, UNMASKED], Shows("SAMPLE")),
    way(Control("export {}"), &[METADATA, BODY, UNMASKED], Shows("SAMPLE")),
    way(Control(r#"export {"masked":true,"filter":{"mrn":"1"}}"#), &[METADATA, BODY, UNMASKED], Shows("M1")),
    way(Console("GET", "/messages/export"), &[METADATA, BODY, UNMASKED], Shows("SAMPLE")),
    way(Console("GET", "/api/v1/messages/export?format=batch"), &[METADATA, BODY, UNMASKED], Shows("SAMPLE")),
    way(Console("GET", "/messages/{id}/raw"), &[METADATA, BODY, UNMASKED], Shows("SAMPLE")),
    way(Console("GET", "/api/v1/messages?mrn=1"), &[METADATA, BODY, UNMASKED], Shows("M1")),
    way(Control(r#"messages {"wanted":[["PID-5.1","SAMPLE"]]}"#), &[METADATA, BODY, UNMASKED], Shows("M1")),
    way(
        Control(
            r#"message-search {"query":"sample","last":10,"by_score":false,"since_us":null,"until_us":null,"time_max_ms":30000}"#,
        ),
        &[BODY, UNMASKED],
        Shows("SAMPLE"),
    ),
    way(Sql("SELECT body FROM hl7.messages"), &[BODY, UNMASKED, CONNECT, USE_HL7, MESSAGES], Shows("SAMPLE")),
    way(
        Console("POST", "/api/v1/sql?q=SELECT+body+FROM+hl7.messages"),
        &[BODY, UNMASKED, CONNECT, USE_HL7, MESSAGES],
        Shows("SAMPLE"),
    ),
    way(Console("GET", "/api/v1/search?q=north&index=.messages"), &[READ_MESSAGES, BODY, UNMASKED], Shows("NORTH")),
    way(
        Sql("SELECT 'found' FROM hl7.fields WHERE value = 'SAMPLE'"),
        &[BODY, UNMASKED, CONNECT, USE_HL7, FIELDS],
        Shows("found"),
    ),
    way(Search("GET", "/.messages/_search", ""), &[READ_MESSAGES, BODY, UNMASKED], Shows("NORTH")),
    way(Search("GET", "/.messages/_count?q=text:sample", ""), &[READ_MESSAGES, BODY, UNMASKED], Shows(r#""count":"#)),
];

const SIGNAL_WAYS: &[Way] =
    &[way(Sql("SELECT pg_cancel_backend({pid})"), &[(Action::SqlSignal, "node"), CONNECT], Done)];

const ACTIVITY_WAYS: &[Way] = &[way(
    Sql("SELECT query FROM pg_stat_activity WHERE pid = {pid}"),
    &[(Action::SqlActivity, "node"), CONNECT],
    Shows("marked"),
)];

const USER_WAYS: &[Way] = &[
    way(Control(r#"identity {"verb":"list"}"#), &[(Action::UserAdminister, "node")], Done),
    way(Console("GET", "/users"), &[(Action::UserAdminister, "node")], Done),
    way(Console("GET", "/api/v1/users"), &[(Action::UserAdminister, "node")], Done),
    way(Control(r#"identity {"verb":"show","role":"expired"}"#), &[(Action::UserAdminister, "node")], Done),
    // Others' roles are changed by administrators, and by who has ADMIN OPTION on them, as in PostgreSQL.
    way(
        Control(
            r#"identity {"verb":"change","changes":[{"create":{"name":"made{n}","attributes":{},"credentials":{}}}]}"#,
        ),
        &[(Action::UserAdminister, "node")],
        Done,
    ),
    way(Sql("CREATE ROLE made{n}"), &[(Action::UserAdminister, "node"), CONNECT], Done),
];

const GRANT_WAYS: &[Way] = &[
    // The node of the matrix is not encrypted, which is told to who may change its keys only.
    way(Control("encryption rotate-data-key"), &[(Action::RightsGrant, "node")], Decided),
    way(
        Control(r#"encryption-rewrite {"verb":"start","bytes_per_second":1000000}"#),
        &[(Action::RightsGrant, "node")],
        Decided,
    ),
    way(Control(r#"encryption-rewrite {"verb":"stop"}"#), &[(Action::RightsGrant, "node")], Decided),
    way(
        Control(
            r#"identity {"verb":"change","changes":[{"grant":{"privileges":{"actions":["index-read"],"object":{"kind":"index","name":"elsewhere"},"columns":[],"grantee":"expired"},"grant_option":false}}]}"#,
        ),
        &[(Action::RightsGrant, "node")],
        Done,
    ),
    way(Sql("GRANT SELECT ON public.t TO expired"), &[(Action::RightsGrant, "node"), CONNECT, USE], Done),
];

const BREAK_GLASS_WAYS: &[Way] = &[way(
    Control(
        r#"identity {"verb":"change","changes":[{"break-glass":{"action":"index-read","object":{"kind":"index","name":"elsewhere"},"until_us":{soon},"reason":"a test"}}]}"#,
    ),
    &[(Action::BreakGlass, "node")],
    Done,
)];

const STATUS: Right = (Action::NodeStatus, "node");
/// The last one is a family of the exposition, whatever else it has.
const METRICS_WAYS: &[Way] = &[
    way(
        Metrics("/metrics"),
        &[(Action::NodeMetrics, "node")],
        Shows("terrace_messages_received_total{service=\"adt\""),
    ),
    way(Metrics("/metrics?name=x"), &[(Action::NodeMetrics, "node")], Shows("process_start_time_seconds")),
    way(Control("profile {\"verb\":\"status\"}"), &[(Action::NodeMetrics, "node")], Decided),
    way(Console("GET", "/api/v1/profile"), &[(Action::NodeMetrics, "node")], Decided),
    way(Console("GET", "/plan"), &[(Action::NodeMetrics, "node")], Decided),
    way(Control("history {\"verb\":\"list\",\"range\":\"1h\"}"), &[(Action::NodeMetrics, "node")], Decided),
    way(
        Control("history {\"verb\":\"points\",\"series\":\"nothing\",\"range\":\"1y\"}"),
        &[(Action::NodeMetrics, "node")],
        Decided,
    ),
];
const PROFILE: &[Right] = &[(Action::NodeProfile, "node")];
/// Nothing is recorded there: who may end a recording is told so.
const PROFILE_WAYS: &[Way] = &[
    way(Control("profile {\"verb\":\"stop\"}"), PROFILE, Decided),
    way(Control("profile {\"verb\":\"read\",\"name\":\"x\",\"offset\":0}"), PROFILE, Decided),
    way(Control("profile {\"verb\":\"remove\",\"name\":\"x\"}"), PROFILE, Decided),
];
const SILENCE: &[Right] = &[(Action::AlertSilence, "node")];
/// No rules are in force there: who may try a channel is told that there is none.
const SILENCE_WAYS: &[Way] = &[
    way(
        Control(
            "alert {\"verb\":\"silence\",\"rule\":null,\"subject\":null,\"until_us\":{soon},\"reason\":\"a test\"}",
        ),
        SILENCE,
        Decided,
    ),
    way(Control("alert {\"verb\":\"unsilence\",\"number\":{n}}"), SILENCE, Decided),
    way(Control("alert {\"verb\":\"test\",\"channel\":\"x\"}"), SILENCE, Decided),
];
const CLOSE: &[Right] = &[(Action::ConnectionClose, "node")];
/// No connection has this number: who may close one is told so.
const CLOSE_WAYS: &[Way] = &[
    way(Control(r#"connection {"verb":"close","id":18446744073709551615}"#), CLOSE, Decided),
    way(Console("POST", "/api/v1/connections/18446744073709551615/close"), CLOSE, Decided),
];
const VERIFY: Right = (Action::NodeVerify, "node");
const AUDIT: Right = (Action::AuditRead, "node");
const MAKE_TABLE: Right = (Action::TableMake, "schema public");
const OWN: Right = (Action::TableOwn, "table public.own");
const OWN_SCHEMA: Right = (Action::SchemaOwn, "schema own");
const WRITE: Right = (Action::IndexWrite, "index i");
const MANAGE: Right = (Action::IndexManage, "index i");
const MONITOR: Right = (Action::IndexMonitor, "index i");
const SEARCH_MONITOR: Right = (Action::SearchMonitor, "node");
const SEARCH_MANAGE: Right = (Action::SearchManage, "node");
const EXPORT: Right = (Action::VolumeExport, "volume v");

/// The requests that need an action.
pub(crate) fn of(action: Action) -> Ways {
    use Ways::{Nowhere, Of, Stop};
    match action {
        Action::MessageMetadata => Of(METADATA_WAYS),
        Action::MessageBody => Of(BODY_WAYS),
        Action::MessageResend => Of(RESEND_WAYS),
        Action::MessageEdit => Of(EDIT_WAYS),
        Action::MessageImport => Of(IMPORT_WAYS),
        Action::Unmasked => Of(UNMASKED_WAYS),
        Action::OperationSuspend => Of(SUSPEND_WAYS),
        Action::OperationSetAside => Of(SET_ASIDE_WAYS),
        Action::ProductionLoad => Of(PRODUCTION_LOAD_WAYS),
        Action::ProductionRead => Of(PRODUCTION_READ_WAYS),
        Action::ClockConfirm => Of(CLOCK_WAYS),
        Action::NodeStatus => Of(STATUS_WAYS),
        Action::NodeMetrics => Of(METRICS_WAYS),
        Action::ConnectionClose => Of(CLOSE_WAYS),
        Action::AlertSilence => Of(SILENCE_WAYS),
        Action::NodeStop => Stop,
        Action::NodeVerify => Of(VERIFY_WAYS),
        Action::NodeProfile => Of(PROFILE_WAYS),
        Action::NodeBackup => Of(BACKUP_WAYS),
        Action::UserAdminister => Of(USER_WAYS),
        Action::RightsGrant => Of(GRANT_WAYS),
        Action::AuditRead => Of(AUDIT_WAYS),
        Action::AuditManage => Nowhere("the audit is removed by its settings only, as the node is started with them"),
        Action::BreakGlass => Of(BREAK_GLASS_WAYS),
        Action::SqlConnect => Of(CONNECT_WAYS),
        Action::SqlSignal => Of(SIGNAL_WAYS),
        Action::SqlActivity => Of(ACTIVITY_WAYS),
        Action::SchemaMake => Of(SCHEMA_MAKE_WAYS),
        Action::SchemaUse => Of(const { &[way(Sql("SELECT a FROM public.t"), &[USE, SELECT, CONNECT], Done)] }),
        Action::TableMake => Of(TABLE_MAKE_WAYS),
        // The schema has a table: who may drop it is told so.
        Action::SchemaOwn => Of(const { &[way(Sql("DROP SCHEMA own"), &[OWN_SCHEMA, CONNECT], Decided)] }),
        Action::TableSelect => Of(SELECT_WAYS),
        Action::TableInsert => Of(INSERT_WAYS),
        Action::TableUpdate => Of(const { &[way(Sql("UPDATE t SET b = 1"), &[UPDATE, USE, CONNECT], Done)] }),
        Action::TableDelete => Of(const { &[way(Sql("DELETE FROM t"), &[DELETE, USE, CONNECT], Done)] }),
        Action::TableTruncate => Of(TRUNCATE_WAYS),
        Action::TableReferences => {
            Nowhere("a foreign key to t would keep other ways from t: the tests of crates/services/sql ask for it")
        }
        Action::TableTrigger => Nowhere("triggers are not supported: it can be granted, as in PostgreSQL"),
        Action::TableMaintain => Nowhere("ANALYZE and VACUUM do nothing: it can be granted, as in PostgreSQL"),
        Action::TableOwn => Of(TABLE_OWN_WAYS),
        Action::IndexRead => Of(INDEX_READ_WAYS),
        Action::IndexWrite => Of(INDEX_WRITE_WAYS),
        Action::IndexMake => Of(INDEX_MAKE_WAYS),
        Action::IndexManage => Of(INDEX_MANAGE_WAYS),
        Action::IndexMonitor => Of(INDEX_MONITOR_WAYS),
        Action::SearchMonitor => Of(SEARCH_MONITOR_WAYS),
        Action::SearchManage => Of(SEARCH_MANAGE_WAYS),
        Action::VolumeList => Of(VOLUME_LIST_WAYS),
        Action::VolumeRead => Of(const { &[way(NbdRead, &[READ_VOLUME], Done)] }),
        Action::VolumeWrite => Of(const { &[way(NbdWrite, &[READ_VOLUME, (Action::VolumeWrite, "volume v")], Done)] }),
        Action::VolumeAdminister => Of(VOLUME_ADMINISTER_WAYS),
        Action::VolumeExport => Of(VOLUME_EXPORT_WAYS),
    }
}

const CONNECT_WAYS: &[Way] = &[
    way(Sql("SELECT 1"), &[CONNECT], Done),
    way(Console("POST", "/api/v1/sql?q=SELECT+1"), &[CONNECT], Shows("\"1\"")),
    way(Console("GET", "/sql"), &[CONNECT], Done),
];

const RESEND_WAYS: &[Way] = &[
    way(Control("resend {id}"), &[RESEND], Done),
    way(Control(r#"reprocess {"ids":[{id}],"preview":true}"#), &[RESEND], Shows("\"routed\"")),
    way(Control(r#"reprocess {"ids":[{id}]}"#), &[RESEND], Shows("\"routed\"")),
    way(Console("POST", "/api/v1/messages/{id}/resend"), &[RESEND], Done),
    way(Console("POST", "/api/v1/messages/{id}/reprocess?preview=yes"), &[RESEND], Shows("\"routed\"")),
    way(Console("POST", "/api/v1/reprocess?status=dropped&preview=yes"), &[RESEND], Done),
    way(Console("POST", "/api/v1/todo/{id}?act=take"), &[RESEND], Decided),
    // The message needs nobody: who may change what is noted about it is told so.
    way(Control(r#"todo {"verb":"change","id":{id},"change":"take"}"#), &[RESEND], Decided),
];

const EDIT_WAYS: &[Way] = &[
    way(
        Control(r#"resend-edited {"id":{id},"body":"MSH|^~\\&|HIS|NORTH|HUB|X|2026||ADT^A01|E1|P|2.5\rPID|1\r"}"#),
        &[(Action::MessageEdit, "service *"), BODY, UNMASKED],
        Done,
    ),
    // The body is empty: who may edit is told so.
    way(Console("POST", "/api/v1/messages/{id}/edit"), &[(Action::MessageEdit, "service *"), BODY, UNMASKED], Decided),
];

const IMPORT: &[Right] = &[(Action::MessageImport, "service *")];
const IMPORT_WAYS: &[Way] = &[
    way(
        Control(r#"import {"service":"adt","dry_run":true,"messages":[{"number":1,"source":"file-1","body":"MSH|"}]}"#),
        IMPORT,
        Shows("rejected"),
    ),
    way(
        Control(r#"import {"service":"adt","messages":[{"number":{n},"source":"file-1","body":"MSH|"}]}"#),
        IMPORT,
        Shows("rejected"),
    ),
    // The file is empty: who may import is told so.
    way(Console("POST", "/api/v1/messages/import?service=adt"), IMPORT, Decided),
];

// The message was delivered long ago: who may set it aside is told so.
const SET_ASIDE_WAYS: &[Way] = &[
    way(
        Control(r#"set-aside {"operation":"out","message":{id},"reason":"a test"}"#),
        &[(Action::OperationSetAside, "operation out")],
        Decided,
    ),
    way(
        Console("POST", "/api/v1/operations/out/set-aside?message={id}&reason=test"),
        &[(Action::OperationSetAside, "operation out")],
        Decided,
    ),
];

const SUSPEND_WAYS: &[Way] = &[
    way(Control("suspend out"), &[SUSPEND], Decided),
    way(Control("resume out"), &[SUSPEND], Decided),
    // It has no schedule: who may start it is told so.
    way(Control(r#"start {"operation":"out","until_us":4102444800000000}"#), &[SUSPEND], Decided),
    way(Console("POST", "/api/v1/operations/out/suspend"), &[SUSPEND], Done),
    way(Console("POST", "/api/v1/operations/out/resume"), &[SUSPEND], Done),
];

const PRODUCTION_LOAD_WAYS: &[Way] = &[
    way(Control("reload"), &[(Action::ProductionLoad, "node")], Decided),
    way(Console("GET", "/try"), &[(Action::ProductionLoad, "node")], Shows(">main<")),
    way(Control(r#"production {"verb":"back","generation":99}"#), &[(Action::ProductionLoad, "node")], Decided),
    way(Console("POST", "/api/v1/generations/99/back"), &[(Action::ProductionLoad, "node")], Decided),
    way(Console("POST", "/api/v1/production/load"), &[(Action::ProductionLoad, "node")], Decided),
];

const PRODUCTION_READ_WAYS: &[Way] = &[
    way(
        Control(r#"production {"verb":"generations"}"#),
        &[(Action::ProductionRead, "node")],
        Shows("rules/main.rules"),
    ),
    way(Control(r#"production {"verb":"diff","from":"1","to":"disk"}"#), &[(Action::ProductionRead, "node")], Done),
    way(Console("GET", "/api/v1/generations"), &[(Action::ProductionRead, "node")], Shows("rules/main.rules")),
    way(Console("GET", "/api/v1/generations/diff?from=1&to=disk"), &[(Action::ProductionRead, "node")], Done),
    way(Console("GET", "/changes"), &[(Action::ProductionRead, "node")], Shows("generation 1")),
    way(
        Control(r#"production {"verb":"texts","generation":1}"#),
        &[(Action::ProductionRead, "node")],
        Shows("admissions"),
    ),
    way(
        Control(r#"production {"verb":"rule","generation":1,"service":"adt","reason":"main: admissions"}"#),
        &[(Action::ProductionRead, "node")],
        Shows("send to out"),
    ),
];

const CLOCK_WAYS: &[Way] = &[way(Control("confirm-clock"), &[(Action::ClockConfirm, "node")], Decided)];

const STATUS_WAYS: &[Way] = &[
    way(Control("status"), &[STATUS], Done),
    way(Control("count"), &[STATUS], Done),
    way(Control("operations"), &[STATUS], Shows("\"out\"")),
    way(Control("operation out"), &[STATUS], Done),
    way(Console("GET", "/api/v1/status"), &[STATUS], Shows("\"out\"")),
    way(Console("GET", "/api/v1/operations/out"), &[STATUS], Shows("\"out\"")),
    way(Console("GET", "/media"), &[STATUS], Shows("Tiers")),
    way(Control(r#"connection {"verb":"list"}"#), &[STATUS], Shows("\"control\"")),
    way(Control(r#"connection {"verb":"list","port":"console","statements":true}"#), &[STATUS], Shows("\"console\"")),
    way(Console("GET", "/api/v1/connections"), &[STATUS], Shows("\"console\"")),
    way(Console("GET", "/connections"), &[STATUS], Shows("Connections")),
];

const VERIFY_WAYS: &[Way] = &[way(Control("verify"), &[VERIFY], Done), way(Control("check"), &[VERIFY], Done)];

const BACKUP_WAYS: &[Way] = &[way(Control("backup \"{folder}\""), &[(Action::NodeBackup, "node")], Done)];

const SCHEMA_MAKE_WAYS: &[Way] = &[way(Sql("CREATE SCHEMA made{n}"), &[(Action::SchemaMake, "node"), CONNECT], Done)];

const TRUNCATE_WAYS: &[Way] =
    &[way(Sql("TRUNCATE t"), &[(Action::TableTruncate, "table public.t"), USE, CONNECT], Done)];

const INDEX_MAKE_WAYS: &[Way] = &[way(Search("PUT", "/made{n}", ""), &[(Action::IndexMake, "index made*")], Done)];

const AUDIT_WAYS: &[Way] = &[
    way(Control(r#"audit {"verb":"head"}"#), &[AUDIT], Done),
    way(Control(r#"audit {"verb":"read","query":{"limit":1}}"#), &[AUDIT], Done),
    way(Control(r#"audit {"verb":"verify","heads":[]}"#), &[AUDIT], Done),
    way(Console("GET", "/audit"), &[AUDIT], Done),
    way(Console("GET", "/api/v1/audit"), &[AUDIT], Done),
];

const TABLE_MAKE_WAYS: &[Way] = &[
    way(Sql("CREATE TABLE made{n} (a int PRIMARY KEY)"), &[MAKE_TABLE, USE, CONNECT], Done),
    way(Sql("CREATE VIEW made{n} AS SELECT 1 AS a"), &[MAKE_TABLE, USE, CONNECT], Done),
];

const SELECT_WAYS: &[Way] = &[
    way(Sql("SELECT * FROM t"), &[SELECT, USE, CONNECT], Done),
    way(Sql("COPY t TO STDOUT"), &[SELECT, USE, CONNECT], Done),
    way(Console("POST", "/api/v1/sql?q=SELECT+*+FROM+t"), &[SELECT, USE, CONNECT], Done),
    way(Sql("EXPLAIN SELECT count(*) FROM t"), &[SELECT, USE, CONNECT], Done),
    mixed(Sql("UPDATE t SET b = 1 WHERE a = 0"), &[SELECT, UPDATE, USE, CONNECT], Done),
    mixed(Sql("DELETE FROM t WHERE a = 0"), &[SELECT, DELETE, USE, CONNECT], Done),
];

const INSERT_WAYS: &[Way] = &[
    way(Sql("INSERT INTO t VALUES ({n}, 1)"), &[INSERT, USE, CONNECT], Done),
    mixed(Sql("INSERT INTO t VALUES ({n}, 1) RETURNING a"), &[INSERT, SELECT, USE, CONNECT], Done),
];

// A view reads the table: who may drop it is told so.
const TABLE_OWN_WAYS: &[Way] = &[
    way(Sql("DROP TABLE own"), &[OWN, USE, CONNECT], Decided),
    way(Sql("ALTER TABLE own ADD COLUMN b{n} int"), &[OWN, USE, CONNECT], Done),
];

const INDEX_READ_WAYS: &[Way] = &[
    way(Search("GET", "/i/_search", ""), &[READ], Shows("red")),
    way(Search("GET", "/i/_doc/1", ""), &[READ], Shows("red")),
    way(Console("GET", "/api/v1/search?q=red"), &[READ], Shows("red")),
    way(Console("GET", "/api/v1/search?q=red&index=i"), &[READ], Shows("red")),
    way(Console("GET", "/api/v1/indices"), &[READ], Shows("\"i\"")),
    way(Console("GET", "/search?q=red"), &[READ], Shows("<mark>red</mark>")),
    way(Search("POST", "/_msearch", "{\"index\":\"i\"}\n{}\n"), &[READ], Shows("red")),
    way(Search("GET", "/_search", ""), &[READ], Shows("red")),
    way(Search("GET", "/i/_field_caps?fields=*", ""), &[READ], Shows("colour")),
];

const INDEX_WRITE_WAYS: &[Way] = &[
    way(Search("PUT", "/i/_doc/w", "{\"w\":1}"), &[WRITE], Done),
    way(Search("POST", "/_bulk", "{\"index\":{\"_index\":\"i\",\"_id\":\"w\"}}\n{\"w\":2}\n"), &[WRITE], Done),
    mixed(Search("POST", "/i/_update/w?_source=true", "{\"doc\":{\"w\":3}}"), &[WRITE, READ], Decided),
];

const INDEX_MANAGE_WAYS: &[Way] = &[
    way(Search("PUT", "/i/_mapping", "{\"properties\":{\"m\":{\"type\":\"long\"}}}"), &[MANAGE], Done),
    way(Search("PUT", "/i/_settings", "{}"), &[MANAGE], Decided),
];

const INDEX_MONITOR_WAYS: &[Way] = &[
    way(Search("GET", "/i/_mapping", ""), &[MONITOR], Shows("colour")),
    way(Search("GET", "/i/_stats", ""), &[MONITOR], Done),
    way(Search("GET", "/_cat/indices", ""), &[MONITOR], Shows(" i ")),
];

const SEARCH_MONITOR_WAYS: &[Way] = &[
    way(Search("GET", "/_cluster/health", ""), &[SEARCH_MONITOR], Done),
    way(Search("GET", "/_nodes", ""), &[SEARCH_MONITOR], Done),
    way(Search("GET", "/_index_template", ""), &[SEARCH_MONITOR], Done),
];

const SEARCH_MANAGE_WAYS: &[Way] = &[
    way(Search("PUT", "/_cluster/settings", "{\"persistent\":{}}"), &[SEARCH_MANAGE], Done),
    way(Search("PUT", "/_index_template/t", "{\"index_patterns\":[\"zz\"]}"), &[SEARCH_MANAGE], Done),
];

const VOLUME_LIST_WAYS: &[Way] = &[
    way(Control(r#"volume {"verb":"status","names":["v"]}"#), &[LIST_VOLUME], Done),
    way(Control(r#"volume {"verb":"status","names":[]}"#), &[LIST_VOLUME], Shows("\"v\"")),
    way(NbdList, &[LIST_VOLUME], Shows("v")),
    way(Console("GET", "/api/v1/volumes"), &[LIST_VOLUME], Shows("\"v\"")),
    way(Console("GET", "/volumes"), &[LIST_VOLUME], Shows(">v<")),
];

const ADMINISTER: Right = (Action::VolumeAdminister, "volume v");

const VOLUME_ADMINISTER_WAYS: &[Way] = &[
    way(Control(r#"volume {"verb":"limit","name":"v","iops":100000}"#), &[ADMINISTER], Done),
    way(Control(r#"volume {"verb":"grow","name":"v","bytes":1}"#), &[ADMINISTER], Decided),
];

const VOLUME_EXPORT_WAYS: &[Way] =
    &[way(Control(r#"volume {"verb":"export","name":"v","read_only":false}"#), &[EXPORT], Decided)];
