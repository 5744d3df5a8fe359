//! What roles and rights mean, case by case.

use super::*;
use crate::identity::{Denied, MembershipPart, ObjectKind, RoleId, Via};

#[test]
fn nobody_has_a_right_without_a_grant_and_administrators_have_all_but_the_withheld() {
    let mut bench = Bench::with(&["ann"]);
    bench.create("root", Attributes { administrator: true, ..Attributes::user() });
    for action in Action::ALL {
        let object = match action.kind() {
            ObjectKind::Node => Object::Node,
            ObjectKind::Service => Object::Service("adt"),
            ObjectKind::Operation => Object::Operation("lab"),
            ObjectKind::Schema => Object::Schema("public"),
            ObjectKind::Table => ORDERS,
            ObjectKind::Index => Object::Index("logs"),
            ObjectKind::Volume => Object::Volume("disk"),
        };
        assert!(!bench.may("ann", *action, object), "{action:?}");
        assert_eq!(bench.may("root", *action, object), !action.is_withheld(), "{action:?}");
        let wrong = if object == Object::Node { ORDERS } else { Object::Node };
        assert!(!bench.may("root", *action, wrong), "{action:?} is not done to {wrong:?}");
    }
}

#[test]
fn an_administrator_who_grants_itself_bodies_is_seen_directly_and_by_way_of_a_role() {
    let mut bench = Bench::with(&["ann"]);
    bench.create("root", Attributes { administrator: true, ..Attributes::user() });
    bench.create("readers", Attributes::default());
    let bodies = |grantee: &str| IdentityChange::Grant {
        privileges: privileges(Action::MessageBody, "service *", grantee),
        grant_option: false,
    };
    let decision = |bench: &Bench| {
        bench
            .view()
            .may(&bench.caller("root"), Action::MessageBody, Object::Service("adt"))
            .map(|grant| grant.self_granted)
    };
    assert!(bench.by("ann", bodies("ann")).is_err(), "only administrators");
    bench.by("root", bodies("root")).expect("an administrator may");
    assert_eq!(decision(&bench), Ok(true));
    bench
        .by(
            "root",
            IdentityChange::Revoke {
                privileges: privileges(Action::MessageBody, "service *", "root"),
                option_only: false,
                cascade: false,
            },
        )
        .expect("it is its own");
    assert!(decision(&bench).is_err());
    bench.change(&Caller::node(), bodies("readers")).expect("the node may");
    bench.by("root", join("readers", "root")).expect("an administrator may");
    assert_eq!(decision(&bench), Ok(true), "it made itself a member");
    bench.by_node(bodies("root"));
    assert_eq!(decision(&bench), Ok(false), "now somebody else did");
}

#[test]
fn noinherit_needs_set_role() {
    let mut bench = Bench::with(&["ann"]);
    bench.create("staff", Attributes::default());
    bench.by_node(grant("staff"));
    let membership = |inherit, set| IdentityChange::Join {
        role: "staff".into(),
        member: "ann".into(),
        admin: false,
        inherit: Some(inherit),
        set,
    };
    bench.by_node(membership(false, true));
    assert!(!bench.reads("ann"));
    let view = bench.view();
    let as_staff = view.set_role(&bench.caller("ann"), "staff").expect("it is a member");
    assert!(view.may(&as_staff, Action::TableSelect, ORDERS).is_ok());
    assert!(view.set_role(&as_staff, "ann").is_ok(), "and back");
    bench.by_node(membership(true, false));
    assert!(bench.reads("ann"));
    assert_eq!(bench.view().set_role(&bench.caller("ann"), "staff"), Err(Denied::SetRole));
    assert_eq!(bench.view().may(&as_staff, Action::TableSelect, ORDERS), Err(Denied::SetRole), "an open session too");
    assert_eq!(bench.view().set_role(&bench.caller("ann"), "nobody"), Err(Denied::SetRole), "it tells nothing");
}

#[test]
fn members_of_an_administrator_do_not_inherit_it() {
    let mut bench = Bench::with(&["ann"]);
    bench.create("root", Attributes { administrator: true, ..Attributes::default() });
    bench.by_node(join("root", "ann"));
    assert!(!bench.may("ann", Action::NodeStop, Object::Node));
    let view = bench.view();
    let as_root = view.set_role(&bench.caller("ann"), "root").expect("it is a member");
    assert!(view.may(&as_root, Action::NodeStop, Object::Node).is_ok());
}

