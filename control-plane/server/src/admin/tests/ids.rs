//! An id of a primitive belongs to the server that stored it first (I-12).

use asp_store::control::{Change, SourceFile};
use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::Api;

/// A server with one tool under the id `cc.pay`.
fn server(name: &str, version: &str) -> Vec<SourceFile> {
    let file = format!(
        "apiVersion: asp/v1\nname: {name}\nprotocols: [mcp]\nauth: {{schemes: [jwt], issuers: [dev]}}\n\
         primitives: [{{ref: {name}/cc.pay}}]\n"
    );
    let spec = format!(
        "id: cc.pay\nname: Pay\ntype: tool\nversion: {version}\nowner: payments@example.com\nsummary: Pays.\n\
         mutation: destructive\nprimitiveSchema: {{input_schema: {{type: object}}}}\n\
         runtime: {{mode: builtin, entrypoint: echo}}\n"
    );
    let file_of = |path: String, text: String| SourceFile { path, text };
    vec![file_of(format!("{name}/server.yaml"), file), file_of(format!("{name}/cc.pay.yaml"), spec)]
}

async fn put(api: &Api, role: &str, name: &str, version: &str) -> (StatusCode, Value) {
    let body = json!({ "files": server(name, version) });
    let answer = api.put(role, &format!("/api/registry/servers/{name}"), body).await;
    (answer.status, answer.body)
}

#[tokio::test]
async fn a_copied_owner_does_not_open_an_id_and_a_grant_of_the_platform_does() {
    let api = Api::start().await;
    assert_eq!(put(&api, "server:pay", "pay", "1.0.0").await.0, StatusCode::OK);
    let (status, body) = put(&api, "server:evil", "evil", "9.0.0").await;
    assert_eq!((status, &body["code"]), (StatusCode::UNPROCESSABLE_ENTITY, &json!("invalid_primitives")));
    assert!(body["errors"].to_string().contains("belongs to another server"), "{body}");
    assert!(!body.to_string().contains("`pay`"), "whose it is, is not told to its team: {body}");
    assert_eq!(put(&api, "server:pay", "pay", "1.1.0").await.0, StatusCode::OK, "its own next version");

    let gone = api.send("platform", Method::DELETE, "/api/registry/servers/pay", None, &[]).await;
    assert_eq!(gone.status, StatusCode::OK);
    assert_eq!(put(&api, "server:evil", "evil", "9.0.0").await.0, StatusCode::UNPROCESSABLE_ENTITY);
    let grant = "/api/registry/primitives/cc.pay/servers/evil";
    for (role, status) in [("server:evil", StatusCode::NOT_FOUND), ("org:acme", StatusCode::FORBIDDEN)] {
        assert_eq!(api.send(role, Method::PUT, grant, None, &[]).await.status, status, "{role}");
    }
    let granted = api.send("platform", Method::PUT, grant, None, &[]).await;
    let holders = json!([{ "server": "evil", "first": false }, { "server": "pay", "first": true }]);
    assert_eq!((granted.status, &granted.body), (StatusCode::OK, &holders));
    assert_eq!(put(&api, "server:evil", "evil", "9.0.0").await.0, StatusCode::OK);
}

#[tokio::test]
async fn a_server_from_before_ids_had_servers_keeps_them() {
    let api = Api::start().await;
    let change = Change::unconditional("before", 1);
    api.store.put_server(&change, "pay", &server("pay", "1.0.0"), "before").await.unwrap();
    assert_eq!(api.store.primitive_servers("cc.pay").await.unwrap().value, []);
    // As an earlier version did while this one was running: nothing is noted, and the server goes.
    let gone = api.send("server:pay", Method::DELETE, "/api/registry/servers/pay", None, &[]).await;
    assert_eq!(gone.status, StatusCode::OK);
    assert_eq!(put(&api, "server:evil", "evil", "9.0.0").await.0, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(put(&api, "server:pay", "pay", "1.1.0").await.0, StatusCode::OK);
    let held = api.store.primitive_servers("cc.pay").await.unwrap().value;
    assert_eq!((held[0].server.as_str(), held[0].first, held.len()), ("pay", true, 1));
}

#[tokio::test]
async fn a_server_from_which_an_id_is_withdrawn_is_served_as_it_is_and_gets_no_next_version() {
    let mut api = Api::start().await;
    assert_eq!(put(&api, "server:pay", "pay", "1.0.0").await.0, StatusCode::OK);
    let of_pay = "/api/registry/primitives/cc.pay/servers/pay";
    assert_eq!(api.send("server:pay", Method::DELETE, of_pay, None, &[]).await.status, StatusCode::NOT_FOUND);
    assert_eq!(api.send("platform", Method::DELETE, of_pay, None, &[]).await.status, StatusCode::OK);
    let again = api.send("platform", Method::DELETE, of_pay, None, &[]).await;
    assert_eq!(again.status, StatusCode::NOT_FOUND);
    let (status, body) = put(&api, "server:pay", "pay", "1.1.0").await;
    assert_eq!((status, &body["code"]), (StatusCode::UNPROCESSABLE_ENTITY, &json!("invalid_primitives")));
    assert!(body["errors"].to_string().contains("has withdrawn the id `cc.pay`"), "{body}");
    api.published(|snapshot| snapshot.primitives.iter().any(|known| known.version == "1.0.0")).await;

    assert_eq!(api.send("platform", Method::PUT, of_pay, None, &[]).await.status, StatusCode::OK);
    assert_eq!(put(&api, "server:pay", "pay", "1.1.0").await.0, StatusCode::OK);
    let held = api.get("platform", "/api/registry/primitives/cc.pay/servers").await.body;
    assert_eq!(held, json!([{ "server": "pay", "first": true }]), "it was nobody's");
}
