//! Issuers completed with what this version requires: the primitives that get exchanged tokens, and the audiences that
//! servers accept in addition to their own URLs.

use std::collections::BTreeSet;

use asp_command::environment::Environment;
use asp_control::catalog;
use asp_issuers::document::{Document, ExchangeAudience, File, ListedAudience};
use asp_platform::shell;
use asp_proto::snapshot::service_auth::Kind;
use serde_json::json;

use super::installation::Installation;
use super::report::{ReportLine, comment};
use crate::settings::{ENV_ISSUERS, ENV_PUBLIC_URL};

/// Returns a command for each stored issuer that must be stored again, and for each issuer in the file what to write there.
pub(super) fn lines(
    environment: &dyn Environment,
    file: &File,
    installation: &Installation,
) -> Vec<ReportLine> {
    let public_url = environment.get(ENV_PUBLIC_URL);
    let mut items = Vec::new();
    let stored = installation.issuers.iter().map(|document| (document, None));
    let path = environment.get(ENV_ISSUERS).unwrap_or_default();
    let of_file = file.clients.iter().map(|document| (document, Some(path.as_str())));
    for (document, path) in stored.chain(of_file) {
        let Some((completed, marks)) = complete_document(document, installation, public_url.as_deref())
        else {
            continue;
        };
        let name = document.name.as_str();
        let text = json!(Document {
            name: if path.is_some() { name.to_owned() } else { String::new() },
            ..completed
        });
        let line = match path {
            Some(path) => comment("", &format!("in {path}, the client issuer {name}:\n{text}")),
            None => format!(
                "curl -X PUT -H \"authorization: Bearer $ASP_ADMIN_TOKEN\" -H 'content-type: application/json' \
                 \"$ASP_ADMIN_URL/api/issuers/clients/{name}\" -d {}    # after the upgrade",
                shell::word(&text.to_string())
            ),
        };
        items.push(ReportLine { line, marks });
    }
    if public_url.is_none() && installation.compiled().any(|server| !server.edge.audiences.is_empty()) {
        let text = format!(
            "servers name audiences; name the installation's {ENV_PUBLIC_URL} in --settings to have them checked"
        );
        items.push(ReportLine::plain(comment("", &text)));
    }
    items
}

/// Returns the document completed; `None` if nothing is missing.
fn complete_document(
    document: &Document,
    installation: &Installation,
    public_url: Option<&str>,
) -> Option<(Document, Vec<String>)> {
    let mut completed = document.clone();
    let mut marks = Vec::new();
    let mut changed = false;
    let exchange = completed.exchange.iter_mut().flat_map(|exchange| exchange.audiences.iter_mut());
    for (audience, entry) in exchange.filter(|(_, entry)| entry.primitives().is_none()) {
        let patterns = exchangers(installation, &document.name, audience);
        let servers: BTreeSet<&str> = patterns.iter().filter_map(|one| one.split('/').next()).collect();
        if servers.len() > 1 {
            let all = servers.into_iter().collect::<Vec<_>>().join(", ");
            marks.push(format!("the servers {all} get tokens for {audience} in their callers' names"));
        }
        let origins = entry.origins().to_vec();
        *entry = ExchangeAudience::Listed(ListedAudience { origins, primitives: Some(patterns) });
        changed = true;
    }
    for (server, public_url) in installation.compiled().filter_map(|server| Some((server, public_url?))) {
        let name = &server.server.name;
        for audience in catalog::foreign_audiences(server, public_url) {
            if server.edge.issuers.contains(&document.name) && !completed.allows_audience(name, audience) {
                completed.server_audiences.entry(name.clone()).or_default().push(audience.to_owned());
                marks.push(format!(
                    "{name} itself declares that it accepts tokens for {audience}: check that this is its own \
                     service. Any other service that receives such tokens can act as their users there"
                ));
                changed = true;
            }
        }
    }
    changed.then_some((completed, marks))
}

/// Returns the primitives that exchange their callers' tokens from an issuer for a token with this audience.
fn exchangers(installation: &Installation, issuer: &str, audience: &str) -> Vec<String> {
    let servers =
        installation.compiled().filter(|server| server.edge.issuers.iter().any(|name| name == issuer));
    let mut patterns = BTreeSet::new();
    for server in servers {
        for primitive in &server.primitives {
            let kind = primitive.service_auth.as_ref().and_then(|auth| auth.kind.as_ref());
            if matches!(kind, Some(Kind::Exchange(exchange)) if exchange.audience == audience) {
                patterns.insert(format!("{}/{}", server.server.name, primitive.id));
            }
        }
    }
    patterns.into_iter().collect()
}
