//! Tests of roles and rights as a whole.

mod crash;
mod directory;
mod guard;
mod model;
mod provider;
mod random;
mod reviewed;

use std::sync::Arc;

use super::{
    Action, Attributes, Caller, CredentialChange, Credentials, Directory, IdentityChange, IdentityError, Object,
    ObjectPattern, Privileges, Proof, RightsView, Role, apply,
};

/// A directory with a clock, and short words for changes.
struct Bench {
    directory: Directory,
    now_us: i64,
}

impl Bench {
    /// With these users, none of them an administrator.
    fn with(users: &[&str]) -> Bench {
        let mut bench = Bench { directory: Directory::default(), now_us: 1 };
        users.iter().for_each(|user| bench.create(user, Attributes::user()));
        bench
    }

    fn create(&mut self, name: &str, attributes: Attributes) {
        let role = Role { name: name.into(), attributes, credentials: Credentials::default() };
        self.by_node(IdentityChange::Create(role));
    }

    fn view(&self) -> RightsView {
        RightsView::of(Arc::new(self.directory.clone()), self.now_us)
    }

    fn caller(&self, name: &str) -> Caller {
        Caller::of(self.directory.named(name).expect("it is there"), Proof::Password, None)
    }

    fn by(&mut self, name: &str, change: IdentityChange) -> Result<(), IdentityError> {
        let caller = self.caller(name);
        self.change(&caller, change)
    }

    fn by_node(&mut self, change: IdentityChange) {
        self.change(&Caller::node(), change).expect("the node may");
    }

    fn change(&mut self, caller: &Caller, change: IdentityChange) -> Result<(), IdentityError> {
        let mut after = self.directory.clone();
        apply(&mut after, &self.view(), caller, vec![change], self.now_us)?;
        self.directory = after;
        Ok(())
    }

    fn may(&self, name: &str, action: Action, object: Object<'_>) -> bool {
        self.view().may(&self.caller(name), action, object).is_ok()
    }

    fn reads(&self, name: &str) -> bool {
        self.may(name, Action::TableSelect, ORDERS)
    }
}

const ORDERS: Object<'static> = Object::Table { schema: "public", name: "orders", columns: &[] };

fn pattern(text: &str) -> ObjectPattern {
    ObjectPattern::parse(text).expect("it is one")
}

fn privileges(action: Action, object: &str, grantee: &str) -> Privileges {
    Privileges { actions: vec![action], object: pattern(object), columns: Vec::new(), grantee: grantee.into() }
}

fn grant(grantee: &str) -> IdentityChange {
    IdentityChange::Grant {
        privileges: privileges(Action::TableSelect, "table public.orders", grantee),
        grant_option: false,
    }
}

fn grant_on(grantee: &str) -> IdentityChange {
    IdentityChange::Grant {
        privileges: privileges(Action::TableSelect, "table public.orders", grantee),
        grant_option: true,
    }
}

fn revoke(grantee: &str, cascade: bool) -> IdentityChange {
    let privileges = privileges(Action::TableSelect, "table public.orders", grantee);
    IdentityChange::Revoke { privileges, option_only: false, cascade }
}

fn password(name: &str, password: &str) -> IdentityChange {
    let mut made = Credentials::default();
    made.set_password(name, password).expect("it is allowed");
    let change = CredentialChange::Password { scram: made.scram, hash: made.hash, must_change: false };
    IdentityChange::Credential { role: name.into(), change }
}

fn join(role: &str, member: &str) -> IdentityChange {
    IdentityChange::Join { role: role.into(), member: member.into(), admin: false, inherit: None, set: true }
}
