//! Ways around the rules that a review found, each closed.

use super::*;
use crate::identity::scram::Verifier;
use crate::identity::{Grant, MembershipPart, PasswordHash, RoleId, TokenDigest, draw};

fn administrator() -> Attributes {
    Attributes { administrator: true, ..Attributes::user() }
}

fn bodies(grantee: &str, grant_option: bool) -> IdentityChange {
    let privileges = privileges(Action::MessageBody, "service *", grantee);
    IdentityChange::Grant { privileges, grant_option }
}

fn on_node(action: Action, grantee: &str) -> IdentityChange {
    IdentityChange::Grant { privileges: privileges(action, "node", grantee), grant_option: false }
}

fn member(role: &str, member: &str, admin: bool, inherit: bool) -> IdentityChange {
    let (role, member) = (role.into(), member.into());
    IdentityChange::Join { role, member, admin, inherit: Some(inherit), set: true }
}

fn leave(role: &str, member: &str, part: MembershipPart) -> IdentityChange {
    IdentityChange::Leave { role: role.into(), member: member.into(), part, cascade: false }
}

fn altered(name: &str, attributes: Attributes) -> IdentityChange {
    IdentityChange::Alter { role: name.into(), attributes }
}

fn locked(name: &str, is_locked: bool) -> IdentityChange {
    altered(name, Attributes { locked: is_locked.then(|| "audit".into()), ..Attributes::default() })
}

impl Bench {
    fn id(&self, name: &str) -> RoleId {
        self.directory.named(name).expect("it is there")
    }

    fn reads_bodies(&self, caller: &Caller) -> Option<Grant> {
        self.view().may(caller, Action::MessageBody, Object::Service("adt")).ok()
    }
}

#[test]
fn what_an_administrator_has_as_another_role_only_by_its_power_is_seen() {
    let mut bench = Bench::with(&["ann", "nurse", "ben"]);
    bench.create("root", administrator());
    bench.by_node(bodies("nurse", true));
    bench.by_node(join("nurse", "ann"));
    bench.by_node(member("root", "ben", false, false));
    let seen = |bench: &Bench, caller: &Caller| bench.reads_bodies(caller).expect("the nurse may").self_granted;
    let as_nurse = |bench: &Bench, name: &str| bench.view().set_role(&bench.caller(name), "nurse").expect("it may");
    let through = |bench: &Bench, name: &str| bench.caller(name).on_behalf_of(bench.id("nurse"));
    assert!(!seen(&bench, &bench.caller("nurse")) && !seen(&bench, &as_nurse(&bench, "ann")));
    assert!(!seen(&bench, &through(&bench, "ann")));
    assert!(seen(&bench, &as_nurse(&bench, "root")), "by SET ROLE");
    assert!(seen(&bench, &through(&bench, "root")), "it could have made the nurse the owner of the view");
    assert!(seen(&bench, &through(&bench, "ben")), "as who may become an administrator could");
    let by_power = as_nurse(&bench, "root");
    let refused = bench.change(&by_power, bodies("root", false));
    assert!(matches!(refused, Err(IdentityError::Denied(_))), "it would be the nurse's grant: {refused:?}");
    bench.by_node(join("nurse", "root"));
    assert!(!seen(&bench, &as_nurse(&bench, "root")), "somebody else made it a member");
}

#[test]
fn who_must_change_the_password_changes_nothing_before() {
    let mut bench = Bench::with(&["ben"]);
    bench.create("staff", Attributes::default());
    ["root", "boss"].iter().for_each(|name| bench.create(name, administrator()));
    ["root", "boss"].iter().for_each(|name| bench.by_node(password(name, "an old password")));
    bench.by_node(grant_on("root"));
    bench.by_node(member("staff", "root", true, true));
    let changes = [
        altered("ben", Attributes::user()),
        grant("ben"),
        join("staff", "ben"),
        IdentityChange::Own { object: pattern("table public.orders"), owner: "root".into() },
        password("ben", "another password"),
        on_node(Action::NodeStop, "ben"),
        IdentityChange::Drop { role: "ben".into(), cascade: false },
    ];
    for attributes in [administrator(), Attributes::user()] {
        bench.by_node(altered("root", Attributes { must_change_password: true, ..attributes }));
        for change in &changes {
            let refused = bench.by("root", change.clone());
            assert!(matches!(&refused, Err(IdentityError::Denied(why)) if why.contains("password")), "{refused:?}");
        }
    }
    bench.by("root", password("root", "a new password")).expect("its own");
    bench.by("root", grant("ben")).expect("it has the option");
}

