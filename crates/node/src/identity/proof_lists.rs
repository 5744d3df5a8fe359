//! Lists of proofs of a role (names in certificates, users of the machine), with one more and with one less.

use std::fmt::Display;

use super::error::IdentityError;

/// A list of proofs with one more.
pub(super) fn added<T: PartialEq + Display>(mut list: Vec<T>, one: T, what: &str) -> Result<Vec<T>, IdentityError> {
    if list.contains(&one) {
        return Err(IdentityError::Invalid(format!("the role has the {what} {one} already")));
    }
    list.push(one);
    Ok(list)
}

/// A list of proofs without one of them.
pub(super) fn without<T: PartialEq + Display>(mut list: Vec<T>, one: &T, what: &str) -> Result<Vec<T>, IdentityError> {
    let at = list.iter().position(|other| other == one);
    let at = at.ok_or_else(|| IdentityError::Invalid(format!("the role does not have the {what} {one}")))?;
    list.remove(at);
    Ok(list)
}
