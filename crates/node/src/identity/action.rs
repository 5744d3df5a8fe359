//! [`Action`]: everything that a caller can be allowed to do, on all ports.
//!
//! One list. Each port maps its verbs, routes and statements to it by an exhaustive `match`; the table of rights, the
//! commands and the tests iterate [`Action::ALL`].
//!
//! Not here: on which object ([`super::object`]), and who may ([`super::view`]).

use super::object::ObjectKind;

/// A set of actions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ActionSet(u64);

impl ActionSet {
    /// Adds an action.
    pub fn add(&mut self, action: Action) {
        self.0 |= 1u64 << action as u8;
    }

    /// Whether it contains the action.
    pub fn has(self, action: Action) -> bool {
        self.0 & (1u64 << action as u8) != 0
    }
}

macro_rules! actions {
    ($($variant:ident $name:literal $kind:ident $marks:literal $keyword:literal $does:literal,)*) => {
        /// What a caller asks to do. The description of each is [`Action::description`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Action {
            $(#[doc = $does] $variant,)*
        }

        impl Action {
            /// All actions.
            pub const ALL: &[Action] = &[$(Action::$variant),*];

            fn facts(self) -> (&'static str, ObjectKind, &'static str, &'static str, &'static str) {
                match self {
                    $(Action::$variant => ($name, ObjectKind::$kind, $marks, $keyword, $does),)*
                }
            }
        }
    };
}

// Marks: a = each use is audited, w = withheld from administrators until granted, o = only of the owner and of
// administrators, never granted. Then the privilege's keyword in GRANT, if it has one.
actions! {
    MessageMetadata   "message-metadata"   Service   ""   ""           "List messages: times, types, keys, outcomes; not what is in them.",
    MessageBody       "message-body"       Service   "aw" ""           "Read what is in messages.",
    MessageResend     "message-resend"     Service   "a"  ""           "Send stored messages again, as they are.",
    MessageEdit       "message-edit"       Service   "a"  ""           "Send stored messages again, changed.",
    MessageImport     "message-import"     Service   "a"  ""           "Take in messages from a file, as if a sender had sent them.",
    Unmasked          "unmasked"           Service   "aw" ""           "See and search patient data without the mask.",
    OperationSuspend  "operation-suspend"  Operation "a"  ""           "Suspend and resume an operation, and start it outside its schedule.",
    OperationSetAside "operation-set-aside" Operation "a" ""          "Set aside a message that waits in an operation.",
    ProductionLoad    "production-load"    Node      "a"  ""           "Load a changed production.",
    ProductionRead    "production-read"    Node      ""   ""           "Read the production, as it is and as it was.",
    ClockConfirm      "clock-confirm"      Node      "a"  ""           "Confirm that a clock that was set is right.",
    NodeStatus        "node-status"        Node      ""   ""           "See the status and the troubles of the node.",
    NodeMetrics       "node-metrics"       Node      ""   ""           "Read the metrics.",
    ConnectionClose   "connection-close"   Node      "a"  ""           "End a connection of any port.",
    AlertSilence      "alert-silence"      Node      "a"  ""           "Silence alerts for a time, and try their channels.",
    NodeStop          "node-stop"          Node      "a"  ""           "Stop the node.",
    NodeVerify        "node-verify"        Node      "a"  ""           "Verify all stored data.",
    NodeProfile       "node-profile"      Node      "a"  ""           "Record profiles of what the node uses, fetch and remove them.",
    NodeBackup        "node-backup"        Node      "a"  ""           "Back up all stored data, which exports it.",
    UserAdminister    "user-administer"    Node      "a"  ""           "Make, change, lock and drop roles, and their credentials.",
    RightsGrant       "rights-grant"       Node      "a"  ""           "Grant and revoke any right on anything.",
    AuditRead         "audit-read"         Node      "a"  ""           "Read the audit.",
    AuditManage       "audit-manage"       Node      "aw" ""           "Set how long the audit is kept, and remove what is older.",
    BreakGlass        "break-glass"        Node      "aw" ""           "Take a right for a time, with a reason and an alert.",
    SqlConnect        "sql-connect"        Node      ""   "CONNECT"    "Log in to SQL.",
    SqlSignal         "sql-signal"         Node      "a"  ""           "Cancel statements and end sessions of other users.",
    SqlActivity       "sql-activity"       Node      "a"  ""           "See the statements of other users.",
    SchemaMake        "schema-make"        Node      "a"  "CREATE"     "Create schemas.",
    SchemaUse         "schema-use"         Schema    ""   "USAGE"      "Use names of a schema.",
    TableMake         "table-make"         Schema    "a"  "CREATE"     "Create tables and views in a schema.",
    SchemaOwn         "schema-own"         Schema    "ao" ""           "Alter and drop a schema.",
    TableSelect       "table-select"       Table     ""   "SELECT"     "Read rows.",
    TableInsert       "table-insert"       Table     ""   "INSERT"     "Insert rows.",
    TableUpdate       "table-update"       Table     ""   "UPDATE"     "Update rows.",
    TableDelete       "table-delete"       Table     ""   "DELETE"     "Delete rows.",
    TableTruncate     "table-truncate"     Table     "a"  "TRUNCATE"   "Remove all rows.",
    TableReferences   "table-references"   Table     ""   "REFERENCES" "Make foreign keys to a table.",
    TableTrigger      "table-trigger"      Table     ""   "TRIGGER"    "Make triggers on a table.",
    TableMaintain     "table-maintain"     Table     ""   "MAINTAIN"   "Analyze and rewrite a table.",
    TableOwn          "table-own"          Table     "ao" ""           "Alter and drop a table or view.",
    IndexRead         "index-read"         Index     ""   ""           "Search and get documents.",
    IndexWrite        "index-write"        Index     ""   ""           "Index, update and delete documents.",
    IndexMake         "index-make"         Index     "a"  ""           "Create an index, also by writing to it.",
    IndexManage       "index-manage"       Index     "a"  ""           "Change settings, mappings and aliases, and delete an index.",
    IndexMonitor      "index-monitor"      Index     ""   ""           "See statistics and settings of an index.",
    SearchMonitor     "search-monitor"     Node      ""   ""           "See health, statistics and the tasks of others.",
    SearchManage      "search-manage"      Node      "a"  ""           "Change settings of search and templates, end the tasks of others.",
    VolumeList        "volume-list"        Volume    ""   ""           "See that a volume is there, and its status.",
    VolumeRead        "volume-read"        Volume    ""   ""           "Read blocks of an export.",
    VolumeWrite       "volume-write"       Volume    ""   ""           "Write blocks of an export.",
    VolumeAdminister  "volume-administer"  Volume    "a"  ""           "Create, grow, scrub and delete a volume, replace its copies.",
    VolumeExport      "volume-export"      Volume    "a"  ""           "Export a volume, and end an export.",
}