#[test]
fn a_locked_group_lends_no_options_and_what_was_granted_under_them_is_suspended() {
    let mut bench = Bench::with(&["ann", "ben", "cid"]);
    ["staff", "readers"].iter().for_each(|name| bench.create(name, Attributes::default()));
    bench.by_node(join("staff", "ann"));
    bench.by_node(member("readers", "staff", true, false));
    bench.by_node(grant_on("staff"));
    bench.by("ann", grant("ben")).expect("by way of the group");
    bench.by("ann", join("readers", "ben")).expect("by way of the group");
    assert!(bench.reads("ben"));
    bench.by_node(locked("staff", true));
    assert!(bench.by("ann", grant("cid")).is_err(), "GRANT OPTION");
    assert!(bench.by("ann", join("readers", "cid")).is_err(), "ADMIN OPTION");
    assert!(!bench.reads("ben"), "suspended");
    assert!(!bench.view().has_rights_of(bench.id("ben"), bench.id("readers")), "suspended");
    bench.by_node(locked("staff", false));
    assert!(bench.reads("ben") && bench.view().has_rights_of(bench.id("ben"), bench.id("readers")), "not ended");
    let expires = Attributes { until_us: Some(100), ..Attributes::default() };
    bench.by_node(altered("staff", expires));
    bench.now_us = 100;
    assert!(!bench.reads("ben") && bench.by("ann", grant("cid")).is_err(), "expired");
    bench.by_node(altered("staff", Attributes::default()));
    bench.by_node(altered("ann", Attributes { locked: Some("left".into()), ..Attributes::user() }));
    assert!(bench.reads("ben"), "what somebody who left granted stays");
}

#[test]
fn options_of_a_suspended_grant_do_not_count() {
    let mut bench = Bench::with(&["ann", "ben", "cid"]);
    bench.create("staff", Attributes::default());
    bench.by_node(join("staff", "ann"));
    bench.by_node(grant_on("staff"));
    bench.by("ann", grant_on("ben")).expect("by way of the group");
    bench.by("ben", grant("cid")).expect("it has the option");
    bench.by_node(locked("staff", true));
    assert!(!bench.reads("cid") && bench.by("ben", grant("ann")).is_err());
}

#[test]
fn memberships_that_lead_to_each_others_admin_option_do_not_hold_each_other_up() {
    let mut bench = Bench::with(&["ann", "ben"]);
    ["staff", "leads"].iter().for_each(|name| bench.create(name, Attributes::default()));
    bench.by_node(member("staff", "leads", true, true));
    bench.by_node(member("leads", "ann", true, true));
    bench.by("ann", member("leads", "ben", true, true)).expect("it has the option");
    bench.by("ben", member("leads", "ann", true, true)).expect("it has the option");
    let all = IdentityChange::Leave {
        role: "leads".into(),
        member: "ann".into(),
        part: MembershipPart::Admin,
        cascade: true,
    };
    bench.by_node(all);
    let left: Vec<RoleId> =
        bench.directory.members().keys().filter(|key| key.1 == bench.id("leads")).map(|key| key.0).collect();
    assert!(!left.contains(&bench.id("ben")), "{left:?}");
}

