//! A NUL in a path or a query, which PostgreSQL cannot hold.

use http::StatusCode;
use serde_json::json;

use super::{Api, resources};

/// Returns the path with `name` for each of its parameters.
fn concrete(path: &str, name: &str) -> String {
    let segments = path.split('/').map(|segment| if segment.starts_with('{') { name } else { segment });
    segments.collect::<Vec<_>>().join("/")
}

#[tokio::test]
async fn a_nul_in_a_path_or_a_query_of_any_resource_is_refused() {
    let api = Api::start().await;
    let queries =
        ["after=%00", "after=a%00b", "%00=x", "after=%25%00", "after=%%00", "limit=1&x&after=%00", "org=%00"];
    let mut cases: Vec<String> = queries.iter().map(|query| format!("/api/orgs?{query}")).collect();
    cases.push("/api/%00".to_owned());
    for path in resources().map(|resource| resource.path) {
        cases.push(format!("{}?any=%00", concrete(path, "x")));
        if path.contains('{') {
            cases.push(concrete(path, "x%00"));
        }
    }
    assert!(cases.len() > 80, "{} cases", cases.len());
    for case in &cases {
        let refused = api.get("platform", case).await;
        let expected = (StatusCode::BAD_REQUEST, &json!("invalid_params"));
        assert_eq!((refused.status, &refused.body["code"]), expected, "{case}");
    }
    for good in ["/api/orgs?after=%2500", "/api/orgs?after=0%30", "/api/orgs?after=%01"] {
        assert_eq!(api.get("platform", good).await.status, StatusCode::OK, "{good}");
    }
}
