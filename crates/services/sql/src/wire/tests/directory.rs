//! Logins where a directory checks passwords: everybody is asked alike, and a directory that is dead stops no local login.

use std::collections::BTreeMap;

use bytes::Buf;
use node::identity::ldap::{LdapClient, LdapLogins, LdapSettings};
use node::identity::{AccessAddress, AccessMethod, AccessPort, AccessRule, AccessRules, AccessTls, LdapUser};

use super::*;

/// The numbers of the requests for a password as it is, and for SCRAM.
const CLEAR: u32 = 3;
const SASL: u32 = 10;

/// A server whose directory is dead, with the local user ann and the directory's user carl.
async fn server_with_dead_directory() -> (Server, Arc<Guard>) {
    let (server, guard) = guarded_server(|options| options.trust = false).await;
    let credentials = Credentials { ldap: Some(LdapUser::ByHand), ..Credentials::default() };
    let carl = Role { name: "carl".into(), attributes: Attributes::user(), credentials };
    change(&guard, &[IdentityChange::Create(carl)]);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("ldap://{}", listener.local_addr().expect("it is bound"));
    drop(listener);
    let settings = LdapSettings {
        urls: vec![url],
        starttls: false,
        user_dn: Some("uid={user},dc=x".into()),
        user_attribute: Some("uid".into()),
        group_attribute: Some("memberOf".into()),
        roles: BTreeMap::from([("cn=a,dc=x".to_owned(), vec!["a".to_owned()])]),
        create: true,
        ..LdapSettings::default()
    };
    let client = LdapClient::new(&settings, Clock::system()).expect("they can work");
    guard.use_directory(LdapLogins::new(client), Box::new(|_, _| {}));
    (server, guard)
}

/// What a user is asked for first.
async fn question(server: &Server, user: &str) -> (Client, u32) {
    let mut client = Client::connect(server).await;
    client.send(&start(3 << 16, &[("user", user), ("database", "terrace")])).await;
    let mut reply = client.reply().await;
    assert_eq!(reply.kind, 'R');
    let asked = reply.body.get_u32();
    (client, asked)
}

/// The error with which a password is refused; `None`: it is right.
async fn refused(server: &Server, user: &str, password: &[u8]) -> Option<(String, String)> {
    let (mut client, asked) = question(server, user).await;
    assert_eq!(asked, CLEAR);
    client.message(b'p', password).await;
    let reply = client.reply().await;
    (reply.kind == 'E').then(|| reply.error())
}

#[tokio::test]
async fn with_a_directory_everybody_is_asked_for_the_password_as_it_is_and_refused_alike() {
    let (server, _guard) = server_with_dead_directory().await;
    assert_eq!(refused(&server, "ann", b"secret\0").await, None, "the password here is right, and the directory dead");
    for (user, password) in
        [("ann", "wrong"), ("carl", "secret"), ("nobody", "secret"), ("carl", ""), ("a)(b=*", "secret")]
    {
        let told = refused(&server, user, format!("{password}\0").as_bytes()).await.expect("it is wrong");
        assert_eq!(told, ("28P01".to_owned(), format!("password authentication failed for user \"{user}\"")));
    }
    for broken in [&b"secret"[..], b"sec\0ret\0", b"\xff\0"] {
        assert_eq!(refused(&server, "ann", broken).await.expect("it is none").0, "08P01");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_rule_that_demands_scram_keeps_it() {
    let (server, guard) = server_with_dead_directory().await;
    let rule = AccessRule {
        port: AccessPort::Sql,
        roles: Vec::new(),
        address: AccessAddress::try_from("local".to_owned()).expect("an address"),
        tls: AccessTls::Any,
        method: AccessMethod::Scram,
    };
    guard.set_access(AccessRules::new(vec![rule]).expect("it can work"));
    for user in ["ann", "carl", "nobody"] {
        assert_eq!(question(&server, user).await.1, SASL, "{user}");
    }
    let mut ann = Client::connect(&server).await;
    ann.log_in("ann", "secret").await.expect("it is right");
    server.stop().await;
}