#[test]
fn a_revoke_ends_what_was_granted_on_unless_another_way_leads_there() {
    let mut bench = Bench::with(&["ann", "ben", "cid", "dan"]);
    bench.by_node(grant_on("ann"));
    bench.by("ann", grant_on("ben")).expect("it has the option");
    bench.by("ben", grant_on("cid")).expect("it has the option");
    // A circle does not hold itself up.
    bench.by("cid", grant_on("ben")).expect("it has the option");
    assert!(bench.by("dan", grant("ann")).is_err());
    let refused = bench.change(&Caller::node(), revoke("ann", false));
    assert!(matches!(refused, Err(IdentityError::Dependents { .. })), "{refused:?}");
    assert!(bench.reads("cid"), "a refused change has no effect");
    bench.by_node(revoke("ann", true));
    assert_eq!(["ann", "ben", "cid"].map(|name| bench.reads(name)), [false; 3]);
    bench.by_node(grant_on("ann"));
    bench.by_node(grant_on("ben"));
    bench.by("ann", grant_on("ben")).expect("it has the option");
    bench.by("ben", grant("cid")).expect("it has the option");
    bench.by_node(revoke("ann", true));
    assert_eq!(["ann", "ben", "cid"].map(|name| bench.reads(name)), [false, true, true]);
}

#[test]
fn a_grantor_revokes_its_own_grants_only_and_the_owner_all() {
    let mut bench = Bench::with(&["ann", "ben", "cid"]);
    bench.directory.created(&pattern("table public.orders"), bench.directory.named("ann").expect("it is there"));
    assert!(bench.reads("ann") && bench.may("ann", Action::TableOwn, ORDERS));
    bench.by("ann", grant_on("ben")).expect("the owner may");
    bench.by("ann", grant("cid")).expect("the owner may");
    bench.by("ben", revoke("cid", false)).expect("there is nothing of its own");
    assert!(bench.reads("cid"));
    bench.by("ann", revoke("cid", false)).expect("the owner may");
    assert!(!bench.reads("cid"));
    bench.by_node(IdentityChange::Own { object: pattern("table public.orders"), owner: "cid".into() });
    assert!(!bench.reads("ann") && bench.reads("cid"));
}

#[test]
fn columns_are_granted_apart_and_all_that_are_asked_for_count() {
    let mut bench = Bench::with(&["ann"]);
    let mut of_columns = privileges(Action::TableSelect, "table public.orders", "ann");
    of_columns.columns = vec!["id".into(), "price".into()];
    bench.by_node(IdentityChange::Grant { privileges: of_columns.clone(), grant_option: false });
    let asked = |columns| Object::Table { schema: "public", name: "orders", columns };
    let cases: [(&[&str], bool); 4] =
        [(&["id"], true), (&["id", "price"], true), (&["id", "patient"], false), (&[], false)];
    for (columns, expected) in cases {
        assert_eq!(bench.may("ann", Action::TableSelect, asked(columns)), expected, "{columns:?}");
    }
    assert!(bench.may("ann", Action::TableSelect, Object::SomeColumn { schema: "public", name: "orders" }));
    assert!(!bench.may("ann", Action::TableInsert, Object::SomeColumn { schema: "public", name: "orders" }));
    bench.by_node(revoke("ann", false));
    assert!(!bench.may("ann", Action::TableSelect, asked(&["id"])), "revoking the table revokes its columns");
    of_columns.actions = vec![Action::TableDelete];
    assert!(
        bench.change(&Caller::node(), IdentityChange::Grant { privileges: of_columns, grant_option: false }).is_err()
    );
}

#[test]
fn patterns_public_and_default_privileges_give_rights() {
    let mut bench = Bench::with(&["ann", "ben"]);
    let logs = privileges(Action::IndexRead, "index logs-*", "public");
    bench.by_node(IdentityChange::Grant { privileges: logs, grant_option: false });
    assert!(bench.may("ben", Action::IndexRead, Object::Index("logs-2026")));
    assert!(!bench.may("ben", Action::IndexRead, Object::Index("bills")));
    assert!(!bench.may("ben", Action::IndexWrite, Object::Index("logs-2026")));
    let default = IdentityChange::Default {
        creator: "ann".into(),
        schema: Some("public".into()),
        kind: ObjectKind::Table,
        actions: vec![Action::TableSelect],
        grantee: "ben".into(),
        grant_option: Some(false),
    };
    assert!(bench.by("ben", default.clone()).is_err(), "of another role");
    bench.by("ann", default).expect("its own");
    let ann = bench.directory.named("ann").expect("it is there");
    bench.directory.created(&pattern("table public.orders"), ann);
    bench.directory.created(&pattern("table other.orders"), ann);
    assert!(bench.reads("ben"));
    assert!(!bench.may("ben", Action::TableSelect, Object::Table { schema: "other", name: "orders", columns: &[] }));
}

