//! Stored bindings that allow something to a name that several issuers of the org may assign, each to a different user.
//!
//! Keeps true: they stay in force; the check lists the issuers, and how to name the intended one.

use asp_control::{patterns, policy};
use asp_issuers::document::{Document, File};
use asp_platform::shell;
use serde_json::json;

use super::installation::{Binding, Installation};
use crate::commands::binding;

/// Returns a note for each such binding.
pub(super) fn notes(file: &File, installation: &Installation) -> Vec<String> {
    let mut notes = Vec::new();
    for org in &installation.orgs {
        let issuers = issuers_of(&org.name, file, installation);
        if issuers.len() < 2 {
            continue;
        }
        let open = org.bindings.iter().filter(|binding| is_open(binding));
        notes.extend(open.map(|binding| note(&org.name, binding, &issuers)));
    }
    notes
}

/// Whether a write of the binding would be rejected if several issuers speak for the org.
fn is_open(binding: &Binding) -> bool {
    let Binding { target, allowed, approval, observe, .. } = binding;
    let gives = *allowed && !approval && !observe;
    gives && policy::leaves_issuer_open(&target.kind, &target.pattern, &target.issuer)
}

/// Returns the client issuers that speak for an org: those of the file, and stored ones that share neither name nor `iss`
/// with one in the file.
fn issuers_of<'a>(org: &str, file: &'a File, installation: &'a Installation) -> Vec<&'a str> {
    let is_of_file =
        |stored: &Document| file.clients.iter().any(|own| own.name == stored.name || own.iss == stored.iss);
    let stored = installation.issuers.iter().filter(|stored| !is_of_file(stored));
    let speaking = file.clients.iter().chain(stored).filter(|issuer| {
        issuer.orgs.is_empty() || issuer.orgs.iter().any(|pattern| patterns::matches(pattern, org))
    });
    speaking.map(|issuer| issuer.name.as_str()).collect()
}

fn note(org: &str, open: &Binding, issuers: &[&str]) -> String {
    let stored = json!(open);
    let Binding { target, primitive, name, .. } = open;
    let mut words = vec![("allow", primitive.name.as_str()), (target.kind.as_str(), target.pattern.as_str())];
    let protocol = Some(primitive.protocol.as_str()).filter(|protocol| !matches!(*protocol, "" | "*"));
    words.extend(protocol.map(|protocol| ("protocol", protocol)));
    words.extend(Some(name.as_str()).filter(|name| !name.is_empty()).map(|name| ("name", name)));
    let options: String = words.iter().map(|(name, value)| shell::option(name, value)).collect();
    format!(
        "{}, of any of its issuers ({}): add a binding that names the issuer, `{} --issuer NAME` ('*' for all), \
         then remove this one, `{}`",
        binding::describe_binding(org, &stored),
        issuers.join(", "),
        shell::command("asp policy", org, &options),
        binding::removal(org, &stored)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_issuer_of_the_file_is_not_another_one_in_the_store() {
        let issuer = |name: &str, iss: &str| Document {
            name: name.into(),
            ..serde_json::from_value(json!({ "iss": iss, "orgs": ["acme"] })).unwrap()
        };
        let file = File { clients: vec![issuer("login", "https://a.example.com")], ..File::default() };
        let named = |name: &str, iss: &str| {
            let issuers = vec![issuer(name, iss)];
            let installation = Installation { issuers, ..Installation::default() };
            issuers_of("acme", &file, &installation).len()
        };
        assert_eq!(named("login", "https://b.example.com"), 1);
        assert_eq!(named("other", "https://a.example.com"), 1);
        assert_eq!(named("other", "https://b.example.com"), 2);
    }
}
