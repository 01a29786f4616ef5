//! Issuers that say that their authorization responses name them (RFC 9207 section 3).

use asp_proto::snapshot::GatewaySnapshot;
use http::StatusCode;
use serde_json::{Value, json};

use super::issuers::{LOGIN, api, key};
use super::publisher::{DISCOVERY, Page, Publisher};

/// An issuer whose discovery document has this member besides its endpoints.
async fn publishing(said: Value) -> Publisher {
    let publisher = Publisher::start().await;
    publisher.publish(&[key("one")]);
    let at = |path: &str| format!("{}/{path}", publisher.origin);
    let metadata = json!({ "issuer": publisher.origin, "jwks_uri": at("keys"), "authorization_endpoint": at("authorize"),
        "token_endpoint": at("token"), "authorization_response_iss_parameter_supported": said });
    publisher.set(DISCOVERY, Page::Json(metadata));
    publisher
}

fn is_required(snapshot: &GatewaySnapshot) -> Option<bool> {
    let access = snapshot.issuer_access.iter().find(|access| access.issuer == "login")?;
    Some(access.login.as_ref()?.iss_required)
}

#[tokio::test]
async fn gateways_require_the_parameter_of_an_issuer_that_says_that_it_sends_it() {
    for (said, required) in
        [(json!(true), true), (json!(false), false), (json!("true"), false), (json!(null), false)]
    {
        let publisher = publishing(said.clone()).await;
        let mut api = api(&publisher).await;
        let mut document = publisher.document();
        document["login"] = json!({ "clientId": "mcp" });
        let put = api.put("platform", LOGIN, document).await;
        assert_eq!(put.status, StatusCode::OK, "{said}: {}", put.body);
        api.published(|snapshot| is_required(snapshot) == Some(required)).await;
    }
}

#[tokio::test]
async fn a_provider_that_is_discovered_keeps_what_its_document_says() {
    for (said, required) in [(json!(true), json!(true)), (json!(false), json!(null)), (json!(1), json!(null))]
    {
        let publisher = publishing(said.clone()).await;
        let api = api(&publisher).await;
        let body = json!({ "discover": publisher.origin, "clientSecret": "s3cret",
            "document": { "clientId": "c", "origins": ["https://api.example.com"], "for": ["crm/*"] } });
        let stored = api.put("platform", "/api/link-providers/hub", body).await;
        assert_eq!(stored.status, StatusCode::OK, "{said}: {}", stored.body);
        assert_eq!(stored.body["document"]["issParameter"], required, "{said}");
        assert_eq!(stored.body["document"]["issuer"], publisher.origin.as_str());
    }
}