#[test]
fn locks_expiry_and_revoked_tokens_end_the_rights_of_open_sessions() {
    let mut bench = Bench::with(&["ann"]);
    bench.by_node(grant("ann"));
    let until = Attributes { until_us: Some(100), ..Attributes::user() };
    bench.by_node(IdentityChange::Alter { role: "ann".into(), attributes: until });
    assert_eq!(bench.view().next_change_us(), Some(100));
    assert!(bench.reads("ann"));
    bench.now_us = 100;
    assert!(!bench.reads("ann"));
    assert_eq!(bench.view().next_change_us(), None);
    let locked = Attributes { locked: Some("left".into()), ..Attributes::user() };
    bench.by_node(IdentityChange::Alter { role: "ann".into(), attributes: locked });
    assert_eq!(bench.view().holds(&bench.caller("ann")), Err(Denied::Role));
    bench.by_node(IdentityChange::Alter { role: "ann".into(), attributes: Attributes::user() });
    let (text, token) = crate::identity::draw("ci", 100, None).expect("there is randomness");
    let credential = |change| IdentityChange::Credential { role: "ann".into(), change };
    bench.by_node(credential(CredentialChange::AddToken(token)));
    let digest = crate::identity::TokenDigest::of(&text).expect("it is one");
    let by_token = Caller::of(bench.directory.named("ann").expect("it is there"), Proof::Token(digest), None);
    assert!(bench.view().may(&by_token, Action::TableSelect, ORDERS).is_ok());
    bench.by_node(credential(CredentialChange::DropToken("ci".into())));
    assert_eq!(bench.view().may(&by_token, Action::TableSelect, ORDERS), Err(Denied::Proof));
    let caller = bench.caller("ann");
    bench.by_node(IdentityChange::Drop { role: "ann".into(), cascade: false });
    assert_eq!(bench.view().holds(&caller), Err(Denied::Role));
    bench.create("ann", Attributes::user());
    assert_eq!(bench.view().holds(&caller), Err(Denied::Role), "another role of that name");
}

#[test]
fn a_locked_group_gives_nothing_and_leads_nowhere() {
    let mut bench = Bench::with(&["ann"]);
    ["staff", "readers"].iter().for_each(|name| bench.create(name, Attributes::default()));
    bench.by_node(grant("readers"));
    bench.by_node(join("readers", "staff"));
    bench.by_node(join("staff", "ann"));
    assert!(bench.reads("ann"));
    let locked = Attributes { locked: Some("audit".into()), ..Attributes::default() };
    bench.by_node(IdentityChange::Alter { role: "staff".into(), attributes: locked });
    assert!(!bench.reads("ann"));
}

#[test]
fn a_broken_glass_gives_a_right_for_a_time_and_is_seen() {
    let mut bench = Bench::with(&["ann"]);
    let broken = |until_us, reason: &str| IdentityChange::BreakGlass {
        action: Action::MessageBody,
        object: pattern("service *"),
        until_us,
        reason: reason.into(),
    };
    assert!(bench.by("ann", broken(100, "emergency")).is_err(), "it needs a right of its own");
    let right = privileges(Action::BreakGlass, "node", "ann");
    bench.by_node(IdentityChange::Grant { privileges: right, grant_option: false });
    for wrong in [broken(100, " "), broken(1, "emergency"), broken(i64::MAX, "emergency")] {
        assert!(bench.by("ann", wrong).is_err());
    }
    bench.by("ann", broken(100, "emergency")).expect("it may");
    let decide = |bench: &Bench| bench.view().may(&bench.caller("ann"), Action::MessageBody, Object::Service("adt"));
    let grant = decide(&bench).expect("the glass is broken");
    assert!(grant.break_glass && grant.self_granted && grant.audited);
    assert_eq!(bench.view().next_change_us(), Some(100));
    bench.now_us = 100;
    assert!(decide(&bench).is_err());
}

