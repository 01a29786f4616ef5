//! Routes, regions and homes: access, refusals and publication.

use asp_store::control::{Change, HomeRecord, Placement};
use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::{Api, DEMO, sample};
use crate::catalog::budget;
use crate::placement::regions;

const ROUTES: &str = "/api/routes";
const REGIONS: &str = "/api/regions";
const ACME: &str = "/api/regions/orgs/acme";

fn routes(snapshot: &asp_proto::snapshot::GatewaySnapshot) -> Vec<String> {
    let routes = snapshot.edge.iter().flat_map(|edge| &edge.routes);
    routes
        .map(|route| format!("{} {} {} {}", route.server, route.method, route.primitive, route.cluster))
        .collect()
}

#[tokio::test]
async fn only_the_platform_sees_and_changes_where_requests_go() {
    let api = Api::start().await;
    let bodies = [
        (ROUTES, json!([{ "pool": "heavy" }])),
        (REGIONS, json!([{ "name": "eu", "here": true }])),
        (ACME, json!({ "region": "eu" })),
    ];
    for (path, body) in bodies {
        for role in ["org:acme", "org:acme:read"] {
            assert_eq!(
                api.put(role, path, body.clone()).await.status,
                StatusCode::FORBIDDEN,
                "{role} {path}"
            );
            assert_eq!(api.get(role, path).await.status, StatusCode::FORBIDDEN, "{role} {path}");
        }
        let read = api.put("platform:read", path, body.clone()).await;
        assert_eq!(read.status, StatusCode::FORBIDDEN, "{path}");
        assert_eq!(api.put("platform", path, body).await.status, StatusCode::OK, "{path}");
        assert_eq!(api.get("platform:read", path).await.status, StatusCode::OK, "{path}");
        let gone = api.send("platform:read", Method::DELETE, path, None, &[]).await;
        assert_eq!(gone.status, StatusCode::FORBIDDEN, "{path}");
    }
    assert_eq!(api.get("org:acme", "/api/pools").await.status, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn routes_are_published_by_the_names_that_edges_read_and_go_with_the_list() {
    let mut api = Api::start().await;
    api.put("platform", DEMO, sample("demo")).await;
    let list = json!([
        { "method": "tools/call", "primitive": "ec*", "pool": "heavy" },
        { "server": "demo", "pool": "rest" },
    ]);
    let put = api.put("platform", ROUTES, list).await;
    assert_eq!(put.status, StatusCode::OK, "{}", put.body);
    assert_eq!(put.body[0]["server"], "*", "what is left out is anything");
    api.published(|snapshot| routes(snapshot) == ["demo tools/call echo heavy", "demo * * rest"]).await;
    let pools = api.get("platform", "/api/pools").await;
    assert_eq!(
        pools.body,
        json!([{ "pool": "heavy", "gateways": 0, "routes": 1 }, { "pool": "rest", "gateways": 0, "routes": 1 }])
    );
    let etag = put.etag.unwrap();
    let stale = [("if-match", "\"1\"")];
    let refused = api.send("platform", Method::PUT, ROUTES, Some(json!([])), &stale).await;
    assert_eq!(refused.status, StatusCode::PRECONDITION_FAILED, "{}", refused.body);
    let gone = api.send("platform", Method::DELETE, ROUTES, None, &[("if-match", &etag)]).await;
    assert_eq!((gone.status, &gone.body["changed"]), (StatusCode::OK, &json!(true)));
    api.published(|snapshot| routes(snapshot).is_empty()).await;
    let audit = api.get("platform", "/api/audit?limit=1").await;
    assert_eq!(audit.body[0]["action"], "routes.delete", "{}", audit.body);
}

#[tokio::test]
async fn what_a_server_says_of_pools_is_published_with_it() {
    let mut api = Api::start().await;
    let mut files = sample("demo");
    for file in files["files"].as_array_mut().unwrap() {
        if file["path"] == "demo/server.yaml" {
            let text =
                file["text"].as_str().unwrap().replace("ref: demo/echo", "ref: demo/echo, pool: risky");
            let text = text.replace("  - ref: demo/echo, pool: risky", "  - {ref: demo/echo, pool: risky}");
            file["text"] = json!(format!("{text}\npool: demo-pool\n"));
        }
    }
    let put = api.put("platform", DEMO, files).await;
    assert_eq!(put.status, StatusCode::OK, "{}", put.body);
    api.published(|snapshot| routes(snapshot) == ["demo * echo risky", "demo * * demo-pool"]).await;
}

#[tokio::test]
async fn a_list_with_faults_changes_nothing_and_names_all_of_them() {
    let api = Api::start().await;
    let faulty: [(&str, Value, &str); 7] = [
        (ROUTES, json!([{ "pool": "Heavy" }, { "pool": "a", "primitive": "x*y" }]), "route 1: primitive"),
        (ROUTES, json!([{ "pool": "a" }, { "pool": "b" }]), "route 1: another one"),
        (ROUTES, json!([{ "pool": "a", "cluster": "b" }]), "cluster"),
        (REGIONS, json!([{ "name": "eu", "here": true, "cluster": "c" }]), "either"),
        (REGIONS, json!([{ "name": "eu" }]), "either"),
        (REGIONS, json!([{ "name": "eu", "here": true }, { "name": "us", "here": true }]), "region 1"),
        ("/api/regions/orgs/a*b", json!({ "region": "eu" }), "org"),
    ];
    for (path, body, named) in faulty {
        let answer = api.put("platform", path, body).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{}", answer.body);
        assert!(answer.body["detail"].as_str().unwrap().contains(named), "{}", answer.body);
    }
    let many: Value = (0..257).map(|n| json!({ "primitive": format!("p{n}"), "pool": "a" })).collect();
    let full = api.put("platform", ROUTES, many).await;
    assert_eq!((full.status, &full.body["code"]), (StatusCode::CONFLICT, &json!("limit_reached")));
    let stored = api.store.load().await.unwrap().placement;
    assert_eq!(stored, asp_store::control::Placement::default());
}

#[tokio::test]
async fn homes_lead_to_regions_and_one_that_names_an_unknown_region_leads_nowhere() {
    let mut api = Api::start().await;
    let regions = json!([{ "name": "eu", "here": true }, { "name": "us", "cluster": "region-us" }]);
    let put = api.put("platform", REGIONS, regions.clone()).await;
    assert_eq!((put.status, put.body), (StatusCode::OK, regions));
    for (org, region) in [("acme", "us"), ("beta-*", "mars"), ("%2A", "eu")] {
        let path = format!("/api/regions/orgs/{org}");
        let put = api.put("platform", &path, json!({ "region": region })).await;
        assert_eq!(put.status, StatusCode::OK, "{}", put.body);
    }
    let told = |snapshot: &asp_proto::snapshot::GatewaySnapshot| -> Vec<String> {
        let told = snapshot.regions.iter();
        told.map(|told| format!("{} {} {:?} {}", told.org, told.region, told.cluster, told.here)).collect()
    };
    let expected = ["* eu \"\" true", "acme us \"region-us\" false", "beta-* mars \"\" false"];
    api.published(|snapshot| {
        told(snapshot) == expected && snapshot.edge.as_ref().unwrap().regions == snapshot.regions
    })
    .await;
    let home = api.get("platform", ACME).await;
    assert_eq!(home.body, json!({ "region": "us" }));
    let stale = [("if-match", "\"1\"")];
    let refused = api.send("platform", Method::DELETE, ACME, None, &stale).await;
    assert_eq!(refused.status, StatusCode::PRECONDITION_FAILED);
    let gone = api.send("platform", Method::DELETE, ACME, None, &[("if-match", &home.etag.unwrap())]).await;
    assert_eq!(gone.status, StatusCode::OK);
    assert_eq!(api.get("platform", ACME).await.status, StatusCode::NOT_FOUND);
    assert_eq!(api.send("platform", Method::DELETE, ACME, None, &[]).await.status, StatusCode::NOT_FOUND);
    let listed = api.get("platform", "/api/regions/orgs").await;
    assert_eq!(listed.body.as_array().unwrap().len(), 2);
    let gone = api.send("platform", Method::DELETE, REGIONS, None, &[]).await;
    assert_eq!(gone.status, StatusCode::OK);
    api.published(|snapshot| told(snapshot) == ["* eu \"\" false", "beta-* mars \"\" false"]).await;
}

fn home(letter: &str) -> (String, Value) {
    (format!("/api/regions/orgs/{}", letter.repeat(250)), json!({ "region": "us" }))
}

#[tokio::test]
async fn of_two_homes_put_at_two_control_planes_at_once_only_what_fits_is_stored() {
    let api = Api::start().await;
    let other = api.another().await;
    let change = Change::unconditional("test", 1);
    let record = |org: usize| HomeRecord { org: format!("{org:0>250}"), region: "us".into() };
    let placed = |homes| Placement { homes, ..Placement::default() };
    let each = budget::bytes(&regions(&placed(vec![record(0)])));
    // Room for one more, and for no two.
    for number in 1..budget::HOMES.bytes / each {
        api.store.put_home(&change, &record(number)).await.unwrap();
    }
    let ((a, body_a), (b, body_b)) = (home("a"), home("b"));
    let (one, two) = tokio::join!(api.put("platform", &a, body_a), other.put("platform", &b, body_b));
    let mut said = [one.status, two.status];
    said.sort_unstable();
    assert_eq!(said, [StatusCode::OK, StatusCode::CONFLICT], "{} {}", one.body, two.body);
    let bytes = budget::bytes(&regions(&api.store.load().await.unwrap().placement));
    assert!(bytes <= budget::HOMES.bytes, "{bytes}");
}

#[tokio::test]
async fn a_server_is_refused_whose_primitives_make_too_much_of_the_admins_routes() {
    let mut api = Api::start().await;
    let pool = "p".repeat(63);
    let list: Value = (0..256)
        .map(|number| json!({ "method": format!("{number:m>64}"), "primitive": "c*", "pool": pool }))
        .collect();
    let put = api.put("platform", ROUTES, list.clone()).await;
    assert_eq!(put.status, StatusCode::OK, "there is no such primitive yet: {}", put.body);
    let full = api.put("platform", DEMO, sample("demo")).await;
    assert_eq!((full.status, &full.body["code"]), (StatusCode::CONFLICT, &json!("limit_reached")));
    assert!(full.body["detail"].as_str().unwrap().contains("routes"), "{}", full.body);
    api.send("platform", Method::DELETE, ROUTES, None, &[]).await;
    assert_eq!(api.put("platform", DEMO, sample("demo")).await.status, StatusCode::OK);
    api.published(|snapshot| snapshot.servers.len() == 1).await;
    assert_eq!(api.put("platform", ROUTES, list).await.status, StatusCode::CONFLICT);
}
