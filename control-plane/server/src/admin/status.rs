//! Status of the control plane: snapshot and subscribers, audit, schemas, keys, health.

use std::collections::BTreeMap;
use std::sync::Arc;

use asp_platform::process_metrics;
use asp_store::control::{AuditQuery, AuditRecord};
use asp_xds::contract::Kind;
use asp_xds::subscribers::Subscriber;
use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::{IntoParams, ToSchema};

use super::AdminState;
use super::auth::Admin;
use super::problem::{Code, Problem, Result};
use super::request::Query;
use crate::catalog::fault::{Fault, MAX_LISTED, Part};
use crate::events::feed::FeedView;
use crate::publisher::Handle;

const PAGE: u32 = 100;

/// A subscriber, and how far it is behind.
#[derive(Serialize, ToSchema)]
pub struct SubscriberStatus {
    #[serde(flatten)]
    subscriber: Subscriber,
    /// Difference between the revision it has in force and the published one, in either direction; 0 for endpoints.
    behind: u64,
    /// Whether it has a later revision in force than the published one, as after the restore of an older database. It
    /// accepts nothing until the published revision has passed its own.
    ahead: bool,
}

/// The published snapshot and its subscribers.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotStatus {
    /// Published revision; 0 before the first.
    revision: u64,
    /// Version of the gateway snapshot.
    version: String,
    /// Time of publication, in Unix milliseconds.
    published_at: u64,
    /// Newest revision of the store.
    store_revision: u64,
    /// Encoded size of the filter with its snapshot.
    edge_bytes: usize,
    /// Encoded size of all parts of the gateway snapshot.
    gateway_bytes: usize,
    /// Store revision that is published, or that did not change the snapshot.
    covers_revision: u64,
    /// Reason why the newest revision is not published.
    fault: Option<String>,
    /// Parts that are not published as stored, at most 100; everything else is published.
    faults: Vec<Fault>,
    /// Number of all such parts.
    faults_count: usize,
    subscribers: Vec<SubscriberStatus>,
    /// Gateways by Envoy cluster.
    endpoints: BTreeMap<String, Vec<String>>,
    /// The topic that this control plane reads revocations from.
    #[serde(skip_serializing_if = "Option::is_none")]
    kafka: Option<FeedView>,
}

/// Returns the published snapshot's status and its subscribers.
#[utoipa::path(get, path = "/api/snapshot", tag = "status", responses((status = 200, body = SnapshotStatus)))]
pub async fn snapshot(_admin: Admin, State(state): State<Arc<AdminState>>) -> Result<Json<SnapshotStatus>> {
    let store_revision = state.store.revision().await?;
    let xds_state = state.publisher.xds_state().borrow().clone();
    let standing = state.publisher.status().borrow().clone();
    let published = xds_state.snapshot.as_deref();
    let revision = published.map_or(0, |published| published.revision);
    let subscribers = state
        .subscribers
        .list()
        .into_iter()
        .map(|mut subscriber| {
            let (acked, version) = (subscriber.acked_revision, &subscriber.acked_version);
            subscriber.acked_revision = xds_state.covered(subscriber.kind, acked, version);
            SubscriberStatus {
                behind: match subscriber.kind {
                    kind if kind == Kind::Endpoints.as_str() => 0,
                    _ => revision.abs_diff(subscriber.acked_revision),
                },
                ahead: subscriber.acked_revision > revision,
                subscriber,
            }
        })
        .collect();
    let endpoints =
        xds_state.endpoints.clusters.iter().map(|(cluster, addresses)| {
            (cluster.clone(), addresses.iter().map(ToString::to_string).collect())
        });
    Ok(Json(SnapshotStatus {
        revision,
        version: published.map(|published| published.gateway.version.clone()).unwrap_or_default(),
        published_at: published.map_or(0, |published| published.published_at),
        store_revision,
        edge_bytes: published.map_or(0, |published| published.edge.bytes.len()),
        gateway_bytes: published.map_or(0, |published| published.gateway.parts.bytes()),
        covers_revision: standing.covers,
        fault: standing.fault,
        faults_count: standing.parts.len(),
        faults: standing.parts.into_iter().take(MAX_LISTED).collect(),
        subscribers,
        endpoints: endpoints.collect(),
        kafka: state.feed.as_ref().map(|feed| feed.view()),
    }))
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct AuditParams {
    /// Only changes of this org.
    org: Option<String>,
    /// Only changes of one kind: `binding`, `exposure`, `limit`, `offer`, `revocation`, `server`, `machine` or `issuer`.
    kind: Option<String>,
    /// Only revisions below this one, for the next page.
    before: Option<u64>,
    /// 1 to 1000 [default: 100]; other values are clamped.
    #[param(format = Int64)]
    limit: Option<u32>,
}

/// Returns how the names of resources of one kind start in the audit.
pub(super) fn resources(kind: &str) -> Result<&'static [&'static str]> {
    let found: &'static [&'static str] = match kind {
        "binding" => &["bindings/"],
        "exposure" => &["exposure/"],
        "limit" => &["limits/"],
        "offer" => &["offers/"],
        "revocation" => &["revocation/"],
        "server" => &["server/"],
        "machine" => &["machine_key/", "machine_certificate/", "machine_bound/"],
        "issuer" => &["issuer/"],
        _ => {
            let kinds = "binding, exposure, limit, offer, revocation, server, machine or issuer";
            return Err(Problem::params(format!("kind must be {kinds}")));
        }
    };
    Ok(found)
}

