//! The list of orgs.

use http::StatusCode;
use serde_json::json;

use super::Api;

#[tokio::test]
async fn orgs_are_listed_with_what_is_stored_for_them_and_an_org_sees_itself_alone() {
    let api = Api::start().await;
    for org in ["globex", "acme"] {
        let body = json!({ "server": "demo", "protocol": "mcp", "enabled": true });
        let put = api.put("platform", &format!("/api/policy/orgs/{org}/exposure"), body).await;
        assert_eq!(put.status, StatusCode::OK, "{}", put.body);
    }
    let all = api.get("platform:read", "/api/orgs").await;
    assert_eq!(all.status, StatusCode::OK, "{}", all.body);
    assert_eq!((&all.body[0]["org"], &all.body[1]["org"]), (&json!("acme"), &json!("globex")));
    assert_eq!(all.body[0]["exposure"], 1, "{}", all.body);
    let rest = api.get("platform", "/api/orgs?after=acme&limit=1").await;
    assert_eq!(rest.body.as_array().unwrap().len(), 1);
    assert_eq!(rest.body[0]["org"], "globex");
    for misspelt in ["/api/orgs?org=acme", "/api/blocks?orgs=acme", "/api/kafka/parked?most=1"] {
        let refused = api.get("platform", misspelt).await;
        assert!(refused.status.is_client_error(), "no filter is silently ignored: {misspelt}");
    }
    let own = api.get("org:globex", "/api/orgs").await;
    assert_eq!(own.body.as_array().unwrap().len(), 1);
    assert_eq!(own.body[0]["org"], "globex");
    assert_eq!(api.get("server:demo", "/api/orgs").await.status, StatusCode::NOT_FOUND);
}
