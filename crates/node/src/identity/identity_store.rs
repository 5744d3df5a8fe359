//! Roles and rights in the node's store: the tree `node.identity`, by plain transactions.
//!
//! Invariants: what returned is durable. Every change of roles and rights writes one key, so of two at a time one is
//! made again on what the other left: no rule that holds for each change alone is broken by two (no two administrators
//! remove each other). What SQL says of its objects ([`ObjectChange`]) is written within SQL's own transaction. It writes
//! that key too, so that a right on an object that is dropped meanwhile is not left for the next one of that name; only
//! creating does not, for tables are created at the same time by many.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

use ring::digest;
use store::{Cursor, Direction, Store, StoreError, Transaction, TreeId};

use super::action::Action;
use super::applying::apply;
use super::caller::Caller;
use super::cascade;
use super::change::{IdentityChange, Privileges};
use super::directory::Directory;
use super::error::IdentityError;
use super::object::ObjectPattern;
use super::role::{Attributes, Credentials, Role, RoleId};
use super::scram::Verifier;
use super::view::RightsView;

/// The tree.
pub const TREE: &str = "node.identity";

/// The key that every change of roles and rights writes.
const CHANGED: &[u8] = b"x/changed";

/// The digest of the users of the settings that were imported.
const IMPORTED: &[u8] = b"x/imported";

/// The group of imported users that are not administrators.
pub const IMPORTED_GROUP: &str = "imported_users";

/// What the group of imported users has: about what a user of the settings could do, without bodies of messages.
const IMPORTED_RIGHTS: &[(&str, &[Action])] = &[
    ("node", &[Action::SqlConnect]),
    ("schema *", &[Action::SchemaUse, Action::TableMake]),
    (
        "table *.*",
        &[Action::TableSelect, Action::TableInsert, Action::TableUpdate, Action::TableDelete, Action::TableTruncate],
    ),
    ("index *", &[Action::IndexRead, Action::IndexWrite, Action::IndexMake, Action::IndexManage, Action::IndexMonitor]),
    ("service *", &[Action::MessageMetadata]),
];

/// What happened to an object that has an owner or rights.
#[derive(Clone, Debug)]
pub enum ObjectChange {
    /// It was created.
    Created {
        /// The object.
        object: ObjectPattern,
        /// Who created it.
        owner: RoleId,
    },
    /// It was created, and default privileges are not about it: a sequence.
    CreatedWithoutDefaults {
        /// The object.
        object: ObjectPattern,
        /// Who created it.
        owner: RoleId,
    },
    /// It was dropped.
    Dropped(ObjectPattern),
    /// It has another name.
    Renamed {
        /// Its name before.
        from: ObjectPattern,
        /// Its name from now on.
        to: ObjectPattern,
    },
    /// A column of it was dropped, or has another name.
    Column {
        /// The table.
        table: ObjectPattern,
        /// Its name before.
        from: String,
        /// Its name from now on; `None`: it was dropped.
        to: Option<String>,
    },
}

/// A user of the settings of earlier versions.
#[derive(Clone, Debug)]
pub struct ImportedUser {
    /// Its name.
    pub name: String,
    /// What its password is checked against.
    pub verifier: Verifier,
    /// Whether it becomes an administrator.
    pub administrator: bool,
}

/// What importing the users of the settings did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Import {
    /// They were imported now.
    Done,
    /// The same users were imported before, and nothing was done.
    Before,
}