/// Lists changes, newest first; those that are `undoable` can be undone by `/api/audit/{revision}/undo`.
#[utoipa::path(get, path = "/api/audit", tag = "status", params(AuditParams),
    responses((status = 200, body = Vec<Object>)))]
pub async fn audit(
    admin: Admin,
    State(state): State<Arc<AdminState>>,
    Query(params): Query<AuditParams>,
) -> Result<Json<Vec<AuditRecord>>> {
    if let Some(org) = &params.org {
        admin.of_org(org)?;
    }
    if params.before.is_some_and(|before| i64::try_from(before).is_err()) {
        return Err(Problem::params("before: no revision is that high"));
    }
    let resources: &'static [&'static str] = match &params.kind {
        Some(kind) => resources(kind)?,
        None => &[],
    };
    let org = params.org.or_else(|| admin.role.org().map(str::to_owned));
    let limit = params.limit.unwrap_or(PAGE);
    let query = AuditQuery { org, resources, before: params.before, limit, ..AuditQuery::default() };
    Ok(Json(state.store.audit(&query).await?))
}

/// Returns the JSON Schemas of the file formats.
#[utoipa::path(get, path = "/api/schemas", tag = "registry", responses((status = 200, body = Object)))]
pub async fn schemas(_admin: Admin) -> Json<Value> {
    Json(json!({ "primitive": asp_registry::spec_schema(), "server": asp_registry::server_schema() }))
}

/// Returns the platform's own public keys. Public.
#[utoipa::path(get, path = "/.well-known/jwks.json", tag = "status", security(()), responses((status = 200, body = Object)))]
pub async fn jwks(State(state): State<Arc<AdminState>>) -> Json<Value> {
    Json(state.jwks.jwks().await)
}

/// Reports that the process is alive. Public.
pub async fn health() -> &'static str {
    "ok\n"
}

