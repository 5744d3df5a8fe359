//! [`GroupRoles`]: which roles the groups of a directory are here; a pure mapping.
//!
//! A group is named by its DN. A name alone (`doctors`) stands for the group of that name below the place where groups are searched,
//! and for none elsewhere: who may make groups in another part of the directory must not make themselves a role here.

use std::collections::{BTreeMap, BTreeSet};

use super::names::{self, DistinguishedName};

/// Groups, and the roles that they are.
#[derive(Debug, Default)]
pub(super) struct GroupRoles {
    by_dn: BTreeMap<DistinguishedName, Vec<String>>,
    by_name: BTreeMap<String, Vec<String>>,
    /// Where groups lie that are named without their place.
    base: Option<DistinguishedName>,
}

impl GroupRoles {
    /// The mapping of the settings. Errors: a group that is neither a DN nor a name that can be found.
    pub(super) fn new(
        settings: &BTreeMap<String, Vec<String>>,
        base: Option<DistinguishedName>,
    ) -> Result<GroupRoles, String> {
        let mut made = GroupRoles { base, ..GroupRoles::default() };
        for (group, roles) in settings {
            if group.contains('=') {
                let dn = DistinguishedName::parse(group).map_err(|why| format!("`{group}`: {why}"))?;
                made.by_dn.entry(dn).or_default().extend(roles.iter().cloned());
            } else if made.base.is_some() && !group.trim().is_empty() {
                made.by_name.entry(names::folded(group)).or_default().extend(roles.iter().cloned());
            } else {
                return Err(format!("`{group}` is no DN; names of groups need ldap.group_base, below which they are"));
            }
        }
        Ok(made)
    }

    /// Whether no group is a role.
    pub(super) fn is_empty(&self) -> bool {
        self.by_dn.is_empty() && self.by_name.is_empty()
    }

    /// The roles of who is in these groups. What is no DN is no group.
    pub(super) fn of(&self, groups: &[String]) -> BTreeSet<String> {
        let groups: BTreeSet<DistinguishedName> =
            groups.iter().filter_map(|group| DistinguishedName::parse(group).ok()).collect();
        let of = |group: &DistinguishedName| {
            let by_dn = self.by_dn.get(group);
            let is_here = self.base.as_ref().is_some_and(|base| group.is_below(base));
            let by_name = group.first_value().filter(|_| is_here).and_then(|name| self.by_name.get(name));
            by_dn.into_iter().chain(by_name).flatten().cloned().collect::<Vec<String>>()
        };
        groups.iter().flat_map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_roles_by_their_dn_and_by_name_only_below_the_base() {
        let settings = [
            ("cn=Doctors,ou=groups,dc=x", vec!["doctors", "readers"]),
            ("nurses", vec!["nurses"]),
            ("Intensive Care", vec!["icu"]),
        ];
        let settings: BTreeMap<String, Vec<String>> = settings
            .into_iter()
            .map(|(group, roles)| (group.to_owned(), roles.into_iter().map(str::to_owned).collect()))
            .collect();
        let base = DistinguishedName::parse("ou=groups,dc=x").expect("it is one");
        let roles = GroupRoles::new(&settings, Some(base)).expect("it can work");
        for (groups, expected) in [
            (&["CN=doctors,OU=Groups,DC=X"][..], &["doctors", "readers"][..]),
            (&["cn=nurses,ou=groups,dc=x", "cn=intensive  care,ou=a,ou=groups,dc=x"], &["icu", "nurses"]),
            (&["cn=nurses,ou=elsewhere,dc=x", "cn=doctors,ou=elsewhere,dc=x"], &[]),
            (&["nurses", "doctors", "", "cn=\\"], &[]),
            (&[], &[]),
        ] {
            let groups: Vec<String> = groups.iter().map(ToString::to_string).collect();
            assert_eq!(roles.of(&groups).into_iter().collect::<Vec<_>>(), expected, "{groups:?}");
        }
        assert!(GroupRoles::new(&settings, None).is_err(), "a name needs a base");
    }
}
