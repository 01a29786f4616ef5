//! A Keycloak that exchanges tokens for the service `crm`, and the platform's server whose calls go there.

use asp_e2e::keycloak::Keycloak;
use serde_json::{Value, json};

pub(super) const GATEWAY_SECRET: &str = "gateways-secret";

fn mapper(name: &str, kind: &str, config: &Value) -> Value {
    let mut config = config.clone();
    config["access.token.claim"] = json!("true");
    json!({ "name": name, "protocol": "openid-connect", "protocolMapper": kind, "config": config })
}

fn scope(name: &str, mappers: &[Value]) -> Value {
    json!({ "name": name, "protocol": "openid-connect", "attributes": { "include.in.token.scope": "false" },
            "protocolMappers": mappers })
}

/// `direct` gets tokens of a user that `gateway` may exchange, for `crm` and nothing else. They last as long as a test on a busy
/// machine may need them.
pub(crate) fn acme() -> Value {
    let audience = |client: &str| json!({ "included.client.audience": client });
    let user = json!({ "claim.name": "preferred_username", "jsonType.label": "String", "user.attribute": "username" });
    let of_users = [
        mapper("aud", "oidc-audience-mapper", &json!({ "included.custom.audience": "asp" })),
        mapper("gateway", "oidc-audience-mapper", &audience("gateway")),
        mapper("sub", "oidc-sub-mapper", &json!({})),
        mapper("user", "oidc-usermodel-attribute-mapper", &user),
    ];
    let of_crm =
        [mapper("crm", "oidc-audience-mapper", &audience("crm")), of_users[2].clone(), of_users[3].clone()];
    let exchange = json!({ "standard.token.exchange.enabled": "true" });
    let alice = json!({
        "username": "alice", "enabled": true, "firstName": "Alice", "lastName": "L", "email": "alice@acme.example",
        "emailVerified": true, "credentials": [{ "type": "password", "value": "wonderland" }],
    });
    json!({
        "realm": "acme", "enabled": true, "sslRequired": "none", "accessTokenLifespan": 3_600,
        "clientScopes": [scope("asp", &of_users), scope("crm", &of_crm)],
        "clients": [
            { "clientId": "gateway", "secret": GATEWAY_SECRET, "serviceAccountsEnabled": true,
              "standardFlowEnabled": false, "attributes": exchange, "defaultClientScopes": ["crm"] },
            { "clientId": "crm", "secret": "crms-secret", "standardFlowEnabled": false },
            { "clientId": "other", "secret": "others-secret", "standardFlowEnabled": false },
            { "clientId": "direct", "publicClient": true, "directAccessGrantsEnabled": true,
              "defaultClientScopes": ["asp"] },
        ],
        "users": [alice],
    })
}

/// What the platform is told of the issuer.
pub(super) fn issuer(keycloak: &Keycloak, port: u64) -> Value {
    let own = format!("http://127.0.0.1:{port}");
    json!({
        "iss": keycloak.issuer(), "orgs": ["acme"], "typ": ["JWT"], "audiences": ["asp"],
        "claims": { "user": "preferred_username" }, "defaults": { "org": "acme" },
        "exchange": { "credential": "kc", "audiences": {
            "crm": { "origins": [own], "for": ["crm/*"] }, "other": [own], "bank": ["https://bank.example.com"],
        } },
    })
}

/// Three tools: for their service the issuer gives tokens, gives none, and gives some that may not go there.
pub(super) fn server() -> Value {
    files("crm", &[("who", "crm"), ("elsewhere", "other"), ("stolen", "bank")])
}

/// A server of a team that the service does not belong to.
pub(super) fn other_team() -> Value {
    files("weather", &[("forecast", "crm")])
}

/// A server whose tools, each with its audience, call the service `crm` with an exchanged token.
fn files(server: &str, tools: &[(&str, &str)]) -> Value {
    let file = |name: &str, text: String| json!({ "path": format!("{server}/{name}.yaml"), "text": text });
    let tool = |(id, audience): &(&str, &str)| {
        let text = format!(
            "id: {server}.{id}\nname: {id}\ntype: tool\nversion: 1.0.0\nowner: crm@acme.example\nsummary: Says who calls.\n\
             mutation: read_only\nexposure: {{mcp: {{tool: {{name: {id}}}}}}}\n\
             primitiveSchema: {{input_schema: {{type: object}}}}\n\
             runtime: {{mode: proxy, http: {{url: \"http://crm.internal/who\"}}, auth: {{exchange: {{audience: {audience}}}}}}}\n"
        );
        file(id, text)
    };
    let refs: Vec<String> = tools.iter().map(|(id, _)| format!("{{ref: {server}/{server}.{id}}}")).collect();
    let text = format!(
        "apiVersion: asp/v1\nname: {server}\ndescription: Customers.\nprotocols: [mcp]\nsessions: both\n\
         defaultExposure: allow\nauth: {{schemes: [jwt], issuers: [kc]}}\nprimitives: [{}]\n",
        refs.join(", ")
    );
    let mut files = vec![file("server", text)];
    files.extend(tools.iter().map(tool));
    json!({ "files": files })
}
