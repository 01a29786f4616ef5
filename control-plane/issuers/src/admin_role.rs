//! Roles of admins: the whole platform, one org, one server or the artifact store, each with write access or read-only.
//!
//! A role is text with `:` between its parts, so an org's id in it is percent-encoded where it has a `:` or a `%` (RFC
//! 3986 section 2.1): an admin of an org whose id ends with `:read` must not become the reader of another org.

use percent_encoding::percent_decode_str;

/// The role claim of an admin token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminRole {
    scope: Scope,
    read_only: bool,
}

/// Reach of a role.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    Platform,
    Org(String),
    /// The team of one server.
    Server(String),
    /// Uploader of package files for the whole platform.
    Installer,
    /// Reader of the audit of the whole platform, and the only one of arguments and results that are kept.
    Auditor,
}

/// Longest name of a server (`[a-z0-9-]{1,63}`).
const MAX_SERVER: usize = 63;

impl AdminRole {
    /// Parses `platform`, `org:<id>`, `server:<name>` or `installer`, each optionally followed by `:read`, or `auditor`, which
    /// only reads.
    pub fn parse(text: &str) -> Option<AdminRole> {
        let mut parts: Vec<&str> = text.split(':').collect();
        let read_only = parts.len() > 1 && parts.last() == Some(&"read");
        // In a role of two parts, `read` is the id of an org or the name of a server.
        let read_only = read_only && !matches!(parts.as_slice(), ["org" | "server", _]);
        if read_only {
            parts.pop();
        }
        if parts.as_slice() == ["auditor"] {
            return Some(AdminRole { scope: Scope::Auditor, read_only: true });
        }
        let scope = match parts.as_slice() {
            ["platform"] => Scope::Platform,
            ["org", id] => Scope::Org(decoded(id)?),
            ["server", name] => Scope::Server(server_name(name)?),
            ["installer"] => Scope::Installer,
            _ => return None,
        };
        Some(AdminRole { scope, read_only })
    }

    pub fn is_platform(&self) -> bool {
        self.scope == Scope::Platform
    }

    pub fn is_installer(&self) -> bool {
        self.scope == Scope::Installer
    }

    pub fn is_auditor(&self) -> bool {
        self.scope == Scope::Auditor
    }

    /// Returns the org of an org role; `None` for other roles.
    pub fn org(&self) -> Option<&str> {
        match &self.scope {
            Scope::Org(org) => Some(org),
            Scope::Platform | Scope::Server(_) | Scope::Installer | Scope::Auditor => None,
        }
    }

    /// Returns the server of a server role.
    pub fn server(&self) -> Option<&str> {
        match &self.scope {
            Scope::Server(name) => Some(name),
            Scope::Platform | Scope::Org(_) | Scope::Installer | Scope::Auditor => None,
        }
    }

    /// Reach of the role, whether or not it may write.
    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    /// Returns the role's reach as written in the audit.
    pub fn place(&self) -> String {
        match &self.scope {
            Scope::Platform => "platform".to_owned(),
            Scope::Org(org) => org.clone(),
            Scope::Server(name) => format!("server:{name}"),
            Scope::Installer => "installer".to_owned(),
            Scope::Auditor => "auditor".to_owned(),
        }
    }

    /// Rank for the choice among several roles: platform roles first, then roles that may write.
    pub(crate) fn rank(&self) -> (u8, bool) {
        let reach = match self.scope {
            Scope::Platform => 3,
            Scope::Org(_) => 2,
            Scope::Server(_) => 1,
            Scope::Installer | Scope::Auditor => 0,
        };
        (reach, !self.read_only)
    }

    /// Whether the role covers `org`.
    pub fn covers(&self, org: &str) -> bool {
        self.is_platform() || self.org() == Some(org)
    }

    pub fn may_write(&self) -> bool {
        !self.read_only
    }
}

/// Decodes an org's id in a role.
fn decoded(id: &str) -> Option<String> {
    let org = percent_decode_str(id).decode_utf8().ok()?;
    valid_org(&org).then(|| org.into_owned())
}

fn server_name(name: &str) -> Option<String> {
    let is_plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    ((1..=MAX_SERVER).contains(&name.len()) && name.bytes().all(is_plain)).then(|| name.to_owned())
}

/// Whether the text is an org's id, by the rule for names in tokens.
pub fn valid_org(id: &str) -> bool {
    asp_edge::names::is_name(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_is_the_platform_or_one_org_to_change_or_to_read() {
        let org = AdminRole::parse("org:acme").unwrap();
        assert!(org.covers("acme") && !org.covers("other") && org.may_write() && !org.is_platform());
        let reader = AdminRole::parse("platform:read").unwrap();
        assert!(reader.covers("other") && !reader.may_write() && reader.is_platform());
        let team = AdminRole::parse("server:billing").unwrap();
        assert_eq!((team.server(), team.org(), team.may_write()), (Some("billing"), None, true));
        assert!(!team.is_platform() && !team.covers("billing") && !team.covers("acme"));
        assert!(!AdminRole::parse("server:billing:read").unwrap().may_write());
        assert_eq!(AdminRole::parse("server:read").unwrap().server(), Some("read"));
        assert_eq!(AdminRole::parse("org:read").unwrap().org(), Some("read"));
        let installer = AdminRole::parse("installer").unwrap();
        assert!(installer.is_installer() && !installer.is_platform() && !installer.covers("acme"));
        let auditor = AdminRole::parse("auditor").unwrap();
        assert!(auditor.is_auditor() && !auditor.may_write() && !auditor.is_platform());
        assert!(!auditor.covers("acme") && auditor.org().is_none() && auditor.server().is_none());
        for text in [
            "auditor:acme",
            "",
            "root",
            "read",
            "org",
            "org:",
            "org:a:b",
            "org:*",
            "org:%2A",
            "org:a:write",
            "platform:read:x",
            "platform:read:read",
            "server",
            "server:",
            "server:A",
            "server:*",
            "server:a:b",
            "installer:x",
        ] {
            assert_eq!(AdminRole::parse(text), None, "{text}");
        }
    }

    #[test]
    fn an_org_with_separators_is_named_in_a_role_and_confused_with_no_other() {
        let own = |text: &str| AdminRole::parse(text).unwrap().org().unwrap().to_owned();
        assert_eq!(own("org:urn%3Aacme"), "urn:acme");
        assert_eq!(own("org:Acme Holding/EMEA"), "Acme Holding/EMEA");
        assert_eq!(own("org:50%25:read"), "50%");
        let read = AdminRole::parse("org:a%3Aread").unwrap();
        assert!(read.covers("a:read") && !read.covers("a") && read.may_write());
    }
}