#[test]
fn who_administers_users_becomes_no_administrator_by_a_role_that_was_promoted() {
    let delegate = || {
        let mut bench = Bench::with(&["help"]);
        bench.create("root", administrator());
        bench.by_node(on_node(Action::UserAdminister, "help"));
        for name in ["bob", "team"] {
            let (name, attributes) = (name.into(), Attributes::user());
            let made = Role { name, attributes, credentials: Credentials::default() };
            bench.by("help", IdentityChange::Create(made)).expect("that is its right");
        }
        bench
    };
    // First promoted, then joined: directly, and by way of a role that can become it.
    let mut bench = delegate();
    bench.by("root", altered("bob", administrator())).expect("nobody could become it");
    bench.by("root", member("bob", "team", false, false)).expect("an administrator may");
    for change in [
        member("bob", "help", false, false),
        member("team", "help", false, false),
        password("team", "a new password"),
        IdentityChange::Rename { role: "team".into(), to: "other".into() },
    ] {
        let refused = bench.by("help", change.clone());
        assert!(matches!(refused, Err(IdentityError::Denied(_))), "{change:?} {refused:?}");
    }
    assert!(bench.view().set_role(&bench.caller("help"), "bob").is_err());
    // First joined, then promoted.
    for (path, named) in [(&[("bob", "help")][..], "help"), (&[("team", "help"), ("bob", "team")], "team")] {
        let mut bench = delegate();
        for (role, of) in path {
            bench.by("help", member(role, of, false, false)).expect("it has the option");
        }
        let refused = bench.by("root", altered("bob", administrator()));
        let text = refused.as_ref().err().map(ToString::to_string).unwrap_or_default();
        assert!(matches!(refused, Err(IdentityError::Invalid(_))) && text.contains("could become"), "{refused:?}");
        assert!(text.contains("\"help\"") || text.contains(&format!("{named:?}")), "{text}");
        // An administrator who says so itself may.
        bench.by("root", member("bob", "help", false, false)).expect("an administrator may");
        for (role, of) in path {
            let left = IdentityChange::Leave {
                role: (*role).into(),
                member: (*of).into(),
                part: MembershipPart::All,
                cascade: true,
            };
            bench.by("help", left).expect("its own");
        }
        bench.by("root", altered("bob", administrator())).expect("what is left is an administrator's");
        assert!(bench.view().set_role(&bench.caller("help"), "bob").is_ok());
    }
    // Where the membership does not let it become the role, nothing is in the way.
    let mut bench = delegate();
    let (role, of) = ("bob".into(), "help".into());
    let inherits = IdentityChange::Join { role, member: of, admin: false, inherit: Some(true), set: false };
    bench.by("help", inherits).expect("it has the option");
    bench.by("root", altered("bob", administrator())).expect("nobody could become it");
}

#[test]
fn who_administers_users_becomes_no_administrator_by_a_member_of_administrators() {
    let mut bench = Bench::with(&["help"]);
    bench.create("root", administrator());
    bench.create("admins", Attributes { administrator: true, ..Attributes::default() });
    ["staff", "team"].iter().for_each(|name| bench.create(name, Attributes::default()));
    bench.by_node(member("admins", "staff", false, true));
    bench.by_node(on_node(Action::UserAdminister, "help"));
    let bob = Role { name: "bob".into(), attributes: Attributes::user(), credentials: Credentials::default() };
    bench.by("help", IdentityChange::Create(bob)).expect("that is its right");
    bench.by("help", member("bob", "help", false, false)).expect("it has the option");
    for role in ["admins", "staff"] {
        let refused = bench.by("root", member(role, "bob", false, true));
        let text = refused.as_ref().err().map(ToString::to_string).unwrap_or_default();
        assert!(matches!(refused, Err(IdentityError::Invalid(_))) && text.contains("\"help\""), "{role} {refused:?}");
    }
    bench.by_node(IdentityChange::Credential { role: "bob".into(), change: CredentialChange::Ldap });
    let groups = || IdentityChange::DirectoryRoles {
        user: "bob".into(),
        roles: vec!["admins".into(), "staff".into(), "team".into()],
        create: false,
    };
    let is_in = |bench: &Bench, role: &str| bench.view().is_member(bench.id("bob"), bench.id(role));
    bench.by_node(groups());
    assert!(is_in(&bench, "team") && !is_in(&bench, "admins") && !is_in(&bench, "staff"));
    // Once nobody can become it, it becomes what administrators and its groups say.
    bench.by("help", leave("bob", "help", MembershipPart::All)).expect("its own");
    bench.by_node(groups());
    assert!(is_in(&bench, "team") && is_in(&bench, "admins") && is_in(&bench, "staff"));
    bench.by("root", member("admins", "bob", false, true)).expect("nobody could become it");
    let refused = bench.by("help", member("bob", "help", false, false));
    assert!(matches!(refused, Err(IdentityError::Denied(_))), "{refused:?}");
}

