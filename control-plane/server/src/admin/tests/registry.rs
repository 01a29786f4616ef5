//! Storage, validation, compilation and listing of servers and specs.

use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::{Api, DEMO, sample};

#[tokio::test]
async fn a_server_is_stored_once_published_and_removed() {
    let mut api = Api::start().await;
    let first = api.put("platform", DEMO, sample("demo")).await;
    assert_eq!((first.status, &first.body["changed"]), (StatusCode::OK, &json!(true)), "{}", first.body);
    api.published(|snapshot| snapshot.servers.iter().any(|server| server.name == "demo")).await;

    let again = api.put("platform", DEMO, sample("demo")).await;
    assert_eq!((&again.body["changed"], &again.etag), (&json!(false), &first.etag), "idempotent by content");
    let stored = api.get("platform", DEMO).await;
    assert_eq!(stored.body["files"], sample("demo")["files"]);
    assert_eq!(stored.body["contentHash"], first.body["contentHash"]);

    assert_eq!(api.send("platform", Method::DELETE, DEMO, None, &[]).await.status, StatusCode::OK);
    api.published(|snapshot| snapshot.servers.is_empty()).await;
    assert_eq!(api.get("platform", DEMO).await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_server_goes_back_to_what_it_was_also_after_it_was_deleted() {
    let mut api = Api::start().await;
    let first = api.put("platform", DEMO, sample("demo")).await;
    let mut smaller = sample("demo");
    let files = smaller["files"].as_array_mut().unwrap();
    let server = files.iter_mut().find(|file| file["path"] == "demo/server.yaml").unwrap();
    server["text"] = json!(server["text"].as_str().unwrap().replace("  - ref: demo/clock\n", ""));
    let second = api.put("server:demo", &format!("{DEMO}?force=true"), smaller.clone()).await;
    assert_eq!(second.status, StatusCode::OK, "{}", second.body);
    let versions = api.get("platform", &format!("{DEMO}/versions")).await.body;
    let revisions: Vec<&Value> = versions.as_array().unwrap().iter().map(|one| &one["revision"]).collect();
    assert_eq!(revisions, [&second.body["revision"], &first.body["revision"]]);
    assert!(versions[0]["actor"].as_str().unwrap().contains("server"), "{versions}");
    let old = api.get("platform", &format!("{DEMO}/versions/{}", first.body["revision"])).await.body;
    assert_eq!((&old["files"], &old["contentHash"]), (&sample("demo")["files"], &first.body["contentHash"]));

    let back = format!("{DEMO}/rollback");
    let to = |answer: &Value| json!({"revision": answer["revision"]});
    for (role, body, status) in [
        ("server:other", to(&first.body), StatusCode::NOT_FOUND),
        ("platform:read", to(&first.body), StatusCode::FORBIDDEN),
        ("server:demo", json!({"revision": 999}), StatusCode::NOT_FOUND),
        ("server:demo", json!({}), StatusCode::BAD_REQUEST),
        ("server:demo", json!({"revision": -1}), StatusCode::BAD_REQUEST),
    ] {
        let refused = api.send(role, Method::POST, &back, Some(body), &[]).await;
        assert_eq!(refused.status, status, "{role}: {}", refused.body);
    }
    let stale = [("if-match", "\"1\"")];
    let refused = api.send("server:demo", Method::POST, &back, Some(to(&first.body)), &stale).await;
    assert_eq!(refused.status, StatusCode::PRECONDITION_FAILED, "{}", refused.body);
    let rolled = api.send("server:demo", Method::POST, &back, Some(to(&first.body)), &[]).await;
    assert_eq!((rolled.status, &rolled.body["changed"]), (StatusCode::OK, &json!(true)), "{}", rolled.body);
    assert_eq!(api.get("platform", DEMO).await.body["files"], sample("demo")["files"]);
    let audit = api.get("platform", "/api/audit?limit=1").await.body.to_string();
    assert!(
        audit.contains("server.rollback") && audit.contains(&first.body["revision"].to_string()),
        "{audit}"
    );
    api.published(|snapshot| {
        snapshot.servers.iter().any(|server| {
            server.name == "demo" && server.listings.iter().any(|listing| listing.mcp_name == "clock")
        })
    })
    .await;

    assert_eq!(api.send("platform", Method::DELETE, DEMO, None, &[]).await.status, StatusCode::OK);
    let rolled = api.send("platform", Method::POST, &back, Some(to(&second.body)), &[]).await;
    assert_eq!(rolled.status, StatusCode::OK, "{}", rolled.body);
    assert_eq!(api.get("platform", DEMO).await.body["files"], smaller["files"]);
    let unknown = api.get("platform", "/api/registry/servers/nobody/versions").await;
    assert_eq!(unknown.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_server_with_faults_is_refused_with_all_of_them() {
    let api = Api::start().await;
    let mut files = sample("demo");
    files["files"][0]["text"] = json!("apiVersion: asp/v1\nnope: 1\n");
    let refused = api.put("platform", DEMO, files).await;
    assert_eq!(refused.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(refused.content_type, "application/problem+json");
    assert_eq!(
        (&refused.body["code"], &refused.body["type"]),
        (&json!("invalid_primitives"), &json!("urn:asp:reason:invalid_primitives"))
    );
    assert!(!refused.body["errors"].as_array().unwrap().is_empty());
    let mut foreign = sample("demo");
    let files = foreign["files"].as_array_mut().unwrap();
    let server = files.iter_mut().find(|file| file["path"] == "demo/server.yaml").unwrap();
    server["text"] = json!(server["text"].as_str().unwrap().replace("issuers: [dev]", "issuers: [nobody]"));
    let refused = api.put("platform", DEMO, foreign).await;
    assert_eq!(refused.body["code"], "invalid_primitives");
    assert!(refused.body["detail"].as_str().unwrap().contains("nobody"), "{}", refused.body);
    let other = api.put("platform", "/api/registry/servers/other", sample("demo")).await;
    assert_eq!(other.body["code"], "invalid_params", "the name in the path is the server's");
}

#[tokio::test]
async fn a_stale_etag_changes_nothing() {
    let api = Api::start().await;
    let path = "/api/ratelimits/orgs/acme";
    let limit =
        |capacity: u64| json!([{ "selector": {}, "policy": { "capacity": capacity, "refill": "1/s" } }]);
    let first = api.put("org:acme", path, limit(1)).await;
    let tag = first.etag.unwrap();
    let conditional = |tag: String, body: Value| {
        let api = &api;
        async move { api.send("org:acme", Method::PUT, path, Some(body), &[("if-match", &tag)]).await }
    };
    let second = conditional(tag.clone(), limit(2)).await;
    assert_eq!(second.status, StatusCode::OK);
    let stale = conditional(tag, limit(3)).await;
    assert_eq!(
        (stale.status, &stale.body["code"]),
        (StatusCode::PRECONDITION_FAILED, &json!("precondition_failed"))
    );
    let read = api.get("org:acme", path).await;
    assert_eq!((&read.body[0]["policy"]["capacity"], &read.etag), (&json!(2), &second.etag));
}

#[tokio::test]
async fn specs_are_validated_and_compiled_alone_or_as_files() {
    let api = Api::start().await;
    let files = sample("demo");
    let spec =
        files["files"].as_array().unwrap().iter().find(|file| file["path"] == "demo/echo.yaml").unwrap();
    let yaml = [("content-type", "application/yaml")];
    let text = Some(spec["text"].clone());
    let valid = api.send("org:acme:read", Method::POST, "/api/registry/validate", text.clone(), &yaml).await;
    assert_eq!(valid.body["valid"], true, "{}", valid.body);
    let compiled = api.send("platform", Method::POST, "/api/registry/compile", text, &yaml).await;
    assert_eq!(compiled.body["mcp"]["tools"][0]["name"], "echo", "{}", compiled.body);
    assert!(compiled.body["runtimeManifest"].as_object().is_some_and(|manifests| manifests.len() == 1));

    let all = api.send("platform", Method::POST, "/api/registry/compile", Some(files), &[]).await;
    assert!(all.body["mcp"]["tools"].as_array().unwrap().len() > 1);
    let broken =
        api.send("platform", Method::POST, "/api/registry/validate", Some(json!("id: [")), &yaml).await;
    assert_eq!((broken.status, &broken.body["valid"]), (StatusCode::OK, &json!(false)));
    assert!(!broken.body["errors"].as_array().unwrap().is_empty());
}

#[tokio::test]
async fn an_org_sees_its_primitives_with_exposure_and_policy() {
    let api = Api::start().await;
    api.put("platform", DEMO, sample("demo")).await;
    let off = json!({ "server": "demo", "protocol": "mcp", "enabled": false });
    api.put("org:acme", "/api/policy/orgs/acme/exposure", off).await;
    let bound = json!({
        "target": { "type": "group", "idOrPattern": "ops" }, "primitive": { "name": "ec*" }, "allowed": false
    });
    api.put("org:acme", "/api/policy/orgs/acme/bindings", bound).await;
    let listed = api.get("org:acme", "/api/registry/orgs/acme/primitives").await.body;
    let echo = listed.as_array().unwrap().iter().find(|primitive| primitive["name"] == "echo").unwrap();
    assert_eq!(echo["exposure"]["mcp"], Value::Null, "switched off for this org");
    assert_eq!(echo["policy"][0]["primitive"]["protocol"], "*");
    let other = api.get("platform", "/api/registry/orgs/other/primitives").await.body;
    let echo = other.as_array().unwrap().iter().find(|primitive| primitive["name"] == "echo").unwrap();
    assert_eq!(
        echo["exposure"],
        json!({ "mcp": "echo", "a2a": null, "rest": "echo" }),
        "the server does not list a2a"
    );
}

/// A changed copy of a sample's file.
pub(super) fn edited(files: &Value, path: &str, from: &str, to: &str) -> Value {
    let mut files = files.clone();
    let list = files["files"].as_array_mut().unwrap();
    let file = list.iter_mut().find(|file| file["path"] == path).unwrap();
    let text = file["text"].as_str().unwrap();
    assert!(text.contains(from), "{text}");
    file["text"] = json!(text.replace(from, to));
    files
}

#[tokio::test]
async fn a_contract_that_breaks_without_a_new_major_is_refused_unless_forced_and_the_audit_says_so() {
    let api = Api::start().await;
    let stored = api.put("platform", DEMO, sample("demo")).await;
    // The primitive's version rises, and not far enough.
    let files = edited(&sample("demo"), "demo/echo.yaml", "version: 1.0.0", "version: 1.1.0");
    let broken = edited(&files, "demo/echo.yaml", "maxLength: 65536", "maxLength: 10");
    let refused = api.put("platform", DEMO, broken.clone()).await;
    assert_eq!((refused.status, &refused.body["code"]), (StatusCode::CONFLICT, &json!("breaking_change")));
    let changes = refused.body["changes"].as_array().unwrap();
    assert!(
        changes.iter().any(|change| change["breaking"] == true && change["primitive"] == "echo"),
        "{changes:?}"
    );
    assert_eq!(api.get("platform", DEMO).await.etag, stored.etag, "nothing was stored");

    let gone = edited(&sample("demo"), "demo/server.yaml", "  - ref: demo/echo\n", "");
    assert_eq!(
        api.put("platform", DEMO, gone.clone()).await.status,
        StatusCode::CONFLICT,
        "a primitive is gone"
    );
    let major = edited(&broken, "demo/echo.yaml", "version: 1.1.0", "version: 2.0.0");
    assert_eq!(
        api.put("platform", DEMO, major).await.status,
        StatusCode::OK,
        "a new major version may break"
    );

    let forced = api.put("platform", &format!("{DEMO}?force=true"), gone).await;
    assert_eq!((forced.status, &forced.body["changed"]), (StatusCode::OK, &json!(true)), "{}", forced.body);
    let audit = api.get("platform", "/api/audit").await.body;
    let noted = audit.to_string();
    assert!(noted.contains("server.force") && noted.contains("the primitive is gone"), "{noted}");
}

#[tokio::test]
async fn a_primitive_is_listed_with_its_first_bindings_and_how_many_more_there_are() {
    let api = Api::start().await;
    api.put("platform", DEMO, sample("demo")).await;
    for number in 0..23 {
        let binding = json!({
            "target": { "type": "user", "idOrPattern": format!("u{number:02}") },
            "primitive": { "name": if number % 2 == 0 { "echo" } else { "ec*" } },
            "allowed": true
        });
        let answer = api.put("org:acme", "/api/policy/orgs/acme/bindings", binding).await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.body);
    }
    let listed = api.get("org:acme:read", "/api/registry/orgs/acme/primitives").await.body;
    let named = |name: &str| {
        let listed = listed.as_array().unwrap().iter();
        listed.clone().find(|primitive| primitive["name"] == name).unwrap()
    };
    let echo = named("echo");
    assert_eq!(echo["policyMore"], 3, "{echo}");
    let shown = echo["policy"].as_array().unwrap();
    let targets: Vec<&str> =
        shown.iter().map(|binding| binding["target"]["idOrPattern"].as_str().unwrap()).collect();
    let expected: Vec<String> = (0..20).map(|number| format!("u{number:02}")).collect();
    assert_eq!(targets, expected, "the first ones, in the order of the org's list");
    assert_eq!((&named("clock")["policy"], &named("clock")["policyMore"]), (&json!([]), &json!(0)));
}
