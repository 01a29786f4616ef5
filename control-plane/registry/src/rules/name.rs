//! Ids, versions, exposed names and scopes.

use super::text::first_deceptive;
use crate::fault::FaultCode;
use crate::findings::Findings;
use crate::spec::Spec;

/// Whether a text is a name: 1 to 128 of `[A-Za-z0-9_.-]` (MCP 2025-11-25, section "Tool Names"). Ids obey the same
/// rule, since an id is the default name.
pub(super) fn is_name(text: &str) -> bool {
    (1..=128).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-'))
}

/// Maximum length of a resource's name in lists, in characters.
const MAX_RESOURCE_NAME: usize = 256;

/// Whether lists can show a resource under this name. Clients refer to it by its URI, so any visible text will do.
pub fn is_resource_name(text: &str) -> bool {
    !text.trim().is_empty()
        && text.chars().count() <= MAX_RESOURCE_NAME
        && !text.chars().any(char::is_control)
        && first_deceptive(text).is_none()
}

/// Whether a text is a scope: visible ASCII without `"` and `\` (RFC 6749 section 3.3).
pub(super) fn is_scope(text: &str) -> bool {
    (1..=128).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'"' && byte != b'\\')
}

/// Whether a text is a skill id. A2A does not restrict them; visible ASCII keeps them comparable.
pub(super) fn is_skill_id(text: &str) -> bool {
    (1..=256).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}

pub(super) fn check(spec: &Spec, findings: &mut Findings<'_>) {
    const NAME_HINT: &str = "use 1 to 128 of the characters A-Z a-z 0-9 _ . -";
    if !is_name(&spec.id) {
        findings.add(
            FaultCode::BadId,
            "/id",
            format!("`{}` is not a primitive id", escape(&spec.id)),
            NAME_HINT,
        );
    }
    check_version(&spec.version, findings);
    let mcp = &spec.exposure.mcp;
    let rest = &spec.exposure.rest;
    for (path, exposed) in [
        ("/exposure/mcp/tool/name", &mcp.tool),
        ("/exposure/mcp/prompt/name", &mcp.prompt),
        ("/exposure/rest/operation/name", &rest.operation),
    ] {
        let Some(name) = exposed.as_ref().and_then(|exposed| exposed.name.as_deref()) else { continue };
        if !is_name(name) {
            let message = format!("`{}` is not an exposed name", escape(name));
            findings.add(FaultCode::BadExposedName, path, message, NAME_HINT);
        }
    }
    if let Some(name) = mcp.resource.as_ref().and_then(|exposed| exposed.name.as_deref())
        && !is_resource_name(name)
    {
        let message = format!("`{}` is not a resource name", escape(name));
        let hint = format!("use 1 to {MAX_RESOURCE_NAME} visible characters");
        findings.add(FaultCode::BadExposedName, "/exposure/mcp/resource/name", message, hint);
    }
    if let Some(id) = spec.exposure.a2a.skill.as_ref().and_then(|skill| skill.id.as_deref())
        && !is_skill_id(id)
    {
        let message = format!("`{}` is not a skill id", escape(id));
        let hint = "use 1 to 256 visible ASCII characters";
        findings.add(FaultCode::BadExposedName, "/exposure/a2a/skill/id", message, hint);
    }
    for (index, argument) in spec.schema.arguments.iter().flatten().enumerate() {
        if !is_name(&argument.name) {
            let path = format!("/primitiveSchema/arguments/{index}/name");
            let message = format!("`{}` is not an argument name", escape(&argument.name));
            findings.add(FaultCode::BadExposedName, &path, message, NAME_HINT);
        }
    }
    if let Some(auth) = &spec.security.auth {
        check_scopes(&auth.scopes, "/security/auth/scopes", findings);
    }
}

pub(super) fn check_version(version: &str, findings: &mut Findings<'_>) {
    if let Err(error) = semver::Version::parse(version) {
        let message = format!("`{}` is not a semantic version: {error}", escape(version));
        findings.add(FaultCode::BadVersion, "/version", message, "write MAJOR.MINOR.PATCH, e.g. 1.0.0");
    }
}

pub(super) fn check_scopes(scopes: &[String], path: &str, findings: &mut Findings<'_>) {
    for (index, scope) in scopes.iter().enumerate() {
        if !is_scope(scope) {
            let message = format!("`{}` is not a scope", escape(scope));
            let hint = "use visible ASCII without spaces, quotes and backslashes";
            findings.add(FaultCode::BadScope, &format!("{path}/{index}"), message, hint);
        }
    }
}

/// Shortens and escapes a value, which may be hostile.
pub(super) fn escape(text: &str) -> String {
    text.chars().take(60).collect::<String>().escape_debug().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resource_may_have_any_name_that_people_can_read() {
        for name in ["features.md", "Dynamic Text Resource", "\u{67e5}\u{8be2}", &"x".repeat(256)] {
            assert!(is_resource_name(name), "{name}");
        }
        for name in ["", " ", "a\nb", "a\u{202e}b", &"x".repeat(257)] {
            assert!(!is_resource_name(name), "{}", name.escape_debug());
        }
    }
}