/// The digest of users of the settings, in hexadecimal: names and verifiers, in whatever order.
fn digest_of(users: &[ImportedUser]) -> String {
    let lines: BTreeSet<String> = users.iter().map(|user| format!("{}\0{}\n", user.name, user.verifier)).collect();
    let mut context = digest::Context::new(&digest::SHA256);
    lines.iter().for_each(|line| context.update(line.as_bytes()));
    context.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The changes that import users.
fn changes_of(users: &[ImportedUser]) -> Result<Vec<IdentityChange>, IdentityError> {
    let create = |user: &ImportedUser| {
        let attributes = Attributes { administrator: user.administrator, ..Attributes::user() };
        let credentials = Credentials { scram: Some(user.verifier.clone()), ..Credentials::default() };
        IdentityChange::Create(Role { name: user.name.clone(), attributes, credentials })
    };
    let mut changes: Vec<IdentityChange> = users.iter().map(create).collect();
    let mut plain = users.iter().filter(|user| !user.administrator).peekable();
    if plain.peek().is_none() {
        return Ok(changes);
    }
    let (attributes, credentials) = (Attributes::default(), Credentials::default());
    changes.push(IdentityChange::Create(Role { name: IMPORTED_GROUP.into(), attributes, credentials }));
    for (object, actions) in IMPORTED_RIGHTS {
        let (object, actions) = (ObjectPattern::parse(object)?, actions.to_vec());
        let privileges = Privileges { actions, object, columns: Vec::new(), grantee: IMPORTED_GROUP.into() };
        changes.push(IdentityChange::Grant { privileges, grant_option: false });
    }
    changes.extend(plain.map(|user| IdentityChange::Join {
        role: IMPORTED_GROUP.into(),
        member: user.name.clone(),
        admin: false,
        inherit: None,
        set: true,
    }));
    Ok(changes)
}

/// The stored roles and rights.
#[derive(Clone, Debug)]
pub struct IdentityStore {
    store: Store,
}

/// The tree, created if it is not there, and the state of now.
fn opened(transaction: &mut Transaction) -> Result<(TreeId, Directory), IdentityError> {
    match transaction.tree(TREE)? {
        Some(tree) => {
            let rows = transaction.scan(tree, Bound::Unbounded, Bound::Unbounded, Direction::Forward);
            Ok((tree, read(rows)?))
        }
        None => Ok((transaction.create_tree(TREE)?, Directory::first())),
    }
}

/// That of a store to which nothing was written yet.
fn unwritten() -> Directory {
    let mut first = Directory::first();
    drop(first.take_writes());
    first
}

impl IdentityStore {
    /// The roles and rights of a store. Nothing is written before the first change, so a node whose medium is full starts.
    pub fn of(store: Store) -> IdentityStore {
        IdentityStore { store }
    }

    /// The state of now. Errors: [`IdentityError::Store`], [`IdentityError::Unreadable`].
    pub fn load(&self) -> Result<Directory, IdentityError> {
        let snapshot = self.store.snapshot();
        match snapshot.tree(TREE)? {
            Some(tree) => read(snapshot.scan(tree, Bound::Unbounded, Bound::Unbounded, Direction::Forward)),
            None => Ok(unwritten()),
        }
    }

    /// The state as a transaction sees it, with its own changes. Errors: as [`load`](IdentityStore::load).
    pub fn directory_in(&self, transaction: &Transaction) -> Result<Directory, IdentityError> {
        match transaction.tree(TREE)? {
            Some(tree) => read(transaction.scan(tree, Bound::Unbounded, Bound::Unbounded, Direction::Forward)),
            None => Ok(unwritten()),
        }
    }

    /// Makes changes by right of a caller, all or none. Durable when it returns; blocks meanwhile.
    ///
    /// Errors: those of [`apply`], [`IdentityError::Store`], [`IdentityError::Busy`].
    pub fn change(&self, caller: &Caller, changes: &[IdentityChange], now_us: i64) -> Result<(), IdentityError> {
        self.transact(|transaction| self.change_in(transaction, caller, changes, now_us))
    }

    /// As [`change`](IdentityStore::change), in a transaction of the caller's, which it then commits; a
    /// [`StoreError::Conflict`] means that others changed roles and rights too.
    pub fn change_in(
        &self,
        transaction: &mut Transaction,
        caller: &Caller,
        changes: &[IdentityChange],
        now_us: i64,
    ) -> Result<(), IdentityError> {
        let (tree, directory) = opened(transaction)?;
        change_from(transaction, (tree, directory), caller, changes, now_us)
    }

    /// Imports the users of the settings, once in the life of a store. Who is no administrator becomes a member of
    /// [`IMPORTED_GROUP`].
    ///
    /// Errors: [`IdentityError::Imported`] if others were imported before, [`IdentityError::Name`] and the like of a user.
    pub fn import(&self, users: &[ImportedUser], now_us: i64) -> Result<Import, IdentityError> {
        let (digest, changes) = (digest_of(users), changes_of(users)?);
        let snapshot = self.store.snapshot();
        let before = snapshot.tree(TREE)?.map(|tree| snapshot.get(tree, IMPORTED)).transpose()?.flatten();
        match before {
            Some(before) if before[..] == *digest.as_bytes() => return Ok(Import::Before),
            Some(_) => return Err(IdentityError::Imported),
            None => {}
        }
        self.transact(|transaction| {
            let (tree, directory) = opened(transaction)?;
            if transaction.get(tree, IMPORTED)?.is_some() {
                return Err(IdentityError::Imported);
            }
            transaction.put(tree, IMPORTED, digest.as_bytes())?;
            change_from(transaction, (tree, directory), &Caller::node(), &changes, now_us)
        })?;
        Ok(Import::Done)
    }

    /// Whether the users of the settings were imported. Errors: [`IdentityError::Store`].
    pub fn is_imported(&self) -> Result<bool, IdentityError> {
        let snapshot = self.store.snapshot();
        let Some(tree) = snapshot.tree(TREE)? else { return Ok(false) };
        Ok(snapshot.get(tree, IMPORTED)?.is_some())
    }

    /// Writes what happened to objects in the transaction in which it happens.
    ///
    /// Errors: [`IdentityError::Store`], [`IdentityError::Unreadable`].
    pub fn objects_changed(
        &self,
        transaction: &mut Transaction,
        changes: &[ObjectChange],
    ) -> Result<(), IdentityError> {
        let (tree, mut directory) = opened(transaction)?;
        let (mut is_renamed, mut only_created) = (false, true);
        for change in changes {
            is_renamed |= matches!(change, ObjectChange::Renamed { .. });
            only_created &=
                matches!(change, ObjectChange::Created { .. } | ObjectChange::CreatedWithoutDefaults { .. });
            match change {
                ObjectChange::Created { object, owner } => directory.created(object, *owner),
                ObjectChange::CreatedWithoutDefaults { object, owner } => directory.created_alone(object, *owner),
                ObjectChange::Dropped(object) => directory.dropped(object),
                ObjectChange::Renamed { from, to } => directory.renamed(from, to),
                ObjectChange::Column { table, from, to } => directory.column(table, from, to.as_deref()),
            }
        }
        if is_renamed {
            // A right that was granted on under a pattern which does not match the new name.
            cascade::end_dependents(&mut directory, true)?;
        }
        write(transaction, tree, &mut directory)?;
        if only_created { Ok(()) } else { mark_changed(transaction, tree) }
    }

    fn transact(&self, work: impl Fn(&mut Transaction) -> Result<(), IdentityError>) -> Result<(), IdentityError> {
        self.store.transact(work).map_err(|error| match error {
            IdentityError::Store(StoreError::Conflict) => IdentityError::Busy,
            error => error,
        })
    }
}

/// Makes changes of what was read in the same transaction.
fn change_from(
    transaction: &mut Transaction,
    (tree, mut directory): (TreeId, Directory),
    caller: &Caller,
    changes: &[IdentityChange],
    now_us: i64,
) -> Result<(), IdentityError> {
    // Decided on what is stored; the built-in rights of a new store are written with its first change.
    let view = RightsView::of(Arc::new(directory.clone()), now_us);
    apply(&mut directory, &view, caller, changes.to_vec(), now_us)?;
    write(transaction, tree, &mut directory)?;
    mark_changed(transaction, tree)
}

fn write(transaction: &mut Transaction, tree: TreeId, directory: &mut Directory) -> Result<(), IdentityError> {
    for (key, value) in directory.take_writes() {
        match value {
            Some(value) => transaction.put(tree, &key, &value)?,
            None => transaction.delete(tree, &key)?,
        }
    }
    Ok(())
}

/// Writes the key that two changes at a time conflict about.
fn mark_changed(transaction: &mut Transaction, tree: TreeId) -> Result<(), IdentityError> {
    let stored = transaction.get(tree, CHANGED)?;
    let number = stored.and_then(|value| Some(u64::from_be_bytes(<[u8; 8]>::try_from(&value[..]).ok()?))).unwrap_or(0);
    Ok(transaction.put(tree, CHANGED, &number.wrapping_add(1).to_be_bytes())?)
}

fn read(mut cursor: Cursor) -> Result<Directory, IdentityError> {
    let mut directory = Directory::default();
    while let Some((key, value)) = cursor.next()? {
        if !key.starts_with(b"x") {
            directory.read(&key, &value)?;
        }
    }
    Ok(directory)
}

#[cfg(test)]
mod tests {
    use store::Options;

    use super::*;
    use crate::identity::{CredentialChange, Object};

    fn new_store() -> IdentityStore {
        IdentityStore::of(Store::in_memory(Options::default()).expect("there is memory"))
    }

    fn verifier() -> Verifier {
        Verifier::of("a password").expect("there is randomness")
    }

    fn administrator(name: &str) -> IdentityChange {
        let attributes = Attributes { administrator: true, ..Attributes::user() };
        let credentials = Credentials { scram: Some(verifier()), ..Credentials::default() };
        IdentityChange::Create(Role { name: name.into(), attributes, credentials })
    }

    fn drop_of(name: &str) -> IdentityChange {
        IdentityChange::Drop { role: name.into(), cascade: false }
    }

    fn altered(name: &str, attributes: Attributes) -> IdentityChange {
        IdentityChange::Alter { role: name.into(), attributes }
    }

    #[test]
    fn the_last_administrator_stays_one_who_can_log_in() {
        let stored = new_store();
        let node = Caller::node();
        stored.change(&node, &[administrator("ann")], 0).expect("the first one");
        let able = Attributes { administrator: true, ..Attributes::user() };
        let none = CredentialChange::Password { scram: None, hash: None, must_change: false };
        let losses = [
            drop_of("ann"),
            altered("ann", Attributes::user()),
            altered("ann", Attributes { login: false, ..able.clone() }),
            altered("ann", Attributes { locked: Some("left".into()), ..able.clone() }),
            altered("ann", Attributes { until_us: Some(i64::MAX), ..able.clone() }),
            altered("ann", Attributes { connection_limit: Some(0), ..able }),
            IdentityChange::Credential { role: "ann".into(), change: none },
        ];
        for loss in &losses {
            let refused = stored.change(&node, std::slice::from_ref(loss), 0);
            assert!(matches!(refused, Err(IdentityError::LastAdministrator)), "{loss:?} {refused:?}");
        }
        stored.change(&node, &[administrator("ben")], 0).expect("another one");
        for loss in losses.iter().skip(1) {
            stored.change(&node, std::slice::from_ref(loss), 0).expect("there is another one");
        }
        stored.change(&node, &[administrator("cid"), drop_of("ben")], 0).expect("changes are looked at together");
    }

    #[test]
    fn of_two_who_remove_each_other_at_the_same_time_one_stays() {
        let stored = new_store();
        stored.change(&Caller::node(), &[administrator("ann"), administrator("ben")], 0).expect("they are made");
        let mut first = stored.store.begin();
        let mut second = stored.store.begin();
        stored.change_in(&mut first, &Caller::node(), &[drop_of("ann")], 0).expect("there are two");
        stored.change_in(&mut second, &Caller::node(), &[drop_of("ben")], 0).expect("there are two");
        first.commit().expect("the first one wins");
        assert!(matches!(second.commit(), Err(StoreError::Conflict)));
        let again = stored.change(&Caller::node(), &[drop_of("ben")], 0);
        assert!(matches!(again, Err(IdentityError::LastAdministrator)), "{again:?}");
    }

    #[test]
    fn threads_that_remove_administrators_leave_one() {
        let stored = new_store();
        let names: Vec<String> = (0..8).map(|number| format!("admin{number}")).collect();
        let all: Vec<IdentityChange> = names.iter().map(|name| administrator(name)).collect();
        stored.change(&Caller::node(), &all, 0).expect("they are made");
        std::thread::scope(|scope| {
            for name in &names {
                scope.spawn(|| stored.change(&Caller::node(), &[drop_of(name)], 0));
            }
        });
        assert!(stored.load().expect("it is read").standing_administrators() >= 1);
    }

    #[test]
    fn the_users_of_the_settings_are_imported_once_and_others_are_refused() {
        let stored = new_store();
        let users = [("ann", true), ("ben", false)].map(|(name, administrator)| ImportedUser {
            name: name.into(),
            verifier: verifier(),
            administrator,
        });
        assert!(!stored.is_imported().expect("it is read"));
        assert_eq!(stored.import(&users, 0).expect("the first time"), Import::Done);
        let directory = stored.load().expect("it is read");
        assert_eq!((directory.roles().len(), directory.standing_administrators()), (4, 1));
        let turned = [users[1].clone(), users[0].clone()];
        assert_eq!(stored.import(&turned, 0).expect("the same ones"), Import::Before);
        for others in [&users[..1], &[]] {
            assert!(matches!(stored.import(others, 0), Err(IdentityError::Imported)), "{others:?}");
        }
        assert!(stored.is_imported().expect("it is read"));
    }

    #[test]
    fn imported_users_have_the_rights_of_their_group_and_no_bodies() {
        let stored = new_store();
        let ben = ImportedUser { name: "ben".into(), verifier: verifier(), administrator: false };
        stored.import(&[ben], 0).expect("the first time");
        let directory = stored.load().expect("it is read");
        let ben = Caller::of(directory.named("ben").expect("it is there"), crate::identity::Proof::Password, None);
        let view = RightsView::of(Arc::new(directory), 0);
        let table = Object::Table { schema: "hl7", name: "messages", columns: &[] };
        let asked = [
            (Action::SqlConnect, Object::Node, true),
            (Action::TableMake, Object::Schema("public"), true),
            (Action::TableSelect, table, true),
            (Action::TableOwn, table, false),
            (Action::IndexManage, Object::Index("orders"), true),
            (Action::MessageMetadata, Object::Service("adt-in"), true),
            (Action::MessageBody, Object::Service("adt-in"), false),
            (Action::UserAdminister, Object::Node, false),
        ];
        for (action, object, expected) in asked {
            assert_eq!(view.may(&ben, action, object).is_ok(), expected, "{action:?}");
            assert_eq!(view.may_some(&ben, action).is_ok(), expected, "{action:?}");
        }
    }

    #[test]
    fn everyone_may_log_in_to_sql_and_use_schema_public_until_that_is_revoked() {
        let stored = new_store();
        let may = |action, object| {
            let directory = stored.load().expect("it is read");
            let Ok(ben) = directory.named("ben") else { return directory.privileges().len() == 2 };
            let ben = Caller::of(ben, crate::identity::Proof::Password, None);
            RightsView::of(Arc::new(directory), 0).may(&ben, action, object).is_ok()
        };
        let own = Role { name: "ben".into(), attributes: Attributes::user(), credentials: Credentials::default() };
        let change = |change| stored.change(&Caller::node(), &[change], 0).expect("the node may");
        assert!(may(Action::SqlConnect, Object::Node), "before anything is written");
        change(IdentityChange::Create(own));
        for (action, object) in [(Action::SqlConnect, Object::Node), (Action::SchemaUse, Object::Schema("public"))] {
            assert!(may(action, object), "{action:?}");
            let (actions, object_of) = (vec![action], object.exactly().expect("it is one"));
            let privileges = Privileges { actions, object: object_of, columns: Vec::new(), grantee: "public".into() };
            change(IdentityChange::Revoke { privileges, option_only: false, cascade: false });
            assert!(!may(action, object), "{action:?}");
        }
        assert!(stored.load().expect("it is read").privileges().is_empty());
    }

    #[test]
    fn numbers_of_dropped_roles_are_not_used_again() {
        let stored = new_store();
        let node = Caller::node();
        stored.change(&node, &[administrator("ann"), administrator("ben")], 0).expect("they are made");
        let first = stored.load().expect("it is read").named("ben").expect("it is there");
        stored.change(&node, &[drop_of("ben")], 0).expect("there is another");
        stored.change(&node, &[administrator("ben")], 0).expect("again");
        assert_ne!(stored.load().expect("it is read").named("ben").expect("it is there"), first);
    }

    #[test]
    fn what_happens_to_objects_is_written_with_it_and_rights_do_not_pass_to_the_next_of_that_name() {
        let stored = new_store();
        let node = Caller::node();
        stored.change(&node, &[administrator("ann"), administrator("ben")], 0).expect("they are made");
        let ann = stored.load().expect("it is read").named("ann").expect("it is there");
        let table = |text: &str| ObjectPattern::parse(text).expect("it is one");
        let (orders, bills) = (table("table public.orders"), table("table public.bills"));
        let mut transaction = stored.store.begin();
        let made = ObjectChange::Created { object: orders.clone(), owner: ann };
        stored.objects_changed(&mut transaction, &[made]).expect("it is written");
        assert!(stored.load().expect("it is read").owners().is_empty(), "not before the commit");
        transaction.commit().expect("it is durable");
        let mut transaction = stored.store.begin();
        let renamed = ObjectChange::Renamed { from: orders.clone(), to: bills.clone() };
        stored.objects_changed(&mut transaction, &[renamed]).expect("it is written");
        transaction.commit().expect("it is durable");
        let directory = stored.load().expect("it is read");
        assert_eq!((directory.owners().get(&orders), directory.owners().get(&bills)), (None, Some(&ann)));
        let refused = stored.change(&node, &[drop_of("ann")], 0);
        assert!(matches!(refused, Err(IdentityError::Owner { count: 1, .. })), "{refused:?}");
        let mut transaction = stored.store.begin();
        stored.objects_changed(&mut transaction, &[ObjectChange::Dropped(bills)]).expect("it is written");
        transaction.commit().expect("it is durable");
        stored.change(&node, &[drop_of("ann")], 0).expect("it owns nothing any more");
    }
    #[test]
    fn a_right_on_an_object_that_is_dropped_meanwhile_is_not_left_for_the_next_of_that_name() {
        let stored = new_store();
        let node = Caller::node();
        stored.change(&node, &[administrator("ann"), administrator("ben")], 0).expect("they are made");
        let ann = stored.load().expect("it is read").named("ann").expect("it is there");
        let table = |text: &str| ObjectPattern::parse(text).expect("it is one");
        let (orders, bills) = (table("table public.orders"), table("table public.bills"));
        let grant = || IdentityChange::Grant {
            privileges: Privileges {
                actions: vec![Action::TableSelect],
                object: table("table public.orders"),
                columns: vec!["id".into()],
                grantee: "ben".into(),
            },
            grant_option: false,
        };
        let ends = [
            ObjectChange::Dropped(orders.clone()),
            ObjectChange::Renamed { from: orders.clone(), to: bills },
            ObjectChange::Column { table: orders.clone(), from: "id".into(), to: None },
        ];
        for end in ends {
            let mut dropping = stored.store.begin();
            let mut granting = stored.store.begin();
            stored.objects_changed(&mut dropping, std::slice::from_ref(&end)).expect("it is written");
            stored.change_in(&mut granting, &node, &[grant()], 0).expect("it is there still");
            dropping.commit().expect("the first one wins");
            assert!(matches!(granting.commit(), Err(StoreError::Conflict)), "{end:?}");
        }
        let made = |object: &ObjectPattern| ObjectChange::Created { object: object.clone(), owner: ann };
        let (mut one, mut other) = (stored.store.begin(), stored.store.begin());
        stored.objects_changed(&mut one, &[made(&table("table public.a"))]).expect("it is written");
        stored.objects_changed(&mut other, &[made(&table("table public.b"))]).expect("it is written");
        one.commit().expect("it is durable");
        other.commit().expect("many create at the same time");
        stored.change(&node, &[grant()], 0).expect("before there is such a table");
        let mut transaction = stored.store.begin();
        stored.objects_changed(&mut transaction, &[made(&orders)]).expect("it is written");
        transaction.commit().expect("it is durable");
        let directory = stored.load().expect("it is read");
        assert_eq!(directory.privileges(), Directory::first().privileges(), "what was left is removed");
        assert_eq!(directory.owners().get(&orders), Some(&ann));
    }

    #[test]
    fn what_was_granted_on_under_a_pattern_ends_when_the_object_leaves_it() {
        let stored = new_store();
        let node = Caller::node();
        stored.change(&node, &[administrator("ann"), administrator("ben")], 0).expect("they are made");
        stored.change(&node, &[altered("ann", Attributes::user())], 0).expect("there is another");
        let directory = stored.load().expect("it is read");
        let ann = Caller::of(directory.named("ann").expect("it is there"), crate::identity::Proof::Password, None);
        let grant = |object: &str, grantee: &str, grant_option| IdentityChange::Grant {
            privileges: Privileges {
                actions: vec![Action::TableSelect],
                object: ObjectPattern::parse(object).expect("it is one"),
                columns: Vec::new(),
                grantee: grantee.into(),
            },
            grant_option,
        };
        stored.change(&node, &[grant("table public.*", "ann", true)], 0).expect("the node may");
        stored.change(&ann, &[grant("table public.orders", "ben", false)], 0).expect("it has the option");
        let parse = |text: &str| ObjectPattern::parse(text).expect("it is one");
        let renamed = ObjectChange::Renamed { from: parse("table public.orders"), to: parse("table other.orders") };
        let mut transaction = stored.store.begin();
        stored.objects_changed(&mut transaction, &[renamed]).expect("it is written");
        transaction.commit().expect("it is durable");
        assert_eq!(stored.load().expect("it is read").privileges().len(), 3);
        stored.change(&node, &[drop_of("ann")], 0).expect("nothing stands in the way");
    }
}
