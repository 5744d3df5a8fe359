//! Roles and rights in the node's store: the tree `node.identity`, by plain transactions.
//!
//! Invariants: what returned is durable. Every change of roles and rights writes one key, so of two at a time one is
//! made again on what the other left: no rule that holds for each change alone is broken by two (no two administrators
//! remove each other). What SQL says of its objects ([`ObjectChange`]) is written within SQL's own transaction. It writes
//! that key too, so that a right on an object that is dropped meanwhile is not left for the next one of that name; only
//! creating does not, for tables are created at the same time by many.

use std::ops::Bound;
use std::sync::Arc;

use store::{Cursor, Direction, Store, StoreError, Transaction, TreeId};

use super::applying::apply;
use super::caller::Caller;
use super::cascade;
use super::change::IdentityChange;
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

/// The mark that the users of the settings were imported.
const IMPORTED: &[u8] = b"x/imported";

/// How often a change is made again because others were faster.
const TRIES: usize = 16;

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

/// The stored roles and rights.
#[derive(Clone, Debug)]
pub struct IdentityStore {
    store: Store,
}

/// The tree, created if it is not there.
fn tree(transaction: &mut Transaction) -> Result<TreeId, IdentityError> {
    match transaction.tree(TREE)? {
        Some(tree) => Ok(tree),
        None => Ok(transaction.create_tree(TREE)?),
    }
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
            None => Ok(Directory::default()),
        }
    }

    /// The state as a transaction sees it, with its own changes. Errors: as [`load`](IdentityStore::load).
    pub fn directory_in(&self, transaction: &Transaction) -> Result<Directory, IdentityError> {
        match transaction.tree(TREE)? {
            Some(tree) => load_in(transaction, tree),
            None => Ok(Directory::default()),
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
        let tree = tree(transaction)?;
        let mut directory = load_in(transaction, tree)?;
        let view = RightsView::of(Arc::new(directory.clone()), now_us);
        apply(&mut directory, &view, caller, changes.to_vec(), now_us)?;
        write(transaction, tree, &mut directory)?;
        mark_changed(transaction, tree)
    }

    /// Imports the users of the settings, once in the life of a store.
    ///
    /// Errors: [`IdentityError::Imported`] if it was done before, [`IdentityError::Name`] and the like of a user.
    pub fn import(&self, users: &[ImportedUser], now_us: i64) -> Result<(), IdentityError> {
        let create = |user: &ImportedUser| {
            let attributes = Attributes { administrator: user.administrator, ..Attributes::user() };
            let credentials = Credentials { scram: Some(user.verifier.clone()), ..Credentials::default() };
            IdentityChange::Create(Role { name: user.name.clone(), attributes, credentials })
        };
        let changes: Vec<IdentityChange> = users.iter().map(create).collect();
        self.transact(|transaction| {
            let tree = tree(transaction)?;
            if transaction.get(tree, IMPORTED)?.is_some() {
                return Err(IdentityError::Imported);
            }
            transaction.put(tree, IMPORTED, b"1")?;
            self.change_in(transaction, &Caller::node(), &changes, now_us)
        })
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
        let tree = tree(transaction)?;
        let mut directory = load_in(transaction, tree)?;
        let (mut is_renamed, mut only_created) = (false, true);
        for change in changes {
            is_renamed |= matches!(change, ObjectChange::Renamed { .. });
            only_created &= matches!(change, ObjectChange::Created { .. });
            match change {
                ObjectChange::Created { object, owner } => directory.created(object, *owner),
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
        for _ in 0..TRIES {
            let mut transaction = self.store.begin();
            work(&mut transaction)?;
            match transaction.commit() {
                Ok(_) => return Ok(()),
                Err(StoreError::Conflict) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(IdentityError::Busy)
    }
}

fn load_in(transaction: &Transaction, tree: TreeId) -> Result<Directory, IdentityError> {
    read(transaction.scan(tree, Bound::Unbounded, Bound::Unbounded, Direction::Forward))
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
    use crate::identity::{Action, CredentialChange, Privileges};

    fn opened() -> IdentityStore {
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
        let stored = opened();
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
        let stored = opened();
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
        let stored = opened();
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
    fn the_users_of_the_settings_are_imported_once() {
        let stored = opened();
        let users = [("ann", true), ("ben", false)].map(|(name, administrator)| ImportedUser {
            name: name.into(),
            verifier: verifier(),
            administrator,
        });
        assert!(!stored.is_imported().expect("it is read"));
        stored.import(&users, 0).expect("the first time");
        let directory = stored.load().expect("it is read");
        assert_eq!((directory.roles().len(), directory.standing_administrators()), (3, 1));
        assert!(matches!(stored.import(&users, 0), Err(IdentityError::Imported)));
        assert!(stored.is_imported().expect("it is read"));
    }

    #[test]
    fn numbers_of_dropped_roles_are_not_used_again() {
        let stored = opened();
        let node = Caller::node();
        stored.change(&node, &[administrator("ann"), administrator("ben")], 0).expect("they are made");
        let first = stored.load().expect("it is read").named("ben").expect("it is there");
        stored.change(&node, &[drop_of("ben")], 0).expect("there is another");
        stored.change(&node, &[administrator("ben")], 0).expect("again");
        assert_ne!(stored.load().expect("it is read").named("ben").expect("it is there"), first);
    }

    #[test]
    fn what_happens_to_objects_is_written_with_it_and_rights_do_not_pass_to_the_next_of_that_name() {
        let stored = opened();
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
        let stored = opened();
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
        assert!(directory.privileges().is_empty(), "what was left is removed");
        assert_eq!(directory.owners().get(&orders), Some(&ann));
    }

    #[test]
    fn what_was_granted_on_under_a_pattern_ends_when_the_object_leaves_it() {
        let stored = opened();
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
        assert_eq!(stored.load().expect("it is read").privileges().len(), 1);
        stored.change(&node, &[drop_of("ann")], 0).expect("nothing stands in the way");
    }
}
