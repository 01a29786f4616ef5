//! Commands that keep a revoked user or org out: a revocation ends tokens, and only policy denies the next one.

use std::collections::BTreeSet;

use asp_store::control::{BindingRecord, ControlStore, RevocationRecord, StoreError};

/// Most commands of one answer: an org has up to 10,000 bindings, and each may allow another primitive.
const MAX_COMMANDS: usize = 20;

/// Commands of `asp policy` that deny every call of the revoked user or org; none for a single token and for admins of
/// the platform, whom no policy names.
pub(super) async fn commands(
    store: &dyn ControlStore,
    record: &RevocationRecord,
) -> Result<Vec<String>, StoreError> {
    let (org, user) = match record.kind.as_str() {
        "user" if !record.org.is_empty() => (record.org.as_str(), Some(record.target.as_str())),
        "org" => (record.target.as_str(), None),
        _ => return Ok(Vec::new()),
    };
    let bindings = store.bindings(org).await?.value;
    Ok(denials(&bindings).into_iter().map(|primitive| command(org, user, primitive)).collect())
}

/// Patterns to deny: everything, and each pattern that a binding allows, because a binding that names a primitive more
/// exactly overrides the denial of `*` (ADR 10).
fn denials(bindings: &[BindingRecord]) -> Vec<&str> {
    let allows = bindings.iter().filter(|binding| binding.allowed && !binding.observed);
    let exact: BTreeSet<&str> = allows.map(|binding| binding.primitive.as_str()).collect();
    let others = exact.into_iter().filter(|primitive| *primitive != "*");
    std::iter::once("*").chain(others).take(MAX_COMMANDS).collect()
}

fn command(org: &str, user: Option<&str>, primitive: &str) -> String {
    let denial = format!("asp policy {} --deny {}", quoted(org), quoted(primitive));
    match user {
        Some(user) => format!("{denial} --user {}", quoted(user)),
        None => denial,
    }
}

/// One word of a POSIX shell.
fn quoted(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-/:@+,".contains(c);
    if !text.starts_with('-') && text.chars().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allow(primitive: &str) -> BindingRecord {
        BindingRecord { primitive: primitive.into(), allowed: true, ..BindingRecord::default() }
    }

    #[test]
    fn everything_is_denied_and_each_pattern_that_a_binding_allows() {
        let denied = BindingRecord { allowed: false, ..allow("x") };
        let observed = BindingRecord { observed: true, ..allow("y") };
        let bindings = [allow("cc.pay"), allow("cc.*"), allow("cc.pay"), allow("*"), denied, observed];
        assert_eq!(denials(&bindings), ["*", "cc.*", "cc.pay"]);
        assert_eq!(denials(&[]), ["*"]);
        let many: Vec<BindingRecord> = (0..100).map(|number| allow(&format!("p{number}"))).collect();
        assert_eq!(denials(&many).len(), MAX_COMMANDS);
    }

    #[test]
    fn a_command_is_safe_to_paste() {
        assert_eq!(command("acme", Some("bob"), "*"), "asp policy acme --deny '*' --user bob");
        assert_eq!(command("Acme Ltd", None, "cc.pay"), "asp policy 'Acme Ltd' --deny cc.pay");
        assert_eq!(quoted("o'neil; rm"), r"'o'\''neil; rm'");
    }
}
