//! Lists the primitives of an org: all primitives of the servers offered to it, their exposure, and the bindings about
//! them.
//!
//! Keeps true: the work grows with the number of primitives plus the number of bindings, not with their product.

use std::collections::HashMap;
use std::sync::Arc;

use asp_proto::snapshot::{Kind, Listing, Primitive, Protocol};
use asp_registry::CompiledServer;
use asp_snapshot::policy::patterns::Patterns;
use asp_store::control::{BindingRecord, ExposureRecord};
use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};

use super::AdminState;
use super::auth::Admin;
use super::policy::{Binding, binding_body};
use super::problem::{Problem, Result};
use super::request::Path;
use crate::catalog::offers::OfferTable;

/// Maximum number of bindings shown with one primitive: an org has up to 10,000, and each may concern all of its
/// primitives.
const MOST_BINDINGS: usize = 20;

/// Lists every primitive of every server that is offered to the org, its exposure, and the bindings about it.
#[utoipa::path(get, path = "/api/registry/orgs/{org}/primitives", tag = "registry",
    params(("org" = String, Path)), responses((status = 200, body = Vec<Object>), (status = 404, body = Problem)))]
pub async fn org_primitives(
    admin: Admin,
    State(state): State<Arc<AdminState>>,
    Path(org): Path<String>,
) -> Result<Json<Value>> {
    let permit = state.queues.to_read(&admin).await?;
    let stored = state.servers.read(&state.store).await?.value;
    let offers = state.store.offers_to(&org).await?;
    let exposure = state.store.exposure(&org).await?.value;
    let bindings = state.store.bindings(&org).await?.value;
    let compiler = state.compiler.clone();
    let permit = permit.with_thread().await?;
    permit
        .work(move || {
            let servers = compiler.compile_all(&stored);
            let offered = OfferTable::of(&servers, &offers);
            let policy = OrgView::of(&exposure, &bindings);
            let servers = servers.iter().filter(|server| offered.includes(&server.server.name, &org));
            Json(servers.flat_map(|server| policy.listed(server)).collect())
        })
        .await
}

/// An org's records, indexed for lookup by server and primitive.
struct OrgView<'a> {
    /// Exposure by server and protocol.
    exposure: HashMap<(&'a str, &'a str), bool>,
    bindings: Vec<&'a BindingRecord>,
    /// Indexes into `bindings` by the pattern of their primitive.
    by_primitive: Patterns<Vec<usize>>,
}

impl<'a> OrgView<'a> {
    fn of(exposure: &'a [ExposureRecord], bindings: &'a [BindingRecord]) -> OrgView<'a> {
        let exposure = exposure.iter();
        let exposure =
            exposure.map(|record| ((record.server.as_str(), record.protocol.as_str()), record.enabled));
        let bindings: Vec<_> = bindings.iter().collect();
        let mut by_primitive = Patterns::default();
        for (place, binding) in bindings.iter().enumerate() {
            by_primitive.entry(&binding.primitive, Vec::new).push(place);
        }
        OrgView { exposure: exposure.collect(), bindings, by_primitive }
    }

    fn listed(&self, server: &CompiledServer) -> Vec<Value> {
        let primitives: HashMap<&str, &Primitive> =
            server.primitives.iter().rev().map(|primitive| (primitive.id.as_str(), primitive)).collect();
        let listings = server.server.listings.iter();
        let known = listings.filter_map(|listing| Some((listing, *primitives.get(listing.id.as_str())?)));
        known.map(|(listing, primitive)| self.entry(server, listing, primitive)).collect()
    }

    fn entry(&self, server: &CompiledServer, listing: &Listing, primitive: &Primitive) -> Value {
        let on = |protocol: &str, wanted: Protocol, name: &str| {
            (!name.is_empty() && self.exposed(server, protocol, wanted)).then(|| name.to_owned())
        };
        let (policy, more) = self.concerned(&primitive.id);
        json!({
            "name": primitive.id,
            "version": primitive.version,
            "kind": kind_name(primitive.kind()),
            "title": primitive.title,
            "server": server.server.name,
            "exposure": {
                "mcp": on("mcp", Protocol::Mcp, &listing.mcp_name),
                "a2a": on("a2a", Protocol::A2a, &listing.a2a_skill),
                "rest": on("rest", Protocol::Rest, &listing.rest_name),
            },
            "policy": policy,
            // The others are in the list of the org's bindings.
            "policyMore": more,
        })
    }

    /// Returns the first bindings that name a primitive, in the order of the org's list, and the number of further
    /// ones.
    fn concerned(&self, primitive: &str) -> (Vec<Binding>, usize) {
        let places = || self.by_primitive.naming(primitive);
        let all: usize = places().map(Vec::len).sum();
        // Each list is sorted, so the first of all are among the first of each.
        let mut first: Vec<usize> =
            places().flat_map(|list| list.iter().take(MOST_BINDINGS)).copied().collect();
        first.sort_unstable();
        let shown = first.iter().take(MOST_BINDINGS).filter_map(|place| self.bindings.get(*place));
        (shown.map(|record| binding_body(record)).collect(), all.saturating_sub(MOST_BINDINGS))
    }

    fn exposed(&self, server: &CompiledServer, protocol: &str, wanted: Protocol) -> bool {
        let exception = self.exposure.get(&(server.server.name.as_str(), protocol));
        server.edge.protocols().any(|spoken| spoken == wanted)
            && exception.copied().unwrap_or(server.edge.default_allow)
    }
}

const fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Unspecified => "unknown",
        Kind::Tool => "tool",
        Kind::Task => "task",
        Kind::Resource => "resource",
        Kind::ResourceTemplate => "resource_template",
        Kind::Prompt => "prompt",
        Kind::Elicitation => "elicitation",
        Kind::Delegate => "delegate",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_bindings_that_name_a_primitive_are_shown_in_their_order_and_the_others_counted() {
        let binding = |number: usize, primitive: &str| BindingRecord {
            org: "acme".into(),
            target_type: "user".into(),
            target: number.to_string(),
            primitive: primitive.into(),
            protocol: "*".into(),
            allowed: true,
            ..BindingRecord::default()
        };
        let patterns = ["*", "cc.*", "cc.search", "other", "cc.find", "d*"];
        let bindings: Vec<BindingRecord> =
            (0..120).map(|number| binding(number, patterns[number * 7 % patterns.len()])).collect();
        let view = OrgView::of(&[], &bindings);
        for name in ["cc.search", "cc.x", "other", "d", "none"] {
            let matching = bindings.iter().filter(|record| crate::patterns::matches(&record.primitive, name));
            let expected: Vec<&str> =
                matching.clone().take(20).map(|record| record.target.as_str()).collect();
            let (shown, more) = view.concerned(name);
            let shown: Vec<&str> =
                shown.iter().map(|binding| binding.target.id_or_pattern.as_str()).collect();
            assert_eq!(shown, expected, "{name}");
            assert_eq!(more, matching.count() - expected.len(), "{name}");
        }
    }
}