#[test]
fn only_administrators_set_passwords_whose_check_costs_more_than_others() {
    let mut bench = Bench::with(&["ann", "help"]);
    bench.create("root", administrator());
    bench.by_node(password("ann", "an old password"));
    bench.by_node(on_node(Action::UserAdminister, "help"));
    let key = format!("{}=", "A".repeat(43));
    let scram = |iterations: u32| {
        let text = format!("SCRAM-SHA-256${iterations}:QUFBQUFBQUFBQUFBQUFBQQ==${key}:{key}");
        text.parse::<Verifier>().expect("a verifier")
    };
    let of = |iterations: u32, memory: u32| {
        let hash = format!("$argon2id$v=19$m={memory},t=2,p=1${}${}", "A".repeat(22), "A".repeat(43));
        (Some(scram(iterations)), Some(hash.parse().expect("a hash")))
    };
    let change = |role: &str, (scram, hash): (Option<Verifier>, Option<PasswordHash>)| IdentityChange::Credential {
        role: role.into(),
        change: CredentialChange::Password { scram, hash, must_change: false },
    };
    let user = |name: &str, (scram, hash): (Option<Verifier>, Option<PasswordHash>)| {
        let credentials = Credentials { scram, hash, ..Credentials::default() };
        IdentityChange::Create(Role { name: name.into(), attributes: Attributes::user(), credentials })
    };
    for costly in [(1_000_000, 19_456), (4097, 19_456), (4096, 65_536)] {
        for (by, change) in
            [("ann", change("ann", of(costly.0, costly.1))), ("help", user("eve", of(costly.0, costly.1)))]
        {
            let refused = bench.by(by, change);
            assert!(matches!(refused, Err(IdentityError::Denied(_))), "{by} {costly:?} {refused:?}");
        }
    }
    bench.by("ann", change("ann", of(4096, 19_456))).expect("as those made here");
    bench.by("help", user("eve", of(4096, 19_456))).expect("as those made here");
    bench.by("root", change("ann", of(100_000, 65_536))).expect("an administrator may");
}

#[test]
fn a_session_without_the_password_does_not_give_itself_one() {
    let mut bench = Bench::with(&["ann", "ben"]);
    let (text, token) = draw("ci", 1, Some(100)).expect("there is randomness");
    bench.by_node(IdentityChange::Credential { role: "ann".into(), change: CredentialChange::AddToken(token) });
    bench.by_node(IdentityChange::Credential {
        role: "ann".into(),
        change: CredentialChange::Certificates(vec!["ann.example".into()]),
    });
    let digest = TokenDigest::of(&text).expect("it is one");
    let proofs = [Proof::Token(digest), Proof::Certificate("ann.example".into()), Proof::Trust];
    for has_password in [false, true] {
        for proof in proofs.clone() {
            let caller = Caller::of(bench.id("ann"), proof, None);
            bench.view().holds(&caller).expect("the login holds");
            let refused = bench.change(&caller, password("ann", "a new password"));
            assert!(matches!(refused, Err(IdentityError::Denied(_))), "{caller:?} {has_password}");
        }
        bench.by_node(password("ann", "an old password"));
    }
    bench.by("ann", password("ann", "a new password")).expect("by its password");
    assert!(bench.by("ben", password("ben", "a new password")).is_err(), "it has none");
}

#[test]
fn what_a_delegate_adds_to_a_rooted_grant_ends_with_its_option() {
    let mut bench = Bench::with(&["ann", "ben"]);
    bench.create("staff", Attributes::default());
    bench.by_node(altered("ann", administrator()));
    bench.by("ann", join("staff", "ben")).expect("an administrator may");
    bench.by("ann", grant("ben")).expect("an administrator may");
    bench.by_node(altered("ann", Attributes::user()));
    bench.by_node(member("staff", "ann", true, true));
    bench.by_node(grant_on("ann"));
    bench.by("ann", member("staff", "ben", true, true)).expect("it has the option");
    bench.by("ann", grant_on("ben")).expect("it has the option");
    for change in [leave("staff", "ann", MembershipPart::Admin), revoke("ann", false)] {
        let refused = bench.change(&Caller::node(), change.clone());
        assert!(matches!(refused, Err(IdentityError::Dependents { count: 1 })), "{change:?} {refused:?}");
    }
}

#[test]
fn a_grant_over_ones_own_broken_glass_is_an_ordinary_one() {
    let mut bench = Bench::with(&["ann"]);
    bench.by_node(on_node(Action::BreakGlass, "ann"));
    bench.by_node(bodies("ann", true));
    let broken = IdentityChange::BreakGlass {
        action: Action::MessageBody,
        object: pattern("service *"),
        until_us: 100,
        reason: "an emergency".into(),
    };
    bench.by("ann", broken).expect("it may");
    bench.by("ann", bodies("ann", false)).expect("it has the option");
    let revoked = IdentityChange::Revoke {
        privileges: privileges(Action::MessageBody, "service *", "ann"),
        option_only: true,
        cascade: false,
    };
    let refused = bench.change(&Caller::node(), revoked);
    assert!(matches!(refused, Err(IdentityError::Dependents { count: 1 })), "{refused:?}");
}

