//! Which texts are statements about roles and rights, and how they are read.

use crate::engine::parse::{ParsedStatement, parsed};

fn read(sql: &str) -> String {
    match parsed(sql) {
        Ok(all) => match all.as_slice() {
            [ParsedStatement::Rights(rights)] => format!("{} {rights:?}", rights.tag()),
            others => format!("{} others", others.len()),
        },
        Err(error) => format!("error {} {error}", error.code()),
    }
}

#[test]
fn statements_are_read_as_postgresqls_grammar_has_them() {
    let cases = [
        ("GRANT a TO b", "GRANT ROLE Join { roles: [\"a\"], members: [Named(\"b\")]"),
        ("grant a, \"B\" to c, current_user with admin option, set false", "GRANT ROLE Join { roles: [\"a\", \"B\"]"),
        ("GRANT SELECT ON t TO b", "GRANT Privileges { privileges: [Privilege { keyword: Some(\"select\")"),
        ("grant select to b", "GRANT ROLE"),
        ("grant all privileges (a, b), select on table s.t, u to group x, public", "GRANT Privileges"),
        ("grant select on schema to b", "GRANT Privileges"),
        ("grant select on sequence to b", "GRANT Privileges"),
        ("revoke grant option for select on t from b cascade", "REVOKE Privileges"),
        ("revoke set option for a from b granted by current_role restrict", "REVOKE ROLE Leave"),
        ("alter default privileges for role a in schema b revoke all on tables from c", "ALTER DEFAULT PRIVILEGES"),
        (
            "alter table if exists only s.t owner to current_user",
            "ALTER TABLE Owner { kind: Table, name: [\"s\", \"t\"]",
        ),
        ("alter schema s owner to a", "ALTER SCHEMA"),
        ("drop owned by a, current_user cascade", "DROP OWNED"),
        ("reassign owned by a to b", "REASSIGN OWNED"),
        ("set role none", "SET SetRole { local: false, role: None"),
        ("set local role = 'a b'", "SET SetRole { local: true, role: Some(\"a b\")"),
        ("reset role", "RESET SetRole"),
        ("set session authorization default", "SET SetSession { role: None"),
        ("create role a password 'secret'", "CREATE ROLE"),
        ("-- a comment\ncreate /* b */ role a ;", "CREATE ROLE"),
        ("grant a to b; select 1", "2 others"),
        // Not about rights, whatever their words are.
        ("alter table t rename owner to b", "1 others"),
        ("alter table t rename column owner to b", "1 others"),
        ("set application_name = 'role'", "1 others"),
        ("create table role (a int)", "1 others"),
        ("drop table grants", "1 others"),
    ];
    for (sql, expected) in cases {
        let found = read(sql);
        assert!(found.starts_with(expected), "{sql}\n  {found}");
        assert!(!found.contains("secret"), "{found}");
    }
}

#[test]
fn what_is_no_statement_is_refused_without_what_is_in_quotes() {
    for (sql, expected) in [
        ("grant a b", "error 42601 syntax error at or near \"b\""),
        ("grant a to", "error 42601 syntax error at end of input"),
        ("grant select on t from b", "error 42601 syntax error at or near \"from\""),
        ("revoke grant option for a from b", "error 42601"),
        ("create role", "error 42601 syntax error at end of input"),
        ("create role a 'secret'", "error 42601 syntax error at or near a value"),
        ("create role a password secret", "error 42601"),
        ("create role a pasword 'secret'", "error 42601 unrecognized role option \"pasword\""),
        ("alter role a valid until secret", "error 42601"),
        ("alter role a connection limit 'x'", "error 42601"),
        ("alter role a sysid 7", "error 0A000"),
        ("alter role a in role b", "error 42601"),
        ("alter role all set x = 1", "error 0A000"),
        ("grant select on foreign server x to b", "error 0A000"),
        ("grant alter system on parameter x to b", "error 42601"),
        ("select 1; grant a b", "error 42601"),
        ("set role", "error 42601"),
        ("create role a unencrypted password 'secret'", "error 0A000"),
    ] {
        let found = read(sql);
        assert!(found.starts_with(expected), "{sql}\n  {found}");
        let shows = found.contains("secret") && !expected.contains("secret") && sql.contains("'secret'");
        assert!(!shows, "{found}");
    }
}
