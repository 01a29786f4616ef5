//! Notes for the operator of an upgrade: servers that this version rejects, and what becomes of machines.

use std::collections::BTreeSet;

use asp_control::catalog;
use asp_control::patterns;

use super::installation::{CallerSelector, Installation, Org, StoredLimit};
use super::report::{ReportLine, comment};
use super::settings::served_primitives;

/// Returns the stored servers whose files this version does not accept.
pub(super) fn refused_servers(installation: &Installation) -> Vec<ReportLine> {
    let refused =
        installation.servers.iter().filter_map(|server| Some((server, server.form.as_ref().err()?)));
    let item = |(server, faults): (&super::installation::StoredServer, &Vec<_>)| {
        let faults: Vec<String> = faults.iter().map(catalog::describe).collect();
        let text = format!(
            "{}: this version rejects its files, so no `for` below names its primitives; check again after you \
             apply it:\n{}",
            server.name,
            faults.join("\n")
        );
        ReportLine::plain(comment("", &text))
    };
    refused.map(item).collect()
}

/// Returns the plugins that may have sent the platform's token to services they list: such a token now has only one audience.
pub(super) fn plugin_tokens(installation: &Installation) -> Vec<String> {
    let plugins = served_primitives(installation).filter(|one| !one.primitive.allowed_domains.is_empty());
    let note = |one: crate::settings::suggestions::ServedPrimitive<'_>| {
        let domains = one.primitive.allowed_domains.join(", ");
        format!(
            "{}/{} reaches {domains}: if it shows the platform's token there, list that origin for it in ASP_TOKEN_AUDIENCES",
            one.server, one.primitive.id
        )
    };
    plugins.map(note).collect()
}

/// Returns notes on machine bounds, certificates without proof, and bindings that name a machine as a user.
pub(super) fn machines(installation: &Installation) -> Vec<String> {
    installation.orgs.iter().flat_map(of_org).collect()
}

fn of_org(org: &Org) -> Vec<String> {
    let mut notes: Vec<String> = bound(org).into_iter().collect();
    for certificate in &org.certificates {
        if let Some(fingerprint) = &certificate.fingerprint {
            notes.push(format!(
                "{}: the certificate {} of {} is registered by its fingerprint {fingerprint} without a proof of \
                 its key; it stays, but a registered URI takes precedence",
                org.name, certificate.id, certificate.machine
            ));
        }
    }
    let machines: BTreeSet<&str> = org.machines().map(|machine| machine.machine.as_str()).collect();
    let targets = org.bindings.iter().map(|binding| &binding.target);
    let users: BTreeSet<&str> = targets
        .filter(|target| target.kind == "user" && target.pattern != "*")
        .map(|target| target.pattern.as_str())
        .collect();
    for user in users {
        let named: Vec<&str> =
            machines.iter().copied().filter(|machine| patterns::matches(user, machine)).collect();
        if !named.is_empty() {
            notes.push(format!(
                "{}: bindings of the user {user} are for the machines {} too: the upgrade stores them for both kinds",
                org.name,
                named.join(", ")
            ));
        }
    }
    notes
}

/// Returns a note on the limits of each org that all callers share, which may have been meant for each user.
pub(super) fn shared_limits(installation: &Installation) -> Vec<String> {
    let note = |org: &Org| {
        let is_shared = |limit: &StoredLimit| {
            let CallerSelector { user, machine, wcit } = &limit.selector;
            [user, machine, wcit].iter().all(|name| *name == "*")
        };
        let numbered = (1..).zip(&org.limits).filter(|(_, limit)| is_shared(limit));
        let numbers: Vec<String> = numbered.map(|(number, _): (usize, _)| number.to_string()).collect();
        (!numbers.is_empty()).then(|| {
            format!(
                "{}: the rate limits {} stay limits of all callers together; one with `user: each` limits each user \
                 (docs/limits.md)",
                org.name,
                numbers.join(", ")
            )
        })
    };
    installation.orgs.iter().filter_map(note).collect()
}

/// Describes the bound in force, or the one that the upgrade creates from what the stored machines have.
fn bound(org: &Org) -> Option<String> {
    let had = || {
        let groups = org.machines().flat_map(|machine| machine.groups.iter().cloned()).collect();
        let scopes = org.machines().flat_map(|machine| machine.scopes.iter().cloned()).collect();
        super::installation::Bound { groups, scopes }
    };
    let is_kept = org.bound.is_some();
    let bound = org.bound.clone().unwrap_or_else(had);
    if bound.groups.is_empty() && bound.scopes.is_empty() {
        return None;
    }
    let words = |set: BTreeSet<String>| match set.is_empty() {
        true => "none".to_owned(),
        false => set.into_iter().collect::<Vec<_>>().join(" "),
    };
    let when = if is_kept {
        "its machines may have"
    } else {
        "after the upgrade its machines may have what they have today:"
    };
    Some(format!(
        "{}: {when} groups {}; scopes {}. To remove one: asp machines bound {} --withdraw-scope SCOPE",
        org.name,
        words(bound.groups),
        words(bound.scopes),
        asp_platform::shell::word(&org.name)
    ))
}