#[test]
fn the_rights_of_broken_glass_are_removed_after_their_end() {
    let mut bench = Bench::with(&["ann"]);
    bench.by_node(on_node(Action::BreakGlass, "ann"));
    let broken = IdentityChange::BreakGlass {
        action: Action::MessageBody,
        object: pattern("service *"),
        until_us: 100,
        reason: "an emergency".into(),
    };
    bench.by("ann", broken).expect("it may");
    assert_eq!(bench.directory.privileges().len(), 2);
    bench.now_us = 100;
    bench.by_node(grant("ann"));
    assert_eq!(bench.directory.privileges().len(), 2, "one came, one went");
    bench.now_us = 1;
    assert!(bench.reads_bodies(&bench.caller("ann")).is_none(), "the clock was set back");
}

#[test]
fn a_delegate_ends_the_memberships_that_it_made_and_no_others() {
    let mut bench = Bench::with(&["ann", "ben", "cid"]);
    bench.create("staff", Attributes::default());
    bench.by_node(member("staff", "ann", true, true));
    bench.by_node(join("staff", "ben"));
    for part in [MembershipPart::All, MembershipPart::Inherit, MembershipPart::Set] {
        let refused = bench.by("ann", leave("staff", "ben", part));
        assert!(matches!(refused, Err(IdentityError::Denied(_))), "{part:?} {refused:?}");
    }
    bench.by("ann", member("staff", "ben", false, false)).expect("beside the other");
    assert!(bench.view().has_rights_of(bench.id("ben"), bench.id("staff")), "the other is as it was");
    bench.by("ann", leave("staff", "ben", MembershipPart::All)).expect("its own");
    assert!(bench.view().has_rights_of(bench.id("ben"), bench.id("staff")), "the other is left");
    bench.by("ann", join("staff", "cid")).expect("it has the option");
    bench.by_node(leave("staff", "cid", MembershipPart::All));
    assert!(!bench.view().is_member(bench.id("cid"), bench.id("staff")), "administrators end all");
}

#[test]
fn who_makes_a_role_adds_itself_under_its_option_and_cannot_be_left_with_it() {
    let mut bench = Bench::with(&["ann"]);
    bench.by_node(on_node(Action::UserAdminister, "ann"));
    let credentials = Credentials::default();
    let eve = Role { name: "eve".into(), attributes: Attributes::user(), credentials };
    bench.by("ann", IdentityChange::Create(eve)).expect("that is its right");
    assert!(!bench.view().has_rights_of(bench.id("ann"), bench.id("eve")));
    bench.by("ann", join("eve", "ann")).expect("it has ADMIN OPTION");
    assert!(bench.view().has_rights_of(bench.id("ann"), bench.id("eve")));
    let refused = bench.change(&Caller::node(), leave("eve", "ann", MembershipPart::Admin));
    assert!(matches!(refused, Err(IdentityError::Dependents { count: 1 })), "{refused:?}");
}

#[test]
fn a_token_has_a_name_as_a_role_has() {
    let mut bench = Bench::with(&["ann"]);
    for name in ["", "a:b", " ci", "a\u{200b}b"] {
        let (_, token) = draw(name, 1, None).expect("there is randomness");
        let change = IdentityChange::Credential { role: "ann".into(), change: CredentialChange::AddToken(token) };
        let refused = bench.change(&Caller::node(), change);
        assert!(matches!(refused, Err(IdentityError::Name { .. })), "{name:?} {refused:?}");
    }
}

#[test]
fn a_token_of_a_role_that_the_provider_made_by_its_groups_has_an_end() {
    let mut bench = Bench::with(&["staff", "ben"]);
    bench.by_node(IdentityChange::ProviderUser {
        user: "ann".into(),
        subject: "s1".into(),
        roles: vec!["staff".into()],
        create: true,
    });
    bench.by_node(IdentityChange::Credential { role: "ben".into(), change: CredentialChange::Oidc });
    let add = |role: &str, until_us| {
        let (_, token) = draw("ci", 1, until_us).expect("there is randomness");
        IdentityChange::Credential { role: role.into(), change: CredentialChange::AddToken(token) }
    };
    let refused = bench.change(&Caller::node(), add("ann", None));
    assert!(refused.as_ref().is_err_and(|error| error.to_string().contains("--days")), "{refused:?}");
    bench.by_node(add("ann", Some(1_000)));
    bench.by_node(add("ben", None));
}
