//! Bodies of the fuzz targets of the directory's client: what must hold for any bytes at all.

use super::answer;
use super::names::{self, DistinguishedName, LdapTemplate};

/// Reads the bytes as answers of a server. As text they are a DN, which says the same when it is written and read again; and a name in a
/// filter and in a DN, where they are one value.
pub fn answers(input: &[u8]) {
    answer::read_any(input);
    let Ok(text) = std::str::from_utf8(input) else { return };
    if let Ok(dn) = DistinguishedName::parse(text) {
        let shown = dn.to_string();
        if let Ok(again) = DistinguishedName::parse(&shown) {
            assert_eq!(again, dn, "a DN is read as it is written");
        }
    }
    let fill = |template: &str, escape: fn(&str) -> String| {
        let template = LdapTemplate::parse(template, &["user"]).unwrap_or_else(|why| panic!("{why}"));
        template.filled(&[("user", text)], escape)
    };
    let filter = fill("(&(uid={user})(a=b))", names::in_filter);
    assert!(ldap3::parse_filter(&filter).is_ok(), "a name in a filter is a value: {filter}");
    let dn = fill("uid={user},ou=people", names::in_dn);
    if let Ok(dn) = DistinguishedName::parse(&dn) {
        let base = DistinguishedName::parse("ou=people").unwrap_or_else(|why| panic!("{why}"));
        assert!(dn.is_below(&base), "a name in a DN is a value: {dn}");
    }
}
