//! What the company's Keycloak and its server `notes` are made of.

use serde_json::{Value, json};

pub(super) const GATEWAY_SECRET: &str = "gateways-secret";

fn mapper(name: &str, kind: &str, config: Value) -> Value {
    let mut config = config;
    config["access.token.claim"] = json!("true");
    config["introspection.token.claim"] = json!("true");
    json!({ "name": name, "protocol": "openid-connect", "protocolMapper": kind, "config": config })
}

/// A realm in which nobody may register clients.
pub(super) fn acme() -> Value {
    let text = |claim: &str| json!({ "claim.name": claim, "jsonType.label": "String" });
    let mut roles = text("realm_access.roles");
    roles["multivalued"] = json!("true");
    let mut user = text("preferred_username");
    user["user.attribute"] = json!("username");
    let basics = json!([
        mapper("aud", "oidc-audience-mapper", json!({ "included.custom.audience": "asp" })),
        mapper("gateway", "oidc-audience-mapper", json!({ "included.client.audience": "gateway" })),
        mapper("sub", "oidc-sub-mapper", json!({})),
        mapper("roles", "oidc-usermodel-realm-role-mapper", roles),
        mapper("user", "oidc-usermodel-attribute-mapper", user),
    ]);
    let alice = json!({
        "username": "alice", "enabled": true, "firstName": "Alice", "lastName": "L", "email": "alice@acme.example",
        "emailVerified": true, "credentials": [{ "type": "password", "value": "wonderland" }], "realmRoles": ["staff"],
    });
    json!({
        "realm": "acme", "enabled": true, "sslRequired": "none", "accessTokenLifespan": 300,
        "roles": { "realm": [{ "name": "staff" }] },
        "clientScopes": [
            { "name": "asp", "protocol": "openid-connect", "attributes": { "include.in.token.scope": "false" },
              "protocolMappers": basics },
            { "name": "notes:write", "protocol": "openid-connect", "attributes": { "include.in.token.scope": "true" } },
        ],
        "defaultDefaultClientScopes": ["asp"],
        "clients": [
            { "clientId": "gateway", "secret": GATEWAY_SECRET, "serviceAccountsEnabled": true,
              "standardFlowEnabled": false },
            { "clientId": "cli", "publicClient": true, "standardFlowEnabled": false,
              "attributes": { "oauth2.device.authorization.grant.enabled": "true" }, "defaultClientScopes": ["asp"] },
            { "clientId": "direct", "publicClient": true, "directAccessGrantsEnabled": true,
              "defaultClientScopes": ["asp"], "optionalClientScopes": ["notes:write"] },
        ],
        "users": [alice],
    })
}

/// The one client that MCP clients log in as; its tokens end soon.
pub(super) fn client(callback: &str) -> Value {
    json!({
        "clientId": "mcp", "publicClient": true, "standardFlowEnabled": true, "redirectUris": [callback],
        "attributes": { "pkce.code.challenge.method": "S256", "access.token.lifespan": "3" },
        "defaultClientScopes": ["asp"], "optionalClientScopes": ["notes:write"],
    })
}

/// A server for signed tokens, of which one tool wants a scope.
pub(super) fn notes() -> Value {
    notes_with("[jwt]")
}

pub(super) fn notes_with(schemes: &str) -> Value {
    let server = format!(
        "apiVersion: asp/v1\nname: notes\ndescription: Notes of a company.\nprotocols: [mcp]\nsessions: both\n\
         defaultExposure: allow\nauth: {{schemes: {schemes}, issuers: [kc]}}\n\
         primitives: [{{ref: notes/notes.hello}}, {{ref: notes/notes.write}}]\n"
    );
    let scheme = schemes.trim_matches(['[', ']']);
    let tool = |id: &str, scopes: &str| {
        format!(
            "id: notes.{id}\nname: {id}\ntype: tool\nversion: 1.0.0\nowner: notes@acme.example\nsummary: Says it again.\n\
             mutation: read_only\nexposure: {{mcp: {{tool: {{name: {id}}}}}}}\nsecurity: {{auth: {{type: {scheme}, scopes: [{scopes}]}}}}\n\
             primitiveSchema: {{input_schema: {{type: object, properties: {{message: {{type: string}}}}, required: [message]}}}}\n\
             runtime: {{mode: builtin, entrypoint: echo}}\n"
        )
    };
    let file = |path: &str, text: String| json!({ "path": path, "text": text });
    json!({ "files": [
        file("notes/server.yaml", server),
        file("notes/hello.yaml", tool("hello", "")),
        file("notes/write.yaml", tool("write", "notes:write")),
    ] })
}
