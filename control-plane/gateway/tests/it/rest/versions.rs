//! A call belongs to the major version of its tool that it was put to.

use asp_identity::issuers::IssuerDeps;
use asp_registry::assemble;
use http::StatusCode;
use serde_json::{Value, json};

use super::{Rest, reason, refused};
use crate::support::Fixture;
use crate::visibility::with_two_versions;

const FIRST: (&str, &str) = ("both.echo", "1.3.0");

fn call<'a>(fixture: &'a Fixture, tool: &str) -> Rest<'a> {
    Rest::at(fixture, &format!("/both/rest/tools/{tool}/calls/1"))
}

async fn listed(fixture: &Fixture, tool: &str) -> Vec<Value> {
    let list = Rest::at(fixture, &format!("/both/rest/tools/{tool}/calls")).get().await.json();
    list["calls"].as_array().unwrap().iter().map(|call| call["id"].clone()).collect()
}

#[tokio::test]
async fn another_major_version_of_its_tool_is_another_tool_here_and_at_other_gateways() {
    let fixture = Fixture::of(assemble(with_two_versions("1.3.0")));
    let put = call(&fixture, "echo_v1").put(&json!({"text": "hello"})).await;
    assert_eq!(put.status, StatusCode::CREATED, "{}", put.text);
    fixture.gateway.flush().await;
    let other = fixture.beside_asking(assemble(with_two_versions("1.3.0")), IssuerDeps::default());
    for gateway in [&fixture, &other] {
        let taken = call(gateway, "echo").put(&json!({"text": "hello"})).await;
        assert_eq!(reason(&taken), refused(409, "invalid_params"));
        assert_eq!(reason(&call(gateway, "echo").get().await), refused(404, "unknown_primitive"));
        let own = call(gateway, "echo_v1").put(&json!({"text": "hello"})).await;
        assert_eq!((own.status, &own.json()["status"]), (StatusCode::OK, &json!("success")));
        assert_eq!(listed(gateway, "echo").await, [] as [Value; 0]);
        assert_eq!(listed(gateway, "echo_v1").await, ["1"]);
    }
}

#[tokio::test]
async fn a_later_minor_version_is_the_same_tool_and_a_call_outlives_its_major_version() {
    let fixture = Fixture::of(assemble(with_two_versions("1.3.0")));
    call(&fixture, "echo_v1").put(&json!({"text": "hello"})).await;
    fixture.gateway.flush().await;
    let minor = fixture.beside_asking(assemble(with_two_versions("1.4.0")), IssuerDeps::default());
    let joined = call(&minor, "echo_v1").put(&json!({"text": "hello"})).await;
    assert_eq!((joined.status, &joined.json()["status"]), (StatusCode::OK, &json!("success")));
    assert_eq!(listed(&minor, "echo_v1").await, ["1"]);
    let mut later = assemble(with_two_versions("1.3.0"));
    later.primitives.retain(|primitive| (primitive.id.as_str(), primitive.version.as_str()) != FIRST);
    for server in &mut later.servers {
        server.listings.retain(|listing| (listing.id.as_str(), listing.version.as_str()) != FIRST);
    }
    let major = fixture.beside_asking(later, IssuerDeps::default());
    assert_eq!(call(&major, "echo").get().await.status, StatusCode::NOT_FOUND);
    let taken = call(&major, "echo").put(&json!({"text": "hello"})).await;
    assert_eq!(reason(&taken), refused(409, "invalid_params"));
}
