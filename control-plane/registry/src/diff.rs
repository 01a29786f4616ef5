//! Changes that a new version of a server brings to its callers.
//!
//! Owns the mechanical evaluation of breaking changes: a caller that worked before a change must work after it. Keeps
//! true: a change that cannot be proved compatible counts as breaking. A breaking change is allowed if the
//! primitive's major version rises with it (Semantic Versioning 2.0.0, rule 8).

mod schema;

use std::collections::HashSet;

use asp_proto::snapshot::{Kind, Listing, Mutation, Primitive};
use semver::Version;
use serde::Serialize;
use serde_json::Value;

use crate::compiled::CompiledServer;
use crate::version;
use schema::SchemaDirection;

/// One difference between two versions of a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// Id of the primitive, "" for the server itself.
    pub primitive: String,
    /// JSON pointer into the spec or `server.yaml`.
    pub path: String,
    pub message: String,
    /// Whether a caller of the old version may fail with the new one.
    pub breaking: bool,
    /// Whether the version rose as the change requires: its major part for a breaking change, any part for others.
    /// The version is the primitive's, or the server's if the change is to the server itself or the primitive is
    /// gone.
    pub versioned: bool,
}

impl Change {
    /// Whether callers of the old version may fail with the new one without a new major version.
    pub fn breaks_callers(&self) -> bool {
        self.breaking && !self.versioned
    }
}

/// Returns the changes from `old` to `new`, in the order of the old list, then additions.
pub fn compare(old: &CompiledServer, new: &CompiledServer) -> Vec<Change> {
    let mut changes = Vec::new();
    compare_server(old, new, &mut changes);
    for listing in &old.server.listings {
        let mut found =
            ChangeCollector { id: &listing.id, versions: (&listing.version, ""), changes: &mut changes };
        let successor = successor(listing, old, new);
        let (Some(successor), Some(before)) = (successor, primitive(old, listing)) else {
            // Only the server's version is left to compare.
            found.versions = (&old.server.version, &new.server.version);
            let message = match lists(new, &listing.id) {
                true => format!("version {} is gone", listing.version),
                false => "the primitive is gone".into(),
            };
            found.push("", message, true);
            continue;
        };
        found.versions.1 = &successor.version;
        compare_names(listing, successor, &mut found);
        if listing.pool != successor.pool {
            found.push("/pool", "its requests go to another gateway pool", false);
        }
        if let Some(after) = primitive(new, successor) {
            compare_primitive(before, after, &mut found);
        }
    }
    let successors = old.server.listings.iter().filter_map(|listing| successor(listing, old, new));
    let successors: HashSet<(&str, u64)> = successors.map(|it| (it.id.as_str(), major(it))).collect();
    for listing in &new.server.listings {
        if !successors.contains(&(listing.id.as_str(), major(listing))) {
            let mut found =
                ChangeCollector { id: &listing.id, versions: ("", &listing.version), changes: &mut changes };
            let message = match lists(old, &listing.id) {
                true => format!("version {} is new", listing.version),
                false => "the primitive is new".into(),
            };
            found.push("", message, false);
        }
    }
    changes
}

/// Returns the successor of `listing` in `new`: the same major version, else one that `old` does not list.
fn successor<'a>(listing: &Listing, old: &CompiledServer, new: &'a CompiledServer) -> Option<&'a Listing> {
    let same = new.server.listings.iter().find(|other| is_same(other, listing));
    same.or_else(|| {
        let was_there = |other: &Listing| old.server.listings.iter().any(|before| is_same(before, other));
        new.server.listings.iter().find(|other| other.id == listing.id && !was_there(other))
    })
}

fn is_same(one: &Listing, other: &Listing) -> bool {
    one.id == other.id && major(one) == major(other)
}

fn lists(server: &CompiledServer, id: &str) -> bool {
    server.server.listings.iter().any(|listing| listing.id == id)
}

/// Returns the major version, 0 if the version is invalid.
fn major(listing: &Listing) -> u64 {
    version::major(&listing.version)
}

/// Collects the changes of one primitive.
struct ChangeCollector<'a> {
    id: &'a str,
    versions: (&'a str, &'a str),
    changes: &'a mut Vec<Change>,
}

