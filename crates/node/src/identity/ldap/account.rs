//! [`LdapAccount`]: what an entry of a directory says of its user; pure.
//!
//! | attribute | of | who cannot log in |
//! |---|---|---|
//! | `userAccountControl` | Active Directory | bit 0x2: the account is disabled |
//! | `msDS-User-Account-Control-Computed` | Active Directory | bit 0x10: locked; 0x800000: the password has expired |
//! | `accountExpires` | Active Directory | the time has passed |
//! | `pwdAccountLockedTime` | OpenLDAP (ppolicy) | it is there |
//! | `nsAccountLock`, `loginDisabled` | 389 Directory Server, eDirectory | `TRUE` |
//!
//! The bind tells as well, and better. These are for sessions that are open, where there is no password to try; whatever else takes
//! a user's access away belongs into `ldap.filter`, since who is not found loses the sessions too.

use std::collections::BTreeSet;

use super::answer::LdapEntry;

/// The attributes that say who cannot log in.
pub(super) const LOCKS: &[&str] = &[
    "userAccountControl",
    "msDS-User-Account-Control-Computed",
    "accountExpires",
    "pwdAccountLockedTime",
    "nsAccountLock",
    "loginDisabled",
];

/// Seconds from 1601, where Active Directory's time begins, to 1970.
const SECONDS_FROM_1601: i64 = 11_644_473_600;

/// What a directory says of a user.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LdapAccount {
    /// The entry's name.
    pub dn: String,
    /// The values of the attribute that names users; none if it is not read.
    pub names: Vec<String>,
    /// Why the account may not be used; `None`: nothing says so.
    pub locked: Option<&'static str>,
    /// Its groups, by their DNs.
    pub groups: Vec<String>,
    /// The roles that these groups are here, by their names.
    pub roles: BTreeSet<String>,
}

fn numbers(entry: &LdapEntry, name: &str) -> impl Iterator<Item = i64> {
    let read = |value: &Vec<u8>| std::str::from_utf8(value).ok()?.trim().parse().ok();
    entry.values(name).iter().filter_map(read).collect::<Vec<i64>>().into_iter()
}

/// Why the account of an entry may not be used at a moment, in microseconds since 1970.
pub(super) fn locked(entry: &LdapEntry, now_us: i64) -> Option<&'static str> {
    let has = |name, bit| numbers(entry, name).any(|flags| flags & bit != 0);
    let is_true = |name| entry.values(name).iter().any(|value| value.eq_ignore_ascii_case(b"true"));
    // 0 and the largest number mean never; a time is in steps of 100 ns.
    let is_over = |at: i64| at > 0 && at < i64::MAX && at / 10 - SECONDS_FROM_1601 * 1_000_000 <= now_us;
    match () {
        () if has("userAccountControl", 0x2) => Some("the account is disabled"),
        () if has("msDS-User-Account-Control-Computed", 0x10) => Some("the account is locked"),
        () if has("msDS-User-Account-Control-Computed", 0x80_0000) => Some("the password has expired"),
        () if numbers(entry, "accountExpires").any(is_over) => Some("the account has expired"),
        () if !entry.values("pwdAccountLockedTime").is_empty() => Some("the account is locked"),
        () if is_true("nsAccountLock") || is_true("loginDisabled") => Some("the account is locked"),
        () => None,
    }
}

/// The texts of an attribute; what is no text is left out.
pub(super) fn texts(entry: &LdapEntry, name: &str) -> Vec<String> {
    entry.values(name).iter().filter_map(|value| String::from_utf8(value.clone()).ok()).collect()
}

/// Why a bind was refused, in words: Active Directory has one code for all, and says more in its text (`data 775`).
pub(super) fn bind_refusal(code: u32, text: &str) -> String {
    let data = text.split("data ").nth(1).and_then(|rest| rest.split([',', ' ']).next()).unwrap_or_default();
    let words = match (code, data) {
        (49, "525") => "there is no such user",
        (49, "530" | "531") => "the user may not log in at this time, or from here",
        (49, "532" | "773") => "the password has expired, or must be changed first",
        (49, "533") => "the account is disabled",
        (49, "701") => "the account has expired",
        (49, "775") => "the account is locked",
        (49, _) => "the name or the password is wrong",
        (32, _) => "there is no entry of this name",
        (8 | 13, _) => "the server demands TLS, or a stronger login",
        (53, _) => "the server does not want to: the account may be locked, or the server read-only",
        _ => "the server refused",
    };
    if text.is_empty() { format!("{words} (code {code})") } else { format!("{words} (code {code}: {text})") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, value: &str) -> LdapEntry {
        LdapEntry { dn: "uid=ann,dc=x".into(), attributes: vec![(name.into(), vec![value.as_bytes().to_vec()])] }
    }

    #[test]
    fn what_locks_an_account_is_seen_and_nothing_else() {
        // 2026-11-26T00:00:00Z; in Active Directory's time 134085888000000000.
        let now_us = 1_795_651_200_000_000;
        for (name, value, is_locked) in [
            ("useraccountcontrol", "514", true),
            ("useraccountcontrol", "512", false),
            ("msds-user-account-control-computed", "16", true),
            ("msds-user-account-control-computed", "8388608", true),
            ("msds-user-account-control-computed", "0", false),
            ("accountexpires", "0", false),
            ("accountexpires", "9223372036854775807", false),
            ("accountexpires", "134401248000000000", true),
            ("accountexpires", "134401248010000000", false),
            ("pwdaccountlockedtime", "000001010000Z", true),
            ("nsaccountlock", "TRUE", true),
            ("nsaccountlock", "false", false),
            ("logindisabled", "True", true),
            ("useraccountcontrol", "no number", false),
            ("mail", "514", false),
        ] {
            assert_eq!(locked(&entry(name, value), now_us).is_some(), is_locked, "{name} {value}");
        }
    }

    #[test]
    fn the_words_of_active_directory_are_told_apart() {
        let text = "80090308: LdapErr: DSID-0C09042A, comment: AcceptSecurityContext error, data 775, v3839";
        assert!(bind_refusal(49, text).starts_with("the account is locked"));
        assert!(bind_refusal(49, &text.replace("775", "52e")).starts_with("the name or the password is wrong"));
        assert_eq!(bind_refusal(49, ""), "the name or the password is wrong (code 49)");
    }
}