impl Action {
    /// Its name in commands and in the audit.
    pub fn name(self) -> &'static str {
        self.facts().0
    }

    /// The kind of object that it is done to.
    pub fn kind(self) -> ObjectKind {
        self.facts().1
    }

    /// Whether each use is recorded in the audit, reads included.
    pub fn is_audited(self) -> bool {
        self.facts().2.contains('a')
    }

    /// Whether administrators do not have it until somebody grants it to them.
    pub fn is_withheld(self) -> bool {
        self.facts().2.contains('w')
    }

    /// Whether it can be granted; otherwise only owners and administrators have it.
    pub fn is_grantable(self) -> bool {
        !self.facts().2.contains('o')
    }

    /// The privilege's keyword in SQL's GRANT.
    pub fn keyword(self) -> Option<&'static str> {
        Some(self.facts().3).filter(|keyword| !keyword.is_empty())
    }

    /// What it is, in one line.
    pub fn description(self) -> &'static str {
        self.facts().4
    }

    /// The action with a name.
    pub fn named(name: &str) -> Option<Action> {
        Action::ALL.iter().copied().find(|action| action.name() == name)
    }

    /// The action of a keyword of SQL on a kind of object.
    pub fn of_keyword(keyword: &str, kind: ObjectKind) -> Option<Action> {
        let is = |action: &Action| {
            action.kind() == kind && action.keyword().is_some_and(|own| own.eq_ignore_ascii_case(keyword))
        };
        Action::ALL.iter().copied().find(is)
    }
}

impl serde::Serialize for Action {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> serde::Deserialize<'de> for Action {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Action, D::Error> {
        let name = <std::borrow::Cow<'de, str> as serde::Deserialize>::deserialize(deserializer)?;
        Action::named(&name).ok_or_else(|| serde::de::Error::custom(format!("no action is named {name}")))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_action_has_a_name_of_its_own_a_description_and_a_bit() {
        assert!(Action::ALL.len() <= 64, "an action is a bit");
        let names: BTreeSet<&str> = Action::ALL.iter().map(|action| action.name()).collect();
        assert_eq!(names.len(), Action::ALL.len());
        for (at, action) in Action::ALL.iter().enumerate() {
            assert_eq!(*action as usize, at);
            assert_eq!(Action::named(action.name()), Some(*action));
            assert!(action.description().ends_with('.'), "{action:?}");
            let mut set = ActionSet::default();
            set.add(*action);
            assert!(Action::ALL.iter().all(|other| set.has(*other) == (other == action)), "{action:?}");
        }
    }

    #[test]
    fn the_page_about_security_has_every_right_and_no_other() {
        let page = include_str!("../../../../docs/security.md");
        let row = |action: &Action| {
            let has = match (action.is_grantable(), action.is_withheld()) {
                (false, _) => "with the owner, never granted",
                (_, true) => "withheld",
                _ => "have it",
            };
            format!(
                "| `{}` | {} | {} | {has} | {} | {} |",
                action.name(),
                action.kind().name(),
                if action.is_audited() { "yes" } else { "no" },
                action.keyword().unwrap_or("-"),
                action.description()
            )
        };
        let expected: Vec<String> = Action::ALL.iter().map(row).collect();
        let table = page.lines().skip_while(|line| !line.starts_with("| right | on |")).skip(2);
        let found: Vec<&str> = table.take_while(|line| line.starts_with('|')).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn what_administrators_do_not_have_unless_granted() {
        let withheld: Vec<&str> =
            Action::ALL.iter().filter(|action| action.is_withheld()).map(|action| action.name()).collect();
        assert_eq!(withheld, ["message-body", "unmasked", "audit-manage", "break-glass"]);
    }

    #[test]
    fn keywords_of_sql_are_found_by_the_kind_of_object() {
        assert_eq!(Action::of_keyword("create", ObjectKind::Schema), Some(Action::TableMake));
        assert_eq!(Action::of_keyword("CREATE", ObjectKind::Node), Some(Action::SchemaMake));
        assert_eq!(Action::of_keyword("select", ObjectKind::Schema), None);
    }
}