#[test]
fn who_administers_users_gets_nothing_by_it() {
    let mut bench = Bench::with(&["ann", "ben"]);
    bench.create("root", Attributes { administrator: true, ..Attributes::user() });
    bench.create("readers", Attributes::default());
    bench.by_node(grant("readers"));
    let right = privileges(Action::UserAdminister, "node", "ann");
    bench.by_node(IdentityChange::Grant { privileges: right, grant_option: false });
    let administrator = Attributes { administrator: true, ..Attributes::user() };
    let password = CredentialChange::Password { scram: None, hash: None, must_change: false };
    let user = |name: &str, attributes| {
        IdentityChange::Create(Role { name: name.into(), attributes, credentials: Credentials::default() })
    };
    let refused = [
        user("eve", administrator.clone()),
        IdentityChange::Alter { role: "ann".into(), attributes: administrator },
        IdentityChange::Alter { role: "root".into(), attributes: Attributes::default() },
        IdentityChange::Credential { role: "root".into(), change: password.clone() },
        IdentityChange::Credential { role: "ben".into(), change: password.clone() },
        join("readers", "ann"),
        join("root", "ann"),
        grant("ann"),
    ];
    for change in refused {
        assert!(bench.by("ann", change.clone()).is_err(), "{change:?}");
    }
    bench.by("ann", user("eve", Attributes::user())).expect("that is its right");
    bench.by("ann", IdentityChange::Credential { role: "eve".into(), change: password }).expect("it made the role");
    assert!(bench.by("ben", user("eva", Attributes::user())).is_err());
}

#[test]
fn memberships_have_no_cycle_and_end_with_the_admin_option_they_came_from() {
    let mut bench = Bench::with(&["ann", "ben", "cid"]);
    bench.create("staff", Attributes::default());
    bench.by_node(join("staff", "ann"));
    for (role, member) in [("ann", "staff"), ("staff", "staff")] {
        let refused = bench.change(&Caller::node(), join(role, member));
        assert!(matches!(refused, Err(IdentityError::Cycle { .. })), "{role} {member}");
    }
    assert!(bench.by("ann", join("staff", "ben")).is_err(), "no ADMIN OPTION");
    let with_option = |member: &str| IdentityChange::Join {
        role: "staff".into(),
        member: member.into(),
        admin: true,
        inherit: None,
        set: true,
    };
    bench.by_node(with_option("ann"));
    bench.by("ann", with_option("ben")).expect("it has the option");
    bench.by("ben", join("staff", "cid")).expect("it has the option");
    let leave = |cascade| IdentityChange::Leave {
        role: "staff".into(),
        member: "ann".into(),
        part: MembershipPart::Admin,
        cascade,
    };
    assert!(matches!(bench.change(&Caller::node(), leave(false)), Err(IdentityError::Dependents { .. })));
    bench.by_node(leave(true));
    let staff = bench.directory.named("staff").expect("it is there");
    let members: Vec<RoleId> =
        bench.directory.members().keys().filter(|(_, role, _)| *role == staff).map(|(member, ..)| *member).collect();
    assert_eq!(members, [bench.directory.named("ann").expect("it is there")]);
}

#[test]
fn a_view_of_another_owner_reads_with_that_owners_rights_as_long_as_the_session_holds() {
    let mut bench = Bench::with(&["ann", "ben"]);
    bench.by_node(grant("ben"));
    let through = bench.caller("ann").on_behalf_of(bench.directory.named("ben").expect("it is there"));
    let grant = bench.view().may(&through, Action::TableSelect, ORDERS).expect("the owner may");
    assert_eq!(grant.via, Via::Privilege(bench.directory.named("ben").expect("it is there")));
    let locked = Attributes { locked: Some("left".into()), ..Attributes::user() };
    bench.by_node(IdentityChange::Alter { role: "ann".into(), attributes: locked });
    assert!(bench.view().may(&through, Action::TableSelect, ORDERS).is_err());
}

#[test]
fn a_password_that_must_be_changed_is_all_that_is_allowed() {
    let mut bench = Bench::with(&["ann"]);
    bench.by_node(grant("ann"));
    bench.by_node(password("ann", "an old password"));
    let must = Attributes { must_change_password: true, ..Attributes::user() };
    bench.by_node(IdentityChange::Alter { role: "ann".into(), attributes: must });
    assert_eq!(bench.view().may(&bench.caller("ann"), Action::TableSelect, ORDERS), Err(Denied::MustChangePassword));
    bench.by("ann", password("ann", "a new password")).expect("its own");
    assert!(bench.reads("ann"));
}