/// Reports whether changes are published. Public, so it names no orgs or users. A part that is not published as stored
/// does not take the control plane out of service, because its admins must be able to fix it.
pub async fn ready(State(state): State<Arc<AdminState>>) -> (StatusCode, String) {
    if state.publisher.xds_state().borrow().snapshot.is_none() {
        return (StatusCode::SERVICE_UNAVAILABLE, "no snapshot yet\n".to_owned());
    }
    let standing = state.publisher.status().borrow().clone();
    if standing.fault.is_some() {
        let text =
            "not ready: nothing newer than the last good snapshot is published; `asp status` shows why\n";
        return (StatusCode::SERVICE_UNAVAILABLE, text.to_owned());
    }
    if state.publisher.is_stuck() {
        let text = "not ready: the store has not been read for some time, so changes are not published; check the \
            database\n";
        return (StatusCode::SERVICE_UNAVAILABLE, text.to_owned());
    }
    let mut text = match standing.parts.len() {
        0 => "ready\n".to_owned(),
        count => format!("ready, with {count} standing faults; `asp status` lists them with remedies\n"),
    };
    // Not a reason to take it out of service: its admins must be able to revoke meanwhile.
    if state.feed.as_ref().is_some_and(|feed| !feed.is_connected()) {
        text.push_str("revocations of the Kafka topic cannot be read; `asp status` shows why\n");
    }
    (StatusCode::OK, text)
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct PartLabel {
    part: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct SubscriberLabel {
    subscriber: &'static str,
}

fn gauge(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// Registers metrics that tell whether stored changes are published.
fn register_standing(registry: &mut Registry, publisher: &Handle) {
    let standing = publisher.status().borrow().clone();
    let stuck: Gauge = Gauge::default();
    let age: Gauge = Gauge::default();
    let stale: Gauge = Gauge::default();
    let faults = Family::<PartLabel, Gauge>::default();
    registry.register(
        "asp_snapshot_publish_failing",
        "1 while nothing newer than the last good snapshot can be published",
        stuck.clone(),
    );
    registry.register(
        "asp_snapshot_standing_faults",
        "Parts of the stored state that are not published as stored",
        faults.clone(),
    );
    registry.register(
        "asp_snapshot_store_age_seconds",
        "Seconds since the last completed read of the store; later changes are not published",
        age.clone(),
    );
    registry.register(
        "asp_snapshot_stale",
        "1 while this control plane may be behind its store; subscribers then leave it for another one",
        stale.clone(),
    );
    stale.set(i64::from(publisher.freshness().is_stale()));
    stuck.set(i64::from(publisher.is_stuck()));
    age.set(gauge(publisher.silent_for().as_secs()));
    for part in Part::ALL {
        let count = standing.parts.iter().filter(|fault| fault.part == part).count();
        faults.get_or_create(&PartLabel { part: part.as_str() }).set(gauge(count as u64));
    }
}

/// Serves Prometheus metrics. Public; no label names an org, a user or a node.
pub async fn metrics(State(state): State<Arc<AdminState>>) -> Result<Response> {
    let mut registry = Registry::default();
    process_metrics::register(&mut registry);
    state.vault.register(&mut registry);
    let acked = Family::<SubscriberLabel, Gauge>::default();
    let streams = Family::<SubscriberLabel, Gauge>::default();
    let overdue = Family::<SubscriberLabel, Gauge>::default();
    let published: Gauge = Gauge::default();
    let refused: Gauge = Gauge::default();
    registry.register(
        "asp_snapshot_refused_parts",
        "Parts of the snapshot that are not in force at a gateway as sent, for all gateways together",
        refused.clone(),
    );
    registry.register(
        "asp_snapshot_revision",
        "Lowest acknowledged revision by kind of subscriber",
        acked.clone(),
    );
    registry.register("asp_snapshot_subscribers", "Open subscriptions by kind", streams.clone());
    registry.register(
        "asp_snapshot_overdue",
        "Subscriptions with a push unanswered for 10 s, by kind; they get no further pushes until it is answered",
        overdue.clone(),
    );
    registry.register("asp_snapshot_published_revision", "Published revision", published.clone());
    register_standing(&mut registry, &state.publisher);
    if let Some(feed) = &state.feed {
        feed.register(&mut registry);
    }
    let xds_state = state.publisher.xds_state().borrow().clone();
    published.set(gauge(xds_state.snapshot.as_ref().map_or(0, |published| published.revision)));
    let subscribers = state.subscribers.list();
    let counts = subscribers.iter().map(|subscriber| subscriber.refused_parts_count);
    refused.set(gauge(counts.fold(0, u64::saturating_add)));
    for kind in Kind::ALL {
        let label = SubscriberLabel { subscriber: kind.as_str() };
        let of_kind = subscribers.iter().filter(|subscriber| subscriber.kind == kind.as_str());
        streams.get_or_create(&label).set(gauge(of_kind.clone().count() as u64));
        let late = of_kind.clone().filter(|subscriber| subscriber.is_overdue()).count();
        overdue.get_or_create(&label).set(gauge(late as u64));
        if kind != Kind::Endpoints
            && let Some(lowest) =
                of_kind.map(|one| xds_state.covered(one.kind, one.acked_revision, &one.acked_version)).min()
        {
            acked.get_or_create(&label).set(gauge(lowest));
        }
    }
    let mut text = String::new();
    encode(&mut text, &registry).map_err(|_| Problem::new(Code::Internal, ""))?;
    let mut response = text.into_response();
    let kind = HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    Ok(response)
}
