//! What an admin may do: everything, or one org; change, or only read.

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
            ["org", id] if valid_org(id) => {
                Some(Role { scope: Scope::Org((*id).to_owned()), read_only: false })
            }
            ["org", id, "read"] if valid_org(id) => {
                Some(Role { scope: Scope::Org((*id).to_owned()), read_only: true })
            }
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

/// An org id: 1 to 128 visible ASCII characters without `/`, `:` and `*`.
pub fn valid_org(id: &str) -> bool {
    (1..=128).contains(&id.len()) && id.chars().all(|c| c.is_ascii_graphic() && !matches!(c, '/' | ':' | '*'))
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
        for text in ["", "root", "org", "org:", "org:a/b", "org:*", "org:a:write", "platform:read:x"] {
            assert_eq!(Role::parse(text), None, "{text}");
        }
    }
}