impl ChangeCollector<'_> {
    fn push(&mut self, path: &str, message: impl Into<String>, breaking: bool) {
        let versioned = match (Version::parse(self.versions.0), Version::parse(self.versions.1)) {
            (Ok(old), Ok(new)) if breaking => new.major > old.major,
            (Ok(old), Ok(new)) => new > old,
            // One of the versions is missing: the primitive is new.
            _ => !breaking,
        };
        self.changes.push(Change {
            primitive: self.id.to_string(),
            path: path.to_string(),
            message: message.into(),
            breaking,
            versioned,
        });
    }
}

fn primitive<'a>(server: &'a CompiledServer, listing: &Listing) -> Option<&'a Primitive> {
    server.primitives.iter().find(|item| item.id == listing.id && item.version == listing.version)
}

/// Compares the settings of the servers themselves.
fn compare_server(old: &CompiledServer, new: &CompiledServer, changes: &mut Vec<Change>) {
    let versions = (old.server.version.as_str(), new.server.version.as_str());
    let mut found = ChangeCollector { id: "", versions, changes };
    let before = &old.edge;
    let after = &new.edge;
    let lists = [
        ("/protocols", removed(&before.protocols, &after.protocols), "a protocol is no longer supported"),
        ("/auth/schemes", removed(&before.schemes, &after.schemes), "a scheme is no longer accepted"),
        ("/auth/issuers", removed(&before.issuers, &after.issuers), "an issuer is no longer accepted"),
        ("/auth/scopes", removed(&after.scopes, &before.scopes), "callers need another scope"),
    ];
    for (path, is_gone, message) in lists {
        if is_gone {
            found.push(path, message, true);
        }
    }
    if before.default_allow && !after.default_allow {
        found.push("/defaultExposure", "organisations without an exposure lose the server", true);
    }
    if !after.default_allow && removed(&old.offered_to, &new.offered_to) {
        found.push("/offeredTo", "an organisation is no longer offered the server", true);
    }
    if old.server.pool != new.server.pool {
        found.push("/pool", "its requests go to another gateway pool", false);
    }
    if before.sessions != after.sessions {
        found.push("/sessions", "sessions are handled differently", true);
    }
    if old.agent_card != new.agent_card {
        found.push("/card", "the agent card differs", false);
    }
    compare_readers(old, new, &mut found);
}

/// Compares the tools that read A2A messages.
fn compare_readers(old: &CompiledServer, new: &CompiledServer, found: &mut ChangeCollector<'_>) {
    let before = &old.server;
    let after = &new.server;
    let readers = [
        ("/a2a/router", &before.a2a_router, &after.a2a_router, "messages that name no skill are refused"),
        ("/a2a/filler", &before.a2a_filler, &after.a2a_filler, "no arguments are found in texts"),
    ];
    for (path, before, after, loss) in readers {
        match (before, after) {
            (Some(_), None) => found.push(path, loss, true),
            (before, after) if before != after => found.push(path, "another tool reads messages", false),
            _ => {}
        }
    }
}

fn removed<T: PartialEq>(before: &[T], after: &[T]) -> bool {
    before.iter().any(|item| !after.contains(item))
}

fn compare_names(old: &Listing, new: &Listing, found: &mut ChangeCollector<'_>) {
    let names = [
        ("/exposure/mcp", &old.mcp_name, &new.mcp_name),
        ("/exposure/a2a", &old.a2a_skill, &new.a2a_skill),
        ("/exposure/rest", &old.rest_name, &new.rest_name),
    ];
    for (path, before, after) in names {
        if before == after {
            continue;
        }
        let message = match (before.is_empty(), after.is_empty()) {
            (true, _) => format!("`{after}` is exposed"),
            (false, true) => format!("`{before}` is no longer exposed"),
            (false, false) => format!("`{before}` is now called `{after}`"),
        };
        found.push(path, message, !before.is_empty());
    }
}

