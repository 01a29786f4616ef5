//! What an admin may do: everything, or one org; change, or only read.
//!
//! The role is text with `:` between its parts, so an org's id in it is percent-encoded where it has a `:` or a `%`
//! (RFC 3986 section 2.1): whose org ends with `:read` must not become the reader of another one.

use percent_encoding::percent_decode_str;

/// The role claim of an admin token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Role {
    scope: Scope,
    read_only: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Scope {
    Platform,
    Org(String),
}

impl Role {
    /// `platform`, `platform:read`, `org:<id>` or `org:<id>:read`.
    pub fn parse(text: &str) -> Option<Role> {
        match text.split(':').collect::<Vec<_>>().as_slice() {
            ["platform"] => Some(Role { scope: Scope::Platform, read_only: false }),
            ["platform", "read"] => Some(Role { scope: Scope::Platform, read_only: true }),
            ["org", id] => Some(Role { scope: Scope::Org(decoded(id)?), read_only: false }),
            ["org", id, "read"] => Some(Role { scope: Scope::Org(decoded(id)?), read_only: true }),
            _ => None,
        }
    }

    pub fn is_platform(&self) -> bool {
        self.scope == Scope::Platform
    }

    /// The one org this role is about; `None` for all of them.
    pub fn org(&self) -> Option<&str> {
        match &self.scope {
            Scope::Platform => None,
            Scope::Org(org) => Some(org),
        }
    }

    /// Whether the role reaches into `org`.
    pub fn covers(&self, org: &str) -> bool {
        self.org().is_none_or(|own| own == org)
    }

    pub fn may_write(&self) -> bool {
        !self.read_only
    }
}

/// An org's id out of a role.
fn decoded(id: &str) -> Option<String> {
    let org = percent_decode_str(id).decode_utf8().ok()?;
    valid_org(&org).then(|| org.into_owned())
}

/// An org's id: whatever a token may carry.
pub fn valid_org(id: &str) -> bool {
    asp_edge::names::is_name(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_is_the_platform_or_one_org_to_change_or_to_read() {
        let org = Role::parse("org:acme").unwrap();
        assert!(org.covers("acme") && !org.covers("other") && org.may_write() && !org.is_platform());
        let reader = Role::parse("platform:read").unwrap();
        assert!(reader.covers("other") && !reader.may_write() && reader.is_platform());
        for text in
            ["", "root", "org", "org:", "org:a:b", "org:*", "org:%2A", "org:a:write", "platform:read:x"]
        {
            assert_eq!(Role::parse(text), None, "{text}");
        }
    }

    #[test]
    fn an_org_with_separators_is_named_in_a_role_and_confused_with_no_other() {
        let own = |text: &str| Role::parse(text).unwrap().org().unwrap().to_owned();
        assert_eq!(own("org:urn%3Aacme"), "urn:acme");
        assert_eq!(own("org:Acme Holding/EMEA"), "Acme Holding/EMEA");
        assert_eq!(own("org:50%25:read"), "50%");
        let read = Role::parse("org:a%3Aread").unwrap();
        assert!(read.covers("a:read") && !read.covers("a") && read.may_write());
    }
}