fn compare_primitive(old: &Primitive, new: &Primitive, found: &mut ChangeCollector<'_>) {
    if old.kind != new.kind {
        found.push("/type", "the type differs", true);
        return;
    }
    let parts = [
        ("/primitiveSchema/input_schema", &old.input_schema, &new.input_schema, SchemaDirection::Input),
        ("/primitiveSchema/output_schema", &old.output_schema, &new.output_schema, SchemaDirection::Output),
    ];
    for (path, before, after, direction) in parts {
        let before = parsed(before);
        let after = parsed(after);
        for difference in schema::differences(&before, &after, direction) {
            found.push(&format!("{path}{}", difference.path), difference.message, difference.breaking);
        }
    }
    if old.mutation != new.mutation {
        // Clients and the ledger rely on a safe mutation; a more dangerous one breaks them.
        let breaking = danger(new.mutation()) > danger(old.mutation());
        found.push("/mutation", "the mutation differs", breaking);
    }
    if removed(&new.scopes, &old.scopes) {
        found.push("/security/auth/scopes", "callers need another scope", true);
    }
    let arguments = [
        (
            "/idempotency",
            &old.idempotency_argument,
            &new.idempotency_argument,
            "the idempotency key is another argument",
        ),
        (
            "/exposure/a2a/skill/textArgument",
            &old.a2a_text_argument,
            &new.a2a_text_argument,
            "the text of a message is another argument",
        ),
    ];
    for (path, before, after, message) in arguments {
        if before != after {
            found.push(path, message, !before.is_empty());
        }
    }
    if prompt_arguments(old) != prompt_arguments(new) {
        found.push("/primitiveSchema/arguments", "the prompt has different arguments", true);
    }
    compare_rest(old, new, found);
}

/// Compares properties that no caller depends on but that deserve a mention and a new version.
fn compare_rest(old: &Primitive, new: &Primitive, found: &mut ChangeCollector<'_>) {
    let parts = [
        ("/summary", old.summary != new.summary, "the description differs"),
        ("/name", old.title != new.title, "the title differs"),
        (
            "/exposure/mcp/resource/name",
            listed_name(old) != listed_name(new),
            "the resource has another name in lists",
        ),
        ("/deprecated", old.deprecation != new.deprecation, "the end of its support differs"),
        ("/runtime", old.runtime != new.runtime, "it runs differently"),
        ("/security/rateLimitMax", old.limit != new.limit, "the rate limit differs"),
        ("/security/riskClass", old.risk_class != new.risk_class, "the risk class differs"),
        ("/security/allowedDomains", old.allowed_domains != new.allowed_domains, "it reaches other hosts"),
        ("/security/allowedTcp", old.allowed_tcp != new.allowed_tcp, "it reaches other services by TCP"),
        (
            "/primitiveDependencies",
            (&old.elicitations, &old.delegations) != (&new.elicitations, &new.delegations),
            "its questions changed",
        ),
    ];
    for (path, differs, message) in parts {
        if differs {
            found.push(path, message, false);
        }
    }
}

/// Whether arguments that are valid under `old` may be invalid under `new`.
pub(crate) fn narrows_arguments(old: &Value, new: &Value) -> bool {
    schema::differences(old, new, SchemaDirection::Input).iter().any(|difference| difference.breaking)
}

/// Whether results that are valid under `new` may be invalid under `old`.
pub(crate) fn weakens_results(old: &Value, new: &Value) -> bool {
    schema::differences(old, new, SchemaDirection::Output).iter().any(|difference| difference.breaking)
}

fn danger(mutation: Mutation) -> u8 {
    match mutation {
        Mutation::ReadOnly => 0,
        Mutation::Idempotent => 1,
        Mutation::NonIdempotent => 2,
        Mutation::Destructive | Mutation::Unspecified => 3,
    }
}

/// Parses a schema; an absent one accepts everything.
fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or(Value::Bool(true))
}

/// Returns the name of a resource in lists; other kinds are listed under the name that their server exposes.
fn listed_name(primitive: &Primitive) -> Option<String> {
    let is_resource = matches!(primitive.kind(), Kind::Resource | Kind::ResourceTemplate);
    let definition = primitive.mcp.last().filter(|_| is_resource)?;
    parsed(&definition.json).get("name")?.as_str().map(str::to_owned)
}

/// Returns names and required flags of a prompt's arguments, from its newest definition.
fn prompt_arguments(primitive: &Primitive) -> Vec<(String, bool)> {
    let definition = primitive.mcp.last().map(|definition| parsed(&definition.json)).unwrap_or_default();
    let arguments = definition.get("arguments").and_then(Value::as_array).cloned().unwrap_or_default();
    arguments
        .iter()
        .map(|argument| {
            let name = argument.get("name").and_then(Value::as_str).unwrap_or_default().to_string();
            (name, argument.get("required").and_then(Value::as_bool).unwrap_or(false))
        })
        .collect()
}
